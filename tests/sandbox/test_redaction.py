"""The requests that the sandbox shows hold no credential."""

from __future__ import annotations

import pytest


async def test_the_last_requests_are_shown_without_credentials(plain, client, sandbox, order):
    """Newest first, with bodies and responses; no token, secret, code or payer token in any of it."""
    info = sandbox.describe()
    await client.orders.create(order())
    token = await client.oauth.exchange_code(sandbox.authorization_code)
    await client.oauth.refresh(token.refresh_token)
    wallet = {"wallet_payment": {"transaction_amount": 1}, "payer": {"token": "very-secret", "type_token": "w"}}
    await plain("POST", "/v1/advanced_payments", wallet, key="k")
    await plain("GET", f"/v1/orders/ORD1?access_token={info.access_token}")

    answer = await plain("GET", "/_sandbox/requests")

    names = ["orders.get", "wallet_payments.create", "oauth.token", "oauth.token", "orders.create"]
    assert [*zip(names, [400, 201, 200, 200, 201], strict=True)] == [
        (line["operation"], line["status"]) for line in answer.json
    ]
    assert "ticket-1" in answer.json[-1]["body"]
    assert answer.json[-1]["request_id"]
    secrets = [info.access_token, info.client_secret, info.authorization_code]
    secrets += [token.access_token, token.refresh_token, "very-secret"]
    assert [] == [secret for secret in secrets if secret in answer.raw.decode()]


async def shown(plain) -> str:
    """Return the body of the last request, as the sandbox shows it."""
    return (await plain("GET", "/_sandbox/requests")).json[0]["body"]


MASKED = [
    (b'{"client_secret": 12345678, "code": 987654}', '{"client_secret":"***","code":"***"}'),
    (b'{"client_\\u0073ecret": "SECRET"}', '{"client_secret":"***"}'),
    (b'{"\\u0063ode": "SECRET", "scope": "read"}', '{"code":"***","scope":"read"}'),
    (b'{"a": [{"token": {"b": ["SECRET"]}}, 24.90]}', '{"a":[{"token":"***"},24.90]}'),
    (b'{"code": "SECRET", "code": "SECRET"}', '{"code":"***"}'),
    (b'{"code": "SECRET", "Client_Secret": "SECRET"}', '{"code":"***","Client_Secret":"***"}'),
]


async def test_every_kind_of_credential_is_masked(plain):
    """A number, an object, in a list, twice, or under a name with a letter written as its number or as a capital."""
    for body, expected in MASKED:
        await plain("POST", "/oauth/token", body)

        assert expected == await shown(plain)


async def test_a_credential_is_masked_wherever_it_is_sent(plain):
    """In a body that asks for no token as well, whatever the case of its name."""
    for name in ("token", "Token", "ACCESS_TOKEN", "\\u0054oken", "\\u0041ccess_token"):
        body = f'{{"payer": {{"{name}": "SECRET"}}, "code": "7"}}'
        await plain("POST", "/v1/advanced_payments", body.encode(), key="k")

        text = await shown(plain)
        assert ("SECRET" not in text, text.endswith(':"***"},"code":"7"}')) == (True, True)


BROKEN_TOKENS = [
    str({"payer": {"token": "SECRET"}, "code": "7"}),
    "{'token': b'SECRET'}",
    "{'id': 7, 'token': Secret(SECRET, 1)}",
    '{"payer": {"token": "SECRET"}, "a": ',
    '\ufeff{"external_reference":"a=b","payer":{"token":"SECRET"}}',
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
async def test_a_credential_is_masked_in_every_encoding(plain, encoding):
    """Some programs write their JSON in two bytes for each letter. It is rejected, and nobody should read its token."""
    for body in (*BROKEN_TOKENS, '{"payer":{"token":"SECRET"}}', "payer[token]=SECRET"):
        await plain("POST", "/v1/advanced_payments", body.encode(encoding), key="k")

        assert "SECRET" not in (await shown(plain)).replace("\0", "")


async def test_a_body_that_cannot_be_read_is_masked_whole_if_it_may_hold_a_credential(plain):
    """A program that sends the text of its dict is rejected: where its token begins and ends, nobody knows."""
    for body in BROKEN_TOKENS:
        await plain("POST", "/v1/advanced_payments", body.encode(), key="k")

        assert "***" == await shown(plain)


#: Bodies that are no JSON, or none that can be read, with a credential in each.
BROKEN = [
    b'{"client_secret": "SECRET',
    b'{"client_secret": SECRET, "a"',
    b'{"client_secret": {"a": "SECRET"}, "b"',
    b'{"client_\\u0073ecret": ["SECRET"], "a": "\\ud800"}',
    b'{"\\u0043lient_secret": "SECRET", "a"',
    b"{'client_secret': 'SECRET'}",
    b'{"client_secret": "SECRET", "a": ' + b"[" * 5_000,
    b"grant_type=x&client%5Fsecret=SECRET",
    b"grant_type=x&Client_Secret=SECRET",
    b'{"Client_Secret": "SECRET"}',
    b"{client_secret: SECRET}",
    b"client_secret: SECRET\n",
    b'--b\r\nContent-Disposition: form-data; name="client_secret"\r\n\r\nSECRET\r\n--b--',
    b"<client_secret>SECRET</client_secret>",
    b'"{\\"client_secret\\": \\"SECRET\\"}"',
    b'\xef\xbb\xbf{"redirect_uri":"https://x.example.com/?a=b","client_secret":"SECRET"}',
    b"\xef\xbb\xbf{'redirect_uri':'https://x.example.com/?a=b','client_secret':'SECRET'}",
    b'a=b","client_secret":"SECRET',
]


@pytest.mark.control("paymentsdk.sandbox._feed.MASK", "SECRET")
async def test_a_credential_in_what_is_no_json_is_masked(plain):
    """Nor is any of it shown, where nobody knows what is a name."""
    for body in BROKEN:
        await plain("POST", "/oauth/token", body)

    lines = (await plain("GET", "/_sandbox/requests")).json

    assert len(BROKEN) == len(lines)
    assert not [line["body"] for line in lines if "SECRET" in line["body"]]


async def test_a_body_without_credentials_is_shown_as_it_came(plain):
    """Negative control: with its blanks, its numbers, and codes that are none of a grant."""
    body = b'{"external_reference":  "a\\"b=c", "total_amount": "5.00", "code": "7", "n": 1.50}'
    await plain("POST", "/v1/orders", body, key="k")

    assert body.decode() == await shown(plain)
