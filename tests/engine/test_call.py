"""What goes over the wire for a call, and what comes back: headers, identity, results, observers and the log."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import pickle
import re
from contextlib import nullcontext, suppress
from enum import Enum
from uuid import UUID
from weakref import ref

import anyio
import pytest

from paymentsdk import (
    OPERATIONS,
    APIError,
    Attempt,
    ClientClosed,
    NoAnswer,
    Operation,
    OutcomeUnknown,
    PaymentsError,
    RequestInvalid,
    Response,
    Result,
    RetryClass,
    RetryPolicy,
    SendFailed,
    Timeout,
)
from paymentsdk.resources.common import RequestStruct
from paymentsdk.resources.orders import Order, OrderRequest
from paymentsdk.resources.plans import Plan
from paymentsdk.testing import FakeClock, MemoryTransport

ONCE = RetryPolicy(attempts=1)
GET = OPERATIONS["orders.get"]
SILENT = logging.getLogger("paymentsdk")


# --- the request ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name != "oauth.token"])
async def test_the_request_of_each_operation(play, jobs, name: str) -> None:
    """Each operation goes out as it is declared: method, path, token, content type, key, and unpacked answers only."""
    operation = OPERATIONS[name]

    [request] = (await play(name, jobs[name].answer)).requests

    assert operation.method == request.method
    path = re.sub(r"{\w+}", "[^/?]+", operation.path)
    assert re.fullmatch(rf"https://platform\.test{path}(\?.*)?", request.url)
    assert "Bearer APP_USR-9001-112304-0123456789abcdef-77" == request.headers["Authorization"]
    assert ("application/json", "identity") == (request.headers["Accept"], request.headers["Accept-Encoding"])
    assert ("application/json" if request.body else None) == request.headers.get("Content-Type")
    assert operation.keyed == ("X-Idempotency-Key" in request.headers)
    assert operation.max_response == request.max_response
    assert operation.wants_fresh_connection == request.fresh
    assert request.headers["User-Agent"].startswith("paymentsdk/")


@pytest.mark.parametrize("name", ["oauth.exchange_code", "oauth.refresh"])
async def test_the_token_endpoint_gets_no_token(play, jobs, name: str) -> None:
    """At the token endpoint the application's id and secret are all: no bearer token goes along."""
    [request] = (await play(name, jobs[name].answer)).requests

    assert "Authorization" not in request.headers
    assert "application/json" == request.headers["Content-Type"]
    assert request.fresh


async def test_what_cannot_be_repeated_travels_on_a_fresh_connection(play, jobs) -> None:
    """A kept connection may be closed at the moment it is used: writes without a key get one of their own."""
    fresh = {name: (await play(name, job.answer)).requests[0].fresh for name, job in jobs.items()}

    assert {"preferences.create", "customers.create", "oauth.exchange_code", "oauth.refresh"} == {
        name for name, asked in fresh.items() if asked
    }


async def test_the_session_of_a_wallet_payment(make_client, transport, jobs) -> None:
    """The device of the buyer goes in a header whose name is a setting, since the real one carries a brand."""
    payment = wallet_payment()
    transport.replies(*[jobs["wallet_payments.create"].answer] * 2)

    await make_client(transport=transport).wallet_payments.create(payment, session_id="device-1")
    await make_client(transport=transport, session_header="X-Brand-Id").wallet_payments.create(payment, session_id="d2")

    first, second = (request.headers for request in transport.requests)
    assert ("device-1", "d2") == (first["X-Platform-Session-Id"], second["X-Brand-Id"])
    assert "X-Brand-Id" not in first
    assert "X-Platform-Session-Id" not in second


def wallet_payment() -> object:
    """A payment from a wallet."""
    from msgspec import convert

    from paymentsdk.resources.wallet_payments import WalletPaymentRequest

    return convert(
        {
            "wallet_payment": {"transaction_amount": "24.90", "external_reference": "shop-1"},
            "payer": {"token": "payer-token-01", "type_token": "w"},
        },
        WalletPaymentRequest,
    )


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "x-idempotency-key",
        "CONTENT-TYPE",
        "Accept-Encoding",
        "host",
        "Connection",
        "content-length",
        "Transfer-Encoding",
    ],
)
async def test_headers_that_the_client_writes_itself(client, transport, name: str) -> None:
    """A header of the caller's cannot replace the token, the key that every error names, or where the body ends."""
    for attempt in (
        lambda: client.call(GET, order_id="ORD1", headers={name: "mine"}),
        lambda: asyncio.sleep(0, client.with_options(headers={name: "mine"})),
    ):
        with pytest.raises(RequestInvalid, match="set by the client itself") as refused:
            await attempt()
        assert f"headers.{name}" == refused.value.path
    assert [] == transport.requests


@pytest.mark.parametrize(
    ("headers", "path"),
    [
        ({"X Tag": "a"}, "headers"),
        ({"X-Tag\n": "a"}, "headers"),
        ({"": "a"}, "headers"),
        ({5: "a"}, "headers"),
        ({"X-Tag": "a\r\nX-Idempotency-Key: b"}, "headers.X-Tag"),
        ({"X-Tag": ""}, "headers.X-Tag"),
        ({"X-Tag": "é"}, "headers.X-Tag"),
        ({"X-Tag": None}, "headers.X-Tag"),
        ({"X-Tag": "a" * 1025}, "headers.X-Tag"),
        (5, "headers"),
        ([("X-Tag", "a")], "headers"),
    ],
)
async def test_headers_that_cannot_be_sent(client, headers: dict[str, str], path: str) -> None:
    """A header that would break the request is refused, and its value is not shown."""
    with pytest.raises(RequestInvalid) as refused:
        await client.call(GET, order_id="ORD1", headers=headers)

    assert path == refused.value.path


# --- keys -------------------------------------------------------------------------------------------------------------


async def test_a_key_of_ones_own(client, transport, jobs) -> None:
    """A key that the caller brings is the key that goes out; without one, each call has a random one of its own."""
    transport.replies(*[jobs["orders.cancel"].answer] * 4)

    await client.orders.cancel("ORD1", idempotency_key="my-key")
    await client.with_options(idempotency_key="of-the-copy").orders.cancel("ORD1")
    await client.orders.cancel("ORD1")
    await client.orders.cancel("ORD1")

    mine, copied, *rest = (request.headers["X-Idempotency-Key"] for request in transport.requests)
    assert ("my-key", "of-the-copy") == (mine, copied)
    assert 2 == len(set(rest))
    assert {32} == set(map(len, rest))


@pytest.mark.parametrize("key", ["", "a" * 65, "two words", "é", "line\n", 5, UUID(int=7)])
async def test_a_key_that_cannot_be_sent(client, transport, key: object) -> None:
    """A text of 1 to 64 visible ASCII characters is safe everywhere; anything else is refused here, a UUID as well."""
    for refused in (lambda: client.orders.cancel("ORD1", idempotency_key=key), lambda: options(client, key)):
        with pytest.raises(RequestInvalid, match="idempotency_key: must be 1 to 64 visible"):
            await refused()
    assert [] == transport.requests


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


async def test_a_key_where_none_goes(client) -> None:
    """An operation without a key refuses one: it would promise what the platform does not keep."""
    with pytest.raises(RequestInvalid, match=r"orders\.get takes none"):
        await client.call(GET, order_id="ORD1", idempotency_key="my-key")


async def test_a_key_of_one_call_stays_with_it(client, transport, jobs) -> None:
    """The options of a call, or of a copy, never leak into the next call, another resource, or the original."""
    transport.replies(
        *[jobs["orders.cancel"].answer] * 3, jobs["wallet_payments.create"].answer, jobs["orders.get"].answer
    )
    copy = client.with_options(idempotency_key="of-the-copy", headers={"X-Tag": "copy"})

    await client.orders.cancel("ORD1", idempotency_key="of-the-call")
    await copy.orders.cancel("ORD1")
    await client.orders.cancel("ORD1")
    await client.wallet_payments.create(wallet_payment())
    await copy.orders.get("ORD1")

    call, copied, *later, read = (request.headers for request in transport.requests)
    assert ("of-the-call", "of-the-copy") == (call["X-Idempotency-Key"], copied["X-Idempotency-Key"])
    assert all(headers["X-Idempotency-Key"] not in ("of-the-call", "of-the-copy") for headers in later)
    assert "X-Idempotency-Key" not in read
    assert [None, "copy", None, None, "copy"] == [headers.get("X-Tag") for headers in (call, copied, *later, read)]


async def test_a_header_is_sent_once_however_it_is_written(make_client, transport, jobs) -> None:
    """Names of fields have no case: what is nearer to the call replaces the others, and none goes out twice."""
    transport.replies(*[jobs["orders.get"].answer] * 3)
    client = make_client(transport=transport, headers={"user-agent": "mine", "x-tag": "client"})

    await client.orders.get("ORD1")
    await client.with_options(headers={"X-TAG": "copy"}).orders.get("ORD1")
    await client.call(GET, order_id="ORD1", headers={"X-Tag": "call"})

    sent = [{name.lower(): value for name, value in request.headers.items()} for request in transport.requests]
    assert ["client", "copy", "call"] == [fields["x-tag"] for fields in sent]
    assert {"mine"} == {fields["user-agent"] for fields in sent}
    assert [len(fields) for fields in sent] == [len(request.headers) for request in transport.requests]
    assert all("'***'" in repr(request.headers) for request in transport.requests)


ADVICE = {
    "release_reports.disable_schedule": "send it again: twice does no harm",
    "customers.create": "send it again: a customer who exists is refused",
    "preferences.create": "send it again: a preference costs nothing",
    "oauth.exchange_code": "do not send it again: the code may be spent",
    "oauth.refresh": "refresh again: if the refresh token is spent",
}


@pytest.mark.parametrize("name", ADVICE)
async def test_a_write_without_a_key_says_what_to_do_about_it(play, name: str) -> None:
    """The contract has no operation to look with: each says what a caller can do instead, also after a pickle."""
    played = await play(name, SendFailed("reset"), SendFailed("reset"), retry=ONCE)

    assert None is played.error.idempotency_key
    assert str(played.error) == str(pickle.loads(pickle.dumps(played.error)))
    assert f"; {ADVICE[name]}" in str(played.error)


# --- identity ---------------------------------------------------------------------------------------------------------

FOREIGN = ["orders.get", "orders.create", "orders.cancel", "orders.refund", "plans.get",
           "wallet_payments.create", "customers.create", "preferences.create"]  # fmt: skip


@pytest.mark.control("paymentsdk.Operation.identity", property(lambda operation: None))
@pytest.mark.parametrize("name", FOREIGN)
async def test_an_answer_to_someone_else_is_none(play, jobs, name: str) -> None:
    """Bytes that were left on a connection answer the next request: a foreign answer is never taken for our own."""
    await assert_foreign(play, jobs, name)


def any_page(read):
    """Take every response for the page that was asked for."""

    def read_any(self, answer):
        page = read(self, answer)
        return page._replace(items=page.items or (), offset=None)

    return read_any


@pytest.mark.control("paymentsdk.PageShape.read", around=any_page)
@pytest.mark.parametrize("name", ["invoices.search", "merchant_orders.search"])
async def test_a_page_that_was_not_asked_for_is_none(play, jobs, name: str) -> None:
    """A page at another offset, or a response without rows, is never taken for the page of this request."""
    await assert_foreign(play, jobs, name)


async def assert_foreign(play, jobs, name: str) -> None:
    """Call *name*, and have the response to another request."""
    played = await play(name, jobs[name].foreign, retry=ONCE)

    assert (OutcomeUnknown if OPERATIONS[name].writes else NoAnswer) is type(played.error)
    assert "the answer is" in played.error.reason or "the response is about another" in played.error.reason


NO_PAGES = [
    b"{}",
    b'{"id":"ORD1","status":"created"}',
    b'{"error":"boom","status":500}',
    b'{"results":"busy","elements":"busy","paging":{"total":70},"total":70}',
    b'{"results":5,"elements":5,"paging":{"total":70},"total":70}',
]


@pytest.mark.parametrize("body", NO_PAGES)
@pytest.mark.parametrize("name", ["merchant_orders.search", "invoices.search", "plans.search"])
async def test_what_is_no_page_is_not_the_end_of_a_walk(play, name: str, body: bytes) -> None:
    """A search that answers with something else has not answered: it does not count as one without rows."""
    played = await play(name, Response(200, {}, body), retry=ONCE)

    assert NoAnswer is type(played.error)
    assert "is not a page" in played.error.reason


@pytest.mark.parametrize(("offset", "is_page"), [(0, True), (50, False)])
@pytest.mark.parametrize("query", [None, {"limit": 2}])
async def test_a_search_that_asks_for_no_offset_asks_for_the_first_page(
    play, query: dict[str, int] | None, offset: int, *, is_page: bool
) -> None:
    """Whoever makes the call without an offset is answered with the page at 0, and with no other."""
    body = f'{{"paging":{{"offset":{offset},"total":70}},"results":[{{"id":"1"}}]}}'
    search = OPERATIONS["invoices.search"]

    played = await play(lambda client: client.call(search, query=query), Response(200, {}, body.encode()), retry=ONCE)

    assert is_page == (played.error is None)


@pytest.mark.parametrize(("following", "is_page"), [("0", True), ("100", False), ("null", False)])
async def test_an_end_may_have_no_total(play, following: str, *, is_page: bool) -> None:
    """An offset that leads nowhere ends a search, even where rows and total are null; one that leads on does not."""
    body = f'{{"elements":null,"next_offset":{following},"total":null}}'

    played = await play("merchant_orders.search", Response(200, {}, body.encode()), retry=ONCE)

    assert is_page == (played.error is None)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("invoices.search", b'{"results":null,"paging":{"offset":0,"total":0}}'),
        ("invoices.search", b'{"results":null,"paging":{"offset":0,"total":0,"limit":"many"}}'),
        ("merchant_orders.search", b'{"elements":null,"next_offset":0,"total":"0"}'),
    ],
    ids=["null", "odd-below", "mended-beside"],
)
async def test_an_end_may_have_no_rows(play, name: str, body: bytes) -> None:
    """A search that finds nothing may say so with null for its rows, whatever is odd elsewhere in the answer."""
    played = await play(name, Response(200, {}, body), retry=ONCE)

    assert (None, None) == (played.value, played.error)


@pytest.mark.parametrize(("status", "strict", "requests"), [("", False, 2), ("created", True, 2), ("", True, 1)])
async def test_a_foreign_answer_is_asked_for_again(play, jobs, *, status: str, strict: bool, requests: int) -> None:
    """What belongs to another request is asked for again, be it crooked or not; only `strict` gives up on crooked."""
    foreign = f'{{"id":"ORD2","external_reference":"shop-2","status":"{status}"}}'

    played = await play(
        "orders.create", Response(201, {}, foreign.encode()), jobs["orders.create"].answer, strict=strict
    )

    assert (requests, requests == 1) == (len(played.requests), played.is_unknown())


async def test_an_answer_within_a_wallet_payment(play, jobs) -> None:
    """The parts of a wallet payment say whose it is, even when it does not echo what was asked for."""
    foreign = Response(201, {}, b'{"id":1,"payments":[{"id":2,"external_reference":"shop-2"}]}')
    ours = Response(201, {}, b'{"id":1,"payments":[{"id":2,"external_reference":"shop-1"}]}')

    assert (await play("wallet_payments.create", foreign, retry=ONCE)).is_unknown()
    assert (await play("wallet_payments.create", ours, retry=ONCE)).error is None


@pytest.mark.control("paymentsdk._engine.failures.settles", lambda errors, status, codes, *, random_key: True)
@pytest.mark.parametrize("name", ["release_reports.disable_schedule", "preferences.create"])
async def test_a_refusal_of_what_may_be_done_already(play, name: str) -> None:
    """Without a key a refusal after a doubt settles nothing: what is gone, or there, may be the work of the first."""
    played = await play(name, SendFailed("reset"), Response(404, {}, b"{}"), retry=RetryPolicy(retry_unkeyed=True))

    assert played.is_unknown()
    assert 404 == played.error.last_error.status


async def test_headers_that_change_during_a_call(make_client) -> None:
    """All attempts go out with what was given, whatever the caller does to it in the meantime."""
    given = {"X-Tag": "a"}

    def change(request) -> Response:
        given["X-Idempotency-Key"] = "another"
        given["X-Tag"] = "b"
        return Response(200, {}, b'{"id":"ORD1"}') if transport.requests[1:] else Response(503)

    transport = MemoryTransport(change)
    await make_client(transport=transport).call(
        OPERATIONS["orders.cancel"], order_id="ORD1", idempotency_key="k-1", headers=given
    )

    assert [("a", "k-1")] * 2 == [
        (request.headers["X-Tag"], request.headers["X-Idempotency-Key"]) for request in transport.requests
    ]


async def test_what_is_refused_here_names_its_operation(client) -> None:
    """An error of a call says which, even when nothing was sent."""
    with pytest.raises(RequestInvalid) as refused:
        await client.orders.get("no/id")

    assert "orders.get" == refused.value.operation


async def test_the_name_of_an_operation_is_none(client, transport) -> None:
    """Whoever gives a name is told where the operation is."""
    with pytest.raises(RequestInvalid, match=r"such as OPERATIONS\['orders.get'\]"):
        await client.call("orders.get", order_id="ORD1")

    assert [] == transport.requests


async def test_an_error_says_what_happened_at_first(play) -> None:
    """The last attempt alone can hide why there was more than one."""
    broken = SendFailed("the connection broke", sent=True)

    played = await play("orders.get", broken, SendFailed("no connection", sent=False), retry=RetryPolicy(attempts=2))

    assert "no answer: no connection (at first: the connection broke)" == str(played.error)


async def test_what_happened_at_first_is_the_last_where_there_is_no_other(play) -> None:
    """An error that leaves a write in doubt says what happened at first, also where only its end is in doubt."""
    turned = await play("orders.cancel", SendFailed("no connection", sent=False), Response(307))

    assert turned.is_unknown()
    assert turned.error.reason == turned.error.first_reason
    assert "at first" not in str(turned.error)


@pytest.mark.parametrize("answer", [None, "200 OK"])
async def test_a_transport_that_answers_nonsense(make_client, answer: object) -> None:
    """What is no response is no answer: the caller of a write still gets the key."""

    class Broken(MemoryTransport):
        async def send(self, request) -> object:
            return answer

    with pytest.raises(OutcomeUnknown) as unknown:
        await make_client(transport=Broken(), retry=ONCE).orders.cancel("ORD1")

    assert unknown.value.idempotency_key


class Weighed(Response, frozen=True, weakref=True):
    """An answer of which a test can see whether it is still there."""


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_an_error_that_is_kept_does_not_keep_the_answer(make_client, status: int) -> None:
    """Who collects the errors of a large job has the beginning of each body, and not all of them in memory."""
    answers = []

    async def answer(request: object) -> Response:
        made = Weighed(status, {}, b"<html>" + b"." * 10_000)
        answers.append(ref(made))
        return made

    transport = MemoryTransport(answer)
    with pytest.raises(PaymentsError) as kept:
        await make_client(transport=transport).orders.get("ORD1")
    transport.discarded.clear()  # The transport of a test keeps them.
    gc.collect()

    assert kept.value.__traceback__
    assert [] == [one for one in answers if one() is not None]


async def test_an_answer_that_says_little_is_taken(play) -> None:
    """What the answer does not say cannot be wrong: an id alone is enough."""
    assert (await play("orders.create", Response(201, {}, b'{"id":"ORD1"}'))).error is None


@pytest.mark.parametrize("name", ["orders.create", "preferences.create", "customers.create", "wallet_payments.create"])
async def test_an_id_of_no_characters_is_none(play, name) -> None:
    """An answer that names nothing, whether by leaving its id out or by an empty one, does not say that all is well."""
    nameless = await play(name, Response(201, {}, b'{"id":""}'), retry=ONCE)
    null = await play(name, Response(201, {}, b'{"id":null}'), retry=ONCE)

    assert nameless.is_unknown()
    assert nameless.error.reason == null.error.reason == "HTTP 201, but the body has no usable 'id'"


async def test_a_defect_in_reading_does_not_cost_the_key(play, monkeypatch) -> None:
    """Whatever goes wrong in here after a write was sent: the caller gets the key, and not an exception of ours."""
    operation = OPERATIONS["orders.cancel"]
    monkeypatch.setitem(vars(operation), "decoder", None)

    played = await play("orders.cancel", Response(200, {}, b'{"id":"ORD1"}'), retry=ONCE)

    assert played.is_unknown()
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("HTTP 200, but reading it raised AttributeError (call.py:")


@pytest.mark.parametrize("body", [None, "text", 7.5])
async def test_a_refusal_whose_body_is_no_bytes_does_not_cost_the_key(play, body) -> None:
    """A transport of one's own that brings back no bytes with a 503 leaves a write in doubt, and its key with it."""
    played = await play("orders.cancel", Response(503, {}, body), retry=ONCE)

    assert played.is_unknown()
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("HTTP 503, but reading it raised TypeError (error_response.py:")


@pytest.mark.parametrize("headers", [None, [("X-Request-Id", "r-1")], {"X-Request-Id": None}, {7: "a"}])
async def test_headers_that_are_none_do_not_cost_an_answer(play, headers) -> None:
    """What a transport of one's own brings back with fields that nobody can read is still the answer it is."""
    good = await play("orders.cancel", Response(200, headers, b'{"id":"ORD1"}'), retry=ONCE)
    bad = await play("orders.cancel", Response(404, headers, b'{"code":"order_not_found"}'), retry=ONCE)

    assert (None, None) == (good.error, bad.error.request_id)
    assert (404, "order_not_found") == (bad.error.status, bad.error.code)


# --- the result -------------------------------------------------------------------------------------------------------


async def test_the_result_of_a_call(make_client, clock) -> None:
    """`call` gives all that is known: value, status, headers, request id, attempts, time, key and body."""
    body = b'{"id":"ORD1"}'
    transport = MemoryTransport([Response(503), Response(200, {"x-request-id": "r-1"}, body)])
    client = make_client(transport=transport)
    clock.advance(86_400)  # Times count from the call.

    result = await client.call(
        OPERATIONS["orders.cancel"], order_id="ORD1", idempotency_key="k-1", headers={"X-Tag": "a"}
    )

    assert isinstance(result, Result)
    assert ("ORD1", 200, "r-1", 2, "k-1") == (
        result.value.id,
        result.status,
        result.request_id,
        result.attempts,
        result.idempotency_key,
    )
    assert (body, ()) == (result.raw, result.anomalies)
    assert clock.slept == pytest.approx([result.elapsed], abs=1e-6)
    assert "Result(Order(id='ORD1'" in repr(result)
    assert {"a"} == {request.headers["X-Tag"] for request in transport.requests}


async def test_any_2xx_is_a_success(play) -> None:
    """A platform may answer 200 where 201 is documented, and the other way round; nothing else is a success."""
    for status in (200, 201, 202, 204, 299):
        assert (await play("orders.get", Response(status, {}, b'{"id":"ORD1"}'))).error is None
    for status in (199, 300):
        assert status == (await play("orders.get", Response(status, {}, b'{"id":"ORD1"}'))).error.status


# --- observers --------------------------------------------------------------------------------------------------------


async def test_an_observer_learns_of_every_attempt(make_client, clock) -> None:
    """An observer is told of each attempt, with what went wrong, and of the success in the end."""
    seen: list[Attempt] = []
    steps = [
        SendFailed("connection reset"),
        Response(503, {"X-Request-Id": "r-2"}),
        Response(200, {}, b'{"id":"ORD1"}'),
    ]
    client = make_client(transport=MemoryTransport(steps), observer=seen.append)

    await client.orders.cancel("ORD1", idempotency_key="k-1")

    assert [
        (1, None, "connection reset", None),
        (2, 503, "503 Service Unavailable [request r-2]", "r-2"),
        (3, 200, None, None),
    ] == [(attempt.number, attempt.status, attempt.failure, attempt.request_id) for attempt in seen]
    assert {("orders.cancel", "k-1")} == {(attempt.operation, attempt.idempotency_key) for attempt in seen}
    assert [0.0, 0.0, 0.0] == [attempt.elapsed for attempt in seen]  # The pauses belong to no attempt.


async def test_a_call_that_is_cancelled_leaves_its_key(make_client, until, caplog) -> None:
    """Whoever is cancelled gets no error of ours: the key is in a note and in the log, and the observer is told."""
    seen, arrived = [], asyncio.Event()

    async def forever(request) -> Response:
        arrived.set()
        await asyncio.Event().wait()

    client = make_client(transport=MemoryTransport(forever), observer=seen.append)
    call = asyncio.create_task(client.orders.cancel("ORD1", idempotency_key="k-1"))
    await arrived.wait()

    call.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await call

    assert ["orders.cancel was sent, with idempotency_key='k-1'"] == cancelled.value.__notes__
    assert "cancelled after it was sent (idempotency_key='k-1')" in caplog.text
    assert [(1, "cancelled", "k-1")] == [(one.number, one.failure, one.idempotency_key) for one in seen]


async def test_the_key_of_a_cancelled_call_is_in_the_log_at_once(make_client, until, caplog) -> None:
    """A loop that is being stopped may have no turn left for a call: its key is told before it waits for one."""
    transport = MemoryTransport(lambda _: asyncio.Event().wait())
    call = asyncio.create_task(make_client(transport=transport).orders.cancel("ORD1", idempotency_key="k-1"))
    await until(lambda: transport.requests)

    call.cancel()
    told = []
    while not call.done():
        await asyncio.sleep(0)
        told.append("(idempotency_key='k-1')" in caplog.text and not call.done())

    assert any(told)


async def test_a_cancelled_call_leaves_nothing_behind(make_client) -> None:
    """Its body and its token are gone with its error: they are in no circle that waits for the garbage collector."""
    transport = MemoryTransport(lambda _: asyncio.Event().wait())
    client = make_client(transport=transport)
    asking = []

    async def ask() -> None:
        asking.append(ref(asyncio.current_task()))
        with suppress(TimeoutError):
            async with asyncio.timeout(0):
                await client.orders.cancel("ORD1")

    gc.disable()
    try:
        await asyncio.create_task(ask())
        await asyncio.sleep(0)  # What wakes us holds the task as well.
        assert None is asking[0]()
    finally:
        gc.enable()


async def at_once(self: object, cancelled: asyncio.CancelledError) -> None:
    """Take the words of a transport."""


@pytest.mark.control("paymentsdk._engine.call.Call._log_cancelled", at_once, raises=asyncio.CancelledError)
async def test_a_scope_of_anyio_ends_a_call(make_client) -> None:
    """Whoever calls in a cancel scope goes on behind it, also if the transport cancels in words of its own."""
    scope = anyio.CancelScope()

    class InOtherWords(MemoryTransport):
        async def send(self, request) -> Response:
            scope.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise asyncio.CancelledError("request was cancelled")

    client = make_client(transport=InOtherWords())
    with scope:
        await client.orders.cancel("ORD1")

    assert scope.cancelled_caught
    assert 0 == asyncio.current_task().cancelling()


class Swallows(MemoryTransport):
    """A transport that takes a cancellation for its own, and answers all the same."""

    async def send(self, request) -> Response:
        try:
            await asyncio.Event().wait() if not self.requests else None
        except asyncio.CancelledError:
            self.requests.append(request)
            return Response(503)
        return await super().send(request)


@pytest.mark.control("paymentsdk._engine.deadline.Deadline.cancelled_by_others", lambda self: False)
async def test_nothing_more_is_sent_for_a_task_that_was_cancelled(make_client, until) -> None:
    """A transport that swallows a cancellation does not have a write sent again by a task that was cancelled."""
    transport = Swallows([Response(200, {}, b'{"id":"ORD1"}')])
    call = asyncio.create_task(make_client(transport=transport).orders.cancel("ORD1"))
    for _ in range(10):
        await asyncio.sleep(0)

    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    assert 1 == len(transport.requests)


async def test_a_refusal_that_is_cancelled_in_its_pause_is_no_doubt(make_client, clock, caplog) -> None:
    """What was refused unprocessed has not happened: whoever cancels the pause after it is told of no doubt."""

    async def sleep(seconds: float) -> None:
        call.cancel()
        await asyncio.Event().wait()

    clock.sleep = sleep
    call = asyncio.create_task(make_client(Response(429)).orders.cancel("ORD1"))

    with pytest.raises(asyncio.CancelledError) as cancelled:
        await call

    assert not hasattr(cancelled.value, "__notes__")
    assert "unknown" not in caplog.text


async def test_the_observer_counts_requests(make_client, clock, caplog) -> None:
    """A failure that leaves no request to be made has the number 0: nothing is counted twice, nor by who reads logs."""
    caplog.set_level(logging.INFO)
    seen = []

    async def sleep(seconds: float) -> None:
        await client.aclose()

    clock.sleep = sleep
    client = make_client(Response(503), observer=seen.append)
    with pytest.raises(OutcomeUnknown):
        await client.orders.cancel("ORD1")

    assert [(1, 503), (0, None)] == [(attempt.number, attempt.status) for attempt in seen]
    assert ["attempt 1", "no request"] == [line.split(": ")[1] for line in caplog.messages[:2]]


@pytest.mark.parametrize("answer", [200, 400])
async def test_an_observer_that_raises_changes_nothing(make_client, caplog, answer: int) -> None:
    """An observer with a defect must not turn money that moved into an error: it is logged, and dropped."""

    def observe(attempt: Attempt) -> None:
        raise LookupError("a defect")

    client = make_client(Response(answer, {}, b'{"id":"ORD1"}'), observer=observe)

    with pytest.raises(PaymentsError) if answer == 400 else nullcontext():
        await client.orders.cancel("ORD1")

    assert ["orders.cancel: an observer raised"] == [record.message for record in caplog.records]


# --- the log ----------------------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk.errors.visible", lambda text: text)
async def test_a_refusal_is_one_line_of_the_log(make_client, caplog) -> None:
    """What the platform says begins no line of its own there, and steers no terminal."""
    caplog.set_level(logging.DEBUG, "paymentsdk")
    body = b'{"code":"no\\u001b[2J","message":"no\\nCRITICAL forged"}'

    with pytest.raises(APIError):
        await make_client(Response(400, {"X-Request-Id": "1\x1b[31m"}, body)).orders.cancel("ORD1")

    assert all(record.message.isprintable() for record in caplog.records)
    assert "forged" in caplog.text


async def test_the_log_tells_of_every_attempt(make_client, caplog) -> None:
    """DEBUG for a success, INFO for a failure, WARNING for an unknown outcome; the facts are in the extras."""
    caplog.set_level(logging.DEBUG, "paymentsdk")
    refused, ok = Response(503, {"X-Request-Id": "r-1"}), Response(200, {}, b'{"id":"ORD1"}')
    client = make_client(refused, ok, SendFailed("50 % lost"))

    await client.orders.cancel("ORD1", idempotency_key="k-1")
    with pytest.raises(OutcomeUnknown):
        await client.with_options(retry=ONCE).orders.cancel("ORD1", idempotency_key="k-2")

    unknown = "orders.cancel: the outcome is unknown: 50 % lost (idempotency_key='k-2')"
    assert [
        (logging.INFO, "orders.cancel: attempt 1: 503 Service Unavailable [request r-1]", 1, 503, "r-1", "k-1"),
        (logging.DEBUG, "orders.cancel: attempt 2: success", 2, 200, None, "k-1"),
        (logging.INFO, "orders.cancel: attempt 1: 50 % lost", 1, None, None, "k-2"),
        (logging.WARNING, unknown, 1, None, None, "k-2"),
    ] == [
        (
            record.levelno,
            record.message,
            record.payments_number,
            record.payments_status,
            record.payments_request_id,
            record.payments_idempotency_key,
        )
        for record in caplog.records
    ]
    assert {"orders.cancel"} == {record.payments_operation for record in caplog.records}
    assert all(record.payments_elapsed >= 0 for record in caplog.records)


@pytest.mark.control("paymentsdk._codec.anomaly.MOST_REPORTS", 10**6)
async def test_the_log_counts_what_it_does_not_name(make_client, caplog) -> None:
    """A page that is odd in every row is told in a hundred lines and one, which says how many more there were."""
    rows = ",".join(f'{{"id":"{number}","status":5}}' for number in range(250))
    page = b'{"paging":{"offset":0,"total":250},"results":[%s]}' % rows.encode()

    result = await make_client(Response(200, {}, page)).call(OPERATIONS["invoices.search"])
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]

    assert 100 + 1 == len(result.anomalies)
    assert 100 + 1 == len(said)
    assert (
        "invoices.search: $.results[100].status: and 150 more did not follow the contract, such as this one" == said[-1]
    )


async def test_the_log_is_silent_by_default(play, capfd) -> None:
    """A program that sets up no logging sees nothing, whatever happens."""
    assert any(isinstance(handler, logging.NullHandler) for handler in SILENT.handlers)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SILENT, "propagate", False)
        await play("orders.cancel", SendFailed("reset"), retry=ONCE)

    assert ("", "") == capfd.readouterr()


# --- a client that is open, and here -----------------------------------------------------------------------------


async def test_a_call_needs_an_open_client_of_this_loop(client, transport) -> None:
    """Neither a closed client nor one of another event loop sends anything, and both say so in their own words."""
    client._state.loop = asyncio.new_event_loop()
    with pytest.raises(ClientClosed, match="another event loop") as elsewhere:
        await client.orders.get("ORD1")
    client._state.loop.close()

    await client.aclose()
    with pytest.raises(ClientClosed, match="the client is closed") as closed:
        await client.orders.get("ORD1")
    assert ("orders.get", "orders.get") == (elsewhere.value.operation, closed.value.operation)
    assert [] == transport.requests


@pytest.mark.control("paymentsdk._engine.client_state.ClientState.close", lambda self: setattr(self, "closed", True))
@pytest.mark.parametrize(("first", "end"), [(SendFailed("reset"), OutcomeUnknown), (Response(429), ClientClosed)])
async def test_closing_wakes_those_that_wait_for_their_next_attempt(make_client, until, first, end) -> None:
    """A call that pauses when its client is closed ends at once, with the truth about the attempt before."""
    clock = FakeClock()
    clock.sleep = lambda seconds: asyncio.Event().wait()
    hours = RetryPolicy(base_delay=3600, max_delay=3600)
    client = make_client(first, clock=clock, retry=hours, timeout=Timeout(total=None))
    call = asyncio.create_task(client.orders.cancel("ORD1"))
    await until(lambda: client._state._pausing)

    await client.aclose()
    for _ in range(10):
        await asyncio.sleep(0)
    in_time = call.done()
    call.cancel()
    await asyncio.wait([call])

    assert in_time
    assert (end, 1) == (type(call.exception()), call.exception().attempts)
    assert set() == client._state._pausing


async def test_a_call_that_fails_after_its_client_was_closed_does_not_pause(make_client, clock) -> None:
    """Closing lets an attempt end; there will be no other, and nothing to wait for."""

    async def close_first(request) -> Response:
        await client.aclose()
        return Response(503)

    client = make_client(close_first)

    with pytest.raises(OutcomeUnknown) as unknown:
        await client.orders.cancel("ORD1")

    assert ([], 1) == (clock.slept, unknown.value.attempts)


# --- transports -------------------------------------------------------------------------------------------------------


async def test_a_transport_that_is_closed_says_so(play) -> None:
    """A transport that belongs to another loop, or is closed, sent nothing; a doubt from before stays one."""
    closed = ClientClosed("the session is closed")

    class Closing(MemoryTransport):
        async def send(self, request) -> Response:
            self.requests.append(request)
            raise SendFailed("reset") if len(self.requests) == 1 and self.doubtful else closed

    at_once, later = Closing(), Closing()
    at_once.doubtful, later.doubtful = False, True

    first, second = await play("orders.cancel", transport=at_once), await play("orders.cancel", transport=later)

    assert (ClientClosed, str(closed)) == (type(first.error), str(first.error))
    assert (OutcomeUnknown, ClientClosed) == (type(second.error), type(second.error.last_error))
    # It is as closed a moment later.
    assert [(1, 0), (2, 1)] == [(len(played.requests), len(played.slept)) for played in (first, second)]


async def test_an_operation_whose_answer_nothing_can_decode_is_not_sent(client, transport) -> None:
    """The author of an operation learns of it before a write, not from an outcome that nobody knows."""
    declared = {"section": "", "summary": "", "retry": RetryClass.KEYED, "result": Order | Plan}
    operation = Operation(name="shops.create", method="POST", path="/v1/shops", **declared)

    with pytest.raises(TypeError, match="type union"):
        await client.call(operation)

    assert [] == transport.requests


class Bundle(RequestStruct):
    """A body that holds itself."""

    name: str
    bundle: Bundle | None = None


async def test_an_operation_whose_body_holds_itself_is_refused(client, transport) -> None:
    """Nothing could check such a body: the author of the operation is told, and nothing is sent."""
    declared = {"section": "", "summary": "", "retry": RetryClass.KEYED, "result": Order, "body": Bundle}
    operation = Operation(name="bundles.create", method="POST", path="/v1/bundles", **declared)

    with pytest.raises(RequestInvalid, match="recursive type") as refused:
        await client.call(operation, Bundle(name="x"))

    assert ("bundles.create.body", []) == (refused.value.path, transport.requests)


async def test_whatever_a_transport_raises(play) -> None:
    """An exception that a transport should not have raised may have come after the request went out: its place is told.

    Its text is not: nobody knows what is in it.
    """
    played = await play("orders.cancel", transport=Broken())

    assert played.is_unknown()
    assert re.fullmatch(r"the transport raised OSError \(test_call.py:[0-9]+ in send\)", played.error.reason)


class Broken(MemoryTransport):
    """A transport that does not keep to its protocol."""

    async def send(self, request) -> Response:
        raise OSError("disk on fire")


async def test_a_transport_that_cannot_be_awaited_is_asked_once(make_client) -> None:
    """What a plain `send` has sent is not sent again in vain, and its author is told what is wrong with it."""

    class Plain(MemoryTransport):
        def send(self, request) -> Response:
            self.requests.append(request)
            return Response(200, {}, b'{"id":"ORD1"}')

    transport = Plain()
    with pytest.raises(OutcomeUnknown, match=r"Plain\.send must be async") as unknown:
        await make_client(transport=transport).orders.cancel("ORD1")

    assert 1 == len(transport.requests) == unknown.value.attempts


@pytest.mark.parametrize("answer", [None, (200, {}, b""), {"status": 200}, Response("200", {}, b"")])
async def test_a_transport_that_returns_no_response_is_asked_once(make_client, answer: object) -> None:
    """A write is not sent again and again for an answer that nobody can read, and the author is told which it is."""

    class Loose(MemoryTransport):
        async def send(self, request) -> object:
            self.requests.append(request)
            return answer

    transport = Loose()
    with pytest.raises(OutcomeUnknown, match=r"Loose\.send must be async, take a Request, and return a Response"):
        await make_client(transport=transport).orders.cancel("ORD1")

    assert 1 == len(transport.requests)


async def test_a_type_error_of_a_transport_is_its_own(make_client) -> None:
    """One that comes from further down says nothing of `send`, and the next attempt may do better."""

    class Clumsy(MemoryTransport):
        async def send(self, request) -> Response:
            await super().send(request)
            raise TypeError

    transport = Clumsy(lambda request: Response(200, {}, b""))
    with pytest.raises(OutcomeUnknown, match="the transport raised TypeError"):
        await make_client(transport=transport).orders.cancel("ORD1")

    assert 4 == len(transport.requests)


async def test_the_end_of_the_program_is_not_a_failure(make_client) -> None:
    """What is no exception of the program's own, such as a keyboard interrupt, passes through."""

    class Interrupted(MemoryTransport):
        async def send(self, request) -> Response:
            raise GeneratorExit

    with pytest.raises(GeneratorExit):
        await make_client(transport=Interrupted()).orders.cancel("ORD1")


async def test_bodies_are_not_changed_by_a_call(play, jobs) -> None:
    """A request can be used again: nothing of it is changed, and it makes the same bytes."""
    order = OrderRequest(**json.loads('{"external_reference":"shop-1"}'), **amounts())
    before = repr(order)

    first = await play(lambda client: client.orders.create(order), Response(503), jobs["orders.create"].answer)
    second = await play(lambda client: client.orders.create(order), jobs["orders.create"].answer)

    assert before == repr(order)
    assert 1 == len({request.body for request in first.requests + second.requests})


def amounts() -> dict[str, object]:
    """A total of one decimal, which goes out with two."""
    from decimal import Decimal

    from paymentsdk.resources.orders import PaymentRequest, TransactionsRequest

    payments = [PaymentRequest(amount=Decimal("24.9"))]
    return {"total_amount": Decimal("24.9"), "transactions": TransactionsRequest(payments=payments)}
