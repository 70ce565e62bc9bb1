"""What goes over the wire for a call: its path, headers, key and body."""

from __future__ import annotations

import asyncio
import re
from enum import Enum
from uuid import UUID

import pytest

from paymentsdk import OPERATIONS, Operation, OutcomeUnknown, RequestInvalid, Response, RetryPolicy
from tests.engine.conftest import example_call, wallet_payment_request

ONCE = RetryPolicy(attempts=1)
GET = OPERATIONS["orders.get"]


# --- the request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_the_request_of_each_operation(play, operation: Operation) -> None:
    """Each operation goes out as it is declared: method, path, token, content type, key, unpacked responses only."""
    [request] = (await play(example_call(operation), Response(400))).requests

    assert operation.method == request.method
    path = re.sub(r"{\w+}", "[^/?]+", operation.path)
    assert re.fullmatch(rf"https://platform\.test{path}(\?.*)?", request.url)
    bearer = "Bearer APP_USR-9001-112304-0123456789abcdef-77" if operation.authenticated else None
    assert bearer == request.headers.get("Authorization")
    assert ("application/json", "identity") == (request.headers["Accept"], request.headers["Accept-Encoding"])
    assert ("application/json" if request.body else None) == request.headers.get("Content-Type")
    assert operation.keyed == ("X-Idempotency-Key" in request.headers)
    assert operation.max_response == request.max_response
    assert operation.wants_fresh_connection == request.fresh
    assert request.headers["User-Agent"].startswith("paymentsdk/")


@pytest.mark.parametrize("name", ["oauth.exchange_code", "oauth.refresh"])
async def test_the_token_endpoint_gets_no_token(play, jobs, name: str) -> None:
    """At the token endpoint the application's id and secret are all: no bearer token goes along."""
    [request] = (await play(name, jobs[name].response)).requests

    assert "Authorization" not in request.headers
    assert "application/json" == request.headers["Content-Type"]
    assert request.fresh


async def test_the_session_of_a_wallet_payment(make_client, transport, jobs) -> None:
    """The device of the buyer goes in a header whose name is a setting, since the real one carries a brand."""
    payment = wallet_payment_request()
    transport.replies(*[jobs["wallet_payments.create"].response] * 2)

    await make_client(transport=transport).wallet_payments.create(payment, session_id="device-1")
    await make_client(transport=transport, session_header="X-Brand-Id").wallet_payments.create(payment, session_id="d2")

    first, second = (request.headers for request in transport.requests)
    assert ("device-1", "d2") == (first["X-Platform-Session-Id"], second["X-Brand-Id"])
    assert "X-Brand-Id" not in first
    assert "X-Platform-Session-Id" not in second


@pytest.mark.parametrize("name", ["Authorization", "x-idempotency-key", "Accept-Encoding", "host", "Transfer-Encoding"])
async def test_headers_that_the_client_writes_itself(client, transport, name: str) -> None:
    """A header of the caller's cannot replace the token, the key that every error names, or where the body ends."""
    for attempt in (
        lambda: client.call(GET, order_id="ORD1", headers={name: "mine"}),
        lambda: asyncio.sleep(0, client.with_options(headers={name: "mine"})),
    ):
        with pytest.raises(RequestInvalid, match="set by the client itself") as rejected:
            await attempt()
        assert f"headers.{name}" == rejected.value.path
    assert [] == transport.requests


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"X Tag": "a"}, "headers"),
        ({5: "a"}, "headers"),
        ({"X-Tag": "a\r\nX-Idempotency-Key: b"}, "headers.X-Tag"),
        ({"X-Tag": "é"}, "headers.X-Tag"),
        ({"X-Tag": None}, "headers.X-Tag"),
        ({"X-Tag": "a" * 1025}, "headers.X-Tag"),
        (5, "headers"),
    ],
)
async def test_headers_that_cannot_be_sent(client, headers: dict[str, str], path: str) -> None:
    """A header that would break the request is rejected, and its value is not shown."""
    with pytest.raises(RequestInvalid) as rejected:
        await client.call(GET, order_id="ORD1", headers=headers)

    assert path == rejected.value.path


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_of_ones_own(client, transport, jobs) -> None:
    """A key that the caller brings is the key that goes out; without one, each call has a random one of its own."""
    transport.replies(*[jobs["orders.cancel"].response] * 4)

    await client.orders.cancel("ORD1", idempotency_key="my-key")
    await client.with_options(idempotency_key="of-the-copy").orders.cancel("ORD1")
    await client.orders.cancel("ORD1")
    await client.orders.cancel("ORD1")

    supplied, copied, *generated = (request.headers["X-Idempotency-Key"] for request in transport.requests)
    assert ("my-key", "of-the-copy") == (supplied, copied)
    assert 2 == len(set(generated))
    assert {32} == set(map(len, generated))


@pytest.mark.parametrize("key", ["", "a" * 65, "two words", "é", "line\n", 5])
async def test_a_key_that_cannot_be_sent(client, transport, key: object) -> None:
    """A string of 1 to 64 visible ASCII characters, or a UUID, is safe everywhere; all else is rejected here."""
    for rejected in (lambda: client.orders.cancel("ORD1", idempotency_key=key), lambda: options(client, key)):
        with pytest.raises(RequestInvalid, match="idempotency_key: must be a UUID, or 1 to 64 visible"):
            await rejected()
    assert [] == transport.requests


async def test_a_uuid_is_a_key(client, transport) -> None:
    """It goes out as text, from a call and from a copy, and the error has that text."""
    key = UUID(int=7)
    transport.replies(201, 201)

    for copy, options in ((client, {"idempotency_key": key}), (client.with_options(idempotency_key=key), {})):
        with pytest.raises(OutcomeUnknown) as unknown:
            await copy.with_options(retry=ONCE).orders.cancel("ORD1", **options)
        assert str(key) == unknown.value.idempotency_key

    assert [str(key)] * 2 == [request.headers["X-Idempotency-Key"] for request in transport.requests]


async def options(client, key: object) -> None:
    """Make a copy with a key."""
    client.with_options(idempotency_key=key)


class Named(str, Enum):  # noqa: UP042 - unlike a StrEnum, it writes itself with its name
    """Texts with names, as programs keep them for what they say often."""

    IT = "refund-7"


async def test_a_text_with_a_name_goes_out_as_the_text(client, transport, jobs) -> None:
    """A member of an Enum is the text that was looked at, in a key and in a header, and the error's key is that text.

    A key that goes out as ``Named.IT``, and is kept as ``refund-7`` to be sent again, moves the money twice.
    """
    transport.replies(201)

    with pytest.raises(OutcomeUnknown) as unknown:
        await client.with_options(retry=ONCE).call(
            OPERATIONS["orders.cancel"], order_id="ORD1", idempotency_key=Named.IT, headers={"X-Trace": Named.IT}
        )

    (request,) = transport.requests
    assert "refund-7 refund-7" == f"{request.headers['X-Idempotency-Key']} {request.headers['X-Trace']}"
    assert str is type(unknown.value.idempotency_key)


async def test_a_key_of_one_call_stays_with_it(client, transport, jobs) -> None:
    """The options of a call, or of a copy, never leak into the next call, another resource, or the original."""
    transport.replies(
        *[jobs["orders.cancel"].response] * 3, jobs["wallet_payments.create"].response, jobs["orders.get"].response
    )
    copy = client.with_options(idempotency_key="of-the-copy", headers={"X-Tag": "copy"})

    await client.orders.cancel("ORD1", idempotency_key="of-the-call")
    await copy.orders.cancel("ORD1")
    await client.orders.cancel("ORD1")
    await client.wallet_payments.create(wallet_payment_request())
    await copy.orders.get("ORD1")

    call, copied, *later, read = (request.headers for request in transport.requests)
    assert ("of-the-call", "of-the-copy") == (call["X-Idempotency-Key"], copied["X-Idempotency-Key"])
    assert all(headers["X-Idempotency-Key"] not in ("of-the-call", "of-the-copy") for headers in later)
    assert "X-Idempotency-Key" not in read
    assert [None, "copy", None, None, "copy"] == [headers.get("X-Tag") for headers in (call, copied, *later, read)]


async def test_a_header_is_sent_once_however_it_is_written(make_client, transport, jobs) -> None:
    """Names of fields have no case: what is nearer to the call replaces the others, and none goes out twice."""
    transport.replies(*[jobs["orders.get"].response] * 3)
    client = make_client(transport=transport, headers={"user-agent": "mine", "x-tag": "client"})

    await client.orders.get("ORD1")
    await client.with_options(headers={"X-TAG": "copy"}).orders.get("ORD1")
    await client.call(GET, order_id="ORD1", headers={"X-Tag": "call"})

    sent = [{name.lower(): value for name, value in request.headers.items()} for request in transport.requests]
    assert ["client", "copy", "call"] == [fields["x-tag"] for fields in sent]
    assert {"mine"} == {fields["user-agent"] for fields in sent}
    assert [len(fields) for fields in sent] == [len(request.headers) for request in transport.requests]
    assert all("'***'" in repr(request.headers) for request in transport.requests)


async def test_a_key_where_none_goes(client) -> None:
    """An operation without a key rejects one: it would promise what the platform does not keep."""
    with pytest.raises(RequestInvalid, match=r"orders\.get takes no idempotency key") as refused:
        await client.call(GET, order_id="ORD1", idempotency_key="my-key")

    assert "idempotency_key" == refused.value.path


async def test_a_name_is_not_an_operation(client, transport) -> None:
    """Whoever gives a name is told where the operation is."""
    with pytest.raises(RequestInvalid, match=r"such as OPERATIONS\['orders.get'\]"):
        await client.call("orders.get", order_id="ORD1")

    assert [] == transport.requests
