// Takes an order, has it paid, refunds it, and receives the notifications. Needs Node 18 or later, and nothing else.
import { strict as assert } from "node:assert";
import { createHmac, randomUUID, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const { BASE_URL, ACCESS_TOKEN } = process.env;

async function call(method, path, body) {
  const response = await fetch(BASE_URL + path, {
    method,
    headers: {
      Authorization: `Bearer ${ACCESS_TOKEN}`,
      "Content-Type": "application/json",
      "X-Idempotency-Key": randomUUID(), // Each write has a key; a retry of the write sends the same key.
    },
    body: body && JSON.stringify(body),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return response.json();
}

// Standard Webhooks 1.0: an HMAC over the id, the time and the raw body.
function isGenuine(headers, body, secret) {
  const { "webhook-id": id, "webhook-timestamp": time, "webhook-signature": signatures = "" } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(time)) < 300)) return false;
  const key = Buffer.from(secret.replace("whsec_", ""), "base64");
  const expected = createHmac("sha256", key).update(`${id}.${time}.`).update(body).digest();
  return signatures.split(" ").some((signature) => {
    const received = Buffer.from(signature.replace("v1,", ""), "base64");
    return received.length === expected.length && timingSafeEqual(received, expected);
  });
}

let secret;
const types = [];
const server = createServer(async (request, response) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  const body = Buffer.concat(parts);
  const genuine = isGenuine(request.headers, body, secret);
  types.push(genuine ? JSON.parse(body).type : "forged");
  response.writeHead(genuine ? 202 : 401).end();
});
await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));

// Everything below /_sandbox/ controls the sandbox: the platform itself does not have it.
const [seller] = await call("GET", "/_sandbox/tenants");
const url = `http://127.0.0.1:${server.address().port}/webhook`;
({ secret } = await call("POST", `/_sandbox/tenants/${seller.user_id}/webhooks`, { url }));

const { id } = await call("POST", "/v1/orders", {
  type: "qr",
  external_reference: "table-7",
  total_amount: "24.90",
  config: { qr: { external_pos_id: seller.external_pos_id, mode: "dynamic" } },
  transactions: { payments: [{ amount: "24.90" }] },
});
await call("POST", `/_sandbox/orders/${id}/pay`); // The buyer scans the code and pays.
const paid = await call("GET", `/v1/orders/${id}`);
const refunded = await call("POST", `/v1/orders/${id}/refund`);
while (types.length < 3) await new Promise((resolve) => setTimeout(resolve, 10));
server.close();

console.log(paid.status, refunded.status, ...types.sort());
assert.deepEqual(types, ["orders.created", "orders.paid", "orders.refunded"]);
