<?php
// Takes an order, has it paid, refunds it, and receives the notifications. Needs PHP 8.1 or later, and nothing else.
declare(strict_types=1);

function call(string $method, string $path, ?array $body = null): array
{
    $headers = [
        'Authorization: Bearer ' . getenv('ACCESS_TOKEN'),
        'Content-Type: application/json',
        'X-Idempotency-Key: ' . bin2hex(random_bytes(16)), // Each write has a key; a retry of the write sends the same key.
    ];
    $http = ['method' => $method, 'header' => $headers, 'ignore_errors' => true];
    if ($body !== null) {
        $http['content'] = json_encode($body, JSON_THROW_ON_ERROR);
    }
    $text = file_get_contents(getenv('BASE_URL') . $path, false, stream_context_create(['http' => $http]));
    $status = (int) explode(' ', $http_response_header[0])[1];
    if ($text === false || $status >= 300) {
        throw new RuntimeException("$method $path: $status $text");
    }
    return json_decode($text, true, flags: JSON_THROW_ON_ERROR);
}

// Standard Webhooks 1.0: an HMAC over the id, the time and the raw body.
function is_genuine(array $headers, string $body, string $secret): bool
{
    $time = $headers['webhook-timestamp'] ?? '';
    if (abs(time() - (int) $time) > 300) {
        return false;
    }
    $key = base64_decode(substr($secret, strlen('whsec_')), true);
    $signed = ($headers['webhook-id'] ?? '') . ".$time.$body";
    $expected = 'v1,' . base64_encode(hash_hmac('sha256', $signed, $key, true));
    foreach (explode(' ', $headers['webhook-signature'] ?? '') as $signature) {
        if (hash_equals($expected, $signature)) {
            return true;
        }
    }
    return false;
}

// One request, as far as a notification needs it. In a web server: getallheaders() and php://input.
function receive($server, string $secret): string
{
    $connection = stream_socket_accept($server, 20);
    $headers = [];
    fgets($connection);
    while (($line = rtrim(fgets($connection))) !== '') {
        [$name, $value] = explode(':', $line, 2);
        $headers[strtolower($name)] = trim($value);
    }
    $body = stream_get_contents($connection, (int) $headers['content-length']);
    $genuine = is_genuine($headers, $body, $secret);
    fwrite($connection, $genuine ? "HTTP/1.1 202 Accepted\r\n" : "HTTP/1.1 401 Unauthorized\r\n");
    fwrite($connection, "Content-Length: 0\r\nConnection: close\r\n\r\n");
    fclose($connection);
    return $genuine ? json_decode($body, true, flags: JSON_THROW_ON_ERROR)['type'] : 'forged';
}

$server = stream_socket_server('tcp://127.0.0.1:0');
$url = 'http://' . stream_socket_get_name($server, false) . '/webhook';

// Everything below /_sandbox/ controls the sandbox: the platform itself does not have it.
[$seller] = call('GET', '/_sandbox/tenants');
$secret = call('POST', "/_sandbox/tenants/{$seller['user_id']}/webhooks", ['url' => $url])['secret'];

$order = call('POST', '/v1/orders', [
    'type' => 'qr',
    'external_reference' => 'table-7',
    'total_amount' => '24.90',
    'config' => ['qr' => ['external_pos_id' => $seller['external_pos_id'], 'mode' => 'dynamic']],
    'transactions' => ['payments' => [['amount' => '24.90']]],
]);
call('POST', "/_sandbox/orders/{$order['id']}/pay"); // The buyer scans the code and pays.
$paid = call('GET', "/v1/orders/{$order['id']}");
$refunded = call('POST', "/v1/orders/{$order['id']}/refund");
$types = [];
for ($i = 0; $i < 3; $i++) {
    $types[] = receive($server, $secret);
}
sort($types);

echo implode(' ', [$paid['status'], $refunded['status'], ...$types]), "\n";
exit($types === ['orders.created', 'orders.paid', 'orders.refunded'] ? 0 : 1);
