"""The requests that the sandbox shows hold no credential."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar
from urllib.parse import urlencode

import msgspec
import pytest

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources import OPERATIONS, oauth
from paymentsdk.resources.common import RequestStruct
from paymentsdk.sandbox._feed import (
    LONGEST_BODY,
    LONGEST_RESPONSE,
    Feed,
    RequestLine,
    redact_body,
    redact_query,
    secrets_of,
)

MIB = 2**20
SECRETS = secrets_of(OPERATIONS.values())


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
    shown = answer.raw.decode()
    lines = answer.json

    assert ["orders.get", "wallet_payments.create", "oauth.token", "oauth.token", "orders.create"] == [
        line["operation"] for line in lines
    ]
    assert [400, 201, 200, 200, 201] == [line["status"] for line in lines]
    assert "ticket-1" in lines[-1]["body"]
    assert lines[-1]["request_id"]
    secrets = (
        info.access_token,
        info.client_secret,
        info.authorization_code,
        token.access_token,
        token.refresh_token,
        "very-secret",
    )
    for secret in secrets:
        assert secret not in shown


async def test_a_form_is_shown_without_credentials(plain, sandbox):
    """A form at the token endpoint is rejected, and none of it is shown."""
    info = sandbox.describe()
    form = {"grant_type": "authorization_code", "client_secret": info.client_secret, "code": info.authorization_code}
    form |= {"code_verifier": "very-secret", "refresh_token": info.refresh_token}
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    refused = await plain("POST", "/oauth/token", urlencode(form).encode(), headers=headers)
    [line] = (await plain("GET", "/_sandbox/requests")).json

    assert 400 == refused.status
    assert "***" == line["body"]


MASKED = [
    (b'{"client_secret": 12345678, "code": 987654}', '{"client_secret":"***","code":"***"}'),
    (b'{"client_\\u0073ecret": "SECRET"}', '{"client_secret":"***"}'),
    (b'{"\\u0063ode": "SECRET", "scope": "read"}', '{"code":"***","scope":"read"}'),
    (b'{"a": [{"token": {"b": ["SECRET"]}}, 24.90]}', '{"a":[{"token":"***"},24.90]}'),
    (b'{"code": "SECRET", "code": "SECRET"}', '{"code":"***"}'),
    (b'{"code": "SECRET", "Client_Secret": "SECRET"}', '{"code":"***","Client_Secret":"***"}'),
]


@pytest.mark.parametrize(("body", "shown"), MASKED)
async def test_a_credential_is_masked_whatever_it_is(plain, body, shown):
    """A number, an object, in a list, twice, or under a name with a letter written as its number or as a capital."""
    await plain("POST", "/oauth/token", body)

    [line] = (await plain("GET", "/_sandbox/requests")).json

    assert shown == line["body"]


@pytest.mark.parametrize("name", ["token", "Token", "ACCESS_TOKEN", "\\u0054oken", "\\u0041ccess_token"])
async def test_a_credential_is_masked_wherever_it_is_sent(plain, name):
    """In a body that asks for no token as well, whatever the case of its name."""
    body = f'{{"payer": {{"{name}": "SECRET"}}, "code": "7"}}'
    await plain("POST", "/v1/advanced_payments", body.encode(), key="k")

    [line] = (await plain("GET", "/_sandbox/requests")).json

    assert "SECRET" not in line["body"]
    assert line["body"].endswith(':"***"},"code":"7"}')


FORMS = [
    "token={}",
    "payer[token]={}",
    "payer%5Btoken%5D={}",
    "payer.token={}",
    "payer[0][access_token]={}",
    "payer[token][]={}",
    "payer[token][value]={}",
    "client_secret[]={}",
    "a=5&&Token={}",
    "a=two words&token={}",
    'token="{}"&a=5',
    "a=5\ntoken={}",
    "client%5Fsecret={}",
    "a=5&%74oken={}",
]


@pytest.mark.control("paymentsdk.sandbox._feed._names", lambda text, secrets: False)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_with_a_credential_is_masked(form):
    """A program that sends a form is rejected; a form of no token is shown."""
    assert "***" == redact_body(form.format("SECRET").encode(), SECRETS, grant=False)
    assert "a=5&code=7" == redact_body(b"a=5&code=7", SECRETS, grant=False)


@pytest.mark.control("paymentsdk.sandbox._feed._names", lambda text, secrets: False)
@pytest.mark.parametrize("name", ["access_token", "Access_Token", "payer%5Btoken%5D", "client_secret[]", "%74oken"])
def test_a_credential_in_an_address_is_masked(name):
    """With everything else as it is: blanks, signs without a name, and what has no value."""
    rest = "b=c%20d&&=1&token&e==f"

    assert f"/v1?a=5&{name}=***&{rest}" == redact_query(f"/v1?a=5&{name}=SECRET&{rest}", SECRETS)
    assert "/v1/token=1" == redact_query("/v1/token=1", SECRETS)


ADDRESSES = ["/v1?{}", "/v1&{}&a=5", "/v1;{}", "/v1?a=5?{}", "/v1?a=5;{}", "/v1?next=http://shop/?{}", "/v1?{}?a=5"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_credential_in_an_address_that_is_put_together_wrongly_is_masked(address):
    """With the question mark forgotten, there twice, or another sign in its place: the token was sent all the same."""
    shown = redact_query(address.format("access_token=SECRET"), SECRETS)

    assert "SECRET" not in shown
    assert "access_token=***" in shown


BROKEN_TOKENS = [
    str({"payer": {"token": "SECRET"}, "code": "7"}),
    "{'token': b'SECRET'}",
    "{'id': 7, 'token': Secret(SECRET, 1)}",
    '{"payer": {"token": "SECRET"}, "a": ',
    '\ufeff{"external_reference":"a=b","payer":{"token":"SECRET"}}',
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("body", [*BROKEN_TOKENS, '{"payer":{"token":"SECRET"}}', "payer[token]=SECRET"])
async def test_a_credential_is_masked_in_whatever_encoding(plain, body, encoding):
    """Some programs write their JSON in two bytes for each letter. It is rejected, and nobody should read its token."""
    await plain("POST", "/v1/advanced_payments", body.encode(encoding), key="k")

    [line] = (await plain("GET", "/_sandbox/requests")).json

    assert "SECRET" not in line["body"].replace("\0", "")


@pytest.mark.parametrize("body", BROKEN_TOKENS)
async def test_a_body_that_cannot_be_read_is_masked_whole_if_it_may_hold_a_credential(plain, body):
    """A program that sends the text of its dict is rejected: where its token begins and ends, nobody knows."""
    await plain("POST", "/v1/advanced_payments", body.encode(), key="k")

    [line] = (await plain("GET", "/_sandbox/requests")).json

    assert "***" == line["body"]


class Statement(MaskedRepr, RequestStruct):
    """A grant that no operation has yet."""

    assertion: str
    __secrets__: ClassVar[frozenset[str]] = frozenset({"assertion"})


@pytest.mark.parametrize("kind", [Statement, list[Statement]])
def test_what_an_operation_declares_a_credential_is_masked(kind):
    """A member that is hidden in the Struct of a request is hidden here too: its name stands in no second list."""
    body, secrets = b'{"assertion": "SECRET", "scope": "read"}', secrets_of([replace(oauth.TOKEN, body=kind)])

    assert "SECRET" in redact_body(body, SECRETS, grant=True)
    assert '{"assertion":"***","scope":"read"}' == redact_body(body, secrets, grant=True)
    assert "a?assertion=***&b=c" == redact_query("a?assertion=SECRET&b=c", secrets)


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

    [line] = (await plain("GET", "/_sandbox/requests")).json

    assert body.decode() == line["body"]


@pytest.mark.parametrize("body", [b"code 7: no such till", b"a b=c&code=7", b""], ids=str)
def test_what_is_no_json_is_shown_where_it_asks_for_no_token(body):
    """Only a request for a token is masked when nobody knows what is in it, and then where there is anything in it."""
    assert body.decode() == redact_body(body, SECRETS, grant=False)
    assert (body == b"") == (body.decode() == redact_body(body, SECRETS, grant=True))


def test_bytes_that_are_no_text_are_shown_as_such():
    """A body that cannot be read is rejected like any other, and noted like any other."""
    assert "\ufffd" == redact_body(b"\xff", SECRETS, grant=False)


@pytest.mark.parametrize("body", [b"a", b'"code":', b'="', b"\\u0061", b'"code":"\\', b" &"], ids=str)
def test_a_long_body_is_masked_in_time(body):
    """The time grows as the body does: looked at over and over, one of this size would take hours, not seconds."""
    assert redact_body(body * (MIB // len(body)), SECRETS, grant=True)


def test_the_beginning_of_a_long_body_is_kept():
    """More of a request, which can be copied, than of a response."""
    feed, now = Feed(), datetime(2026, 1, 31, tzinfo=UTC)
    line = RequestLine(at=now, operation=None, method="POST", path="/", status=200, tenant=1, request_id="req-1")
    for size in (LONGEST_RESPONSE, LONGEST_BODY, LONGEST_BODY + 1):
        feed.log(msgspec.structs.replace(line, body="x" * size, response="y" * size))

    kept = [(len(one.body), len(one.response)) for one in feed.requests]
    assert [(4_096, 4_096), (16_384, 4_097), (16_385, 4_097)] == kept
    assert ("x…", "y…") == (feed.requests[2].body[-2:], feed.requests[2].response[-2:])
