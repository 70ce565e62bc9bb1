"""A response is taken for the one to this request, or for none: identity, pages, and responses that say nonsense."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

from paymentsdk import OPERATIONS, NoAnswer, PaymentsError, Response, RetryPolicy
from paymentsdk.testing import MemoryTransport

ONCE = RetryPolicy(attempts=1)


NO_PAGES = [
    b"{}",
    b'{"results":"busy","elements":"busy","paging":{"total":70},"total":70}',
    b'{"results":5,"elements":5,"paging":{"total":70},"total":70}',
]


@pytest.mark.parametrize("body", NO_PAGES)
@pytest.mark.parametrize("name", ["merchant_orders.search", "invoices.search"])
async def test_what_is_no_page_is_not_the_end_of_a_walk(play, name: str, body: bytes) -> None:
    """A search that responds with something else has not responded: it does not count as one without rows."""
    played = await play(name, Response(200, {}, body), retry=ONCE)

    assert NoAnswer is type(played.error)
    assert "is not a page" in played.error.reason


@pytest.mark.parametrize(("offset", "is_page"), [(0, True), (50, False)])
@pytest.mark.parametrize("query", [None, {"limit": 2}])
async def test_a_search_that_asks_for_no_offset_asks_for_the_first_page(
    play, query: dict[str, int] | None, offset: int, *, is_page: bool
) -> None:
    """Whoever makes the call without an offset gets the page at 0, and with no other."""
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
    ids=["null", "odd-below", "repaired-beside"],
)
async def test_an_end_may_have_no_rows(play, name: str, body: bytes) -> None:
    """A search that finds nothing may say so with null for its rows, whatever is odd elsewhere in the response."""
    played = await play(name, Response(200, {}, body), retry=ONCE)

    assert (None, None) == (played.value, played.error)


@pytest.mark.parametrize(("status", "strict", "requests"), [("", False, 2), ("created", True, 2), ("", True, 1)])
async def test_a_foreign_response_is_asked_for_again(play, jobs, *, status: str, strict: bool, requests: int) -> None:
    """What belongs to another request is asked for again; only `strict` gives up on a response for being malformed."""
    foreign = f'{{"id":"ORD2","external_reference":"shop-2","status":"{status}"}}'

    played = await play(
        "orders.create", Response(201, {}, foreign.encode()), jobs["orders.create"].response, strict=strict
    )

    assert (requests, requests == 1) == (len(played.requests), played.is_unknown())


class Weighed(Response, frozen=True, weakref=True):
    """A response of which a test can see whether it is still there."""


@pytest.mark.parametrize("status", [200, 404, 503])
async def test_an_error_that_is_kept_does_not_keep_the_response(make_client, status: int) -> None:
    """Who collects the errors of a large job has the beginning of each body, and not all of them in memory."""
    responses = []

    async def response(request: object) -> Response:
        answer = Weighed(status, {}, b"<html>" + b"." * 10_000)
        responses.append(ref(answer))
        return answer

    transport = MemoryTransport(response)
    with pytest.raises(PaymentsError) as failure:
        await make_client(transport=transport).orders.get("ORD1")
    transport.discarded.clear()  # The transport of a test keeps them.
    gc.collect()

    assert failure.value.__traceback__
    assert [] == [reference for reference in responses if reference() is not None]


async def test_a_defect_in_reading_does_not_cost_the_key(play, monkeypatch) -> None:
    """Whatever goes wrong in here after a write was sent: the caller gets the key, and not an exception of ours."""
    operation = OPERATIONS["orders.cancel"]
    monkeypatch.setitem(vars(operation), "decoder", None)

    played = await play("orders.cancel", Response(200, {}, b'{"id":"ORD1"}'), retry=ONCE)

    assert played.is_unknown()
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("HTTP 200, but reading it raised AttributeError (response.py:")


@pytest.mark.parametrize("body", [None, "text", 7.5])
async def test_a_rejection_whose_body_is_no_bytes_does_not_cost_the_key(play, body) -> None:
    """A transport of one's own that brings back no bytes with a 503 leaves a write in doubt, and its key with it."""
    played = await play("orders.cancel", Response(503, {}, body), retry=ONCE)

    assert played.is_unknown()
    assert {played.error.idempotency_key} == played.keys
    assert played.error.reason.startswith("HTTP 503, but reading it raised TypeError (error_response.py:")


@pytest.mark.parametrize("headers", [None, [("X-Request-Id", "r-1")], {"X-Request-Id": None}, {7: "a"}])
async def test_invalid_headers_do_not_cost_a_response(play, headers) -> None:
    """What a transport of one's own brings back with fields that nobody can read is still the response it is."""
    good = await play("orders.cancel", Response(200, headers, b'{"id":"ORD1"}'), retry=ONCE)
    bad = await play("orders.cancel", Response(404, headers, b'{"code":"order_not_found"}'), retry=ONCE)

    assert (None, None) == (good.error, bad.error.request_id)
    assert (404, "order_not_found") == (bad.error.status, bad.error.code)
