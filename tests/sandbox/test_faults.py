"""Faults as data: who is hit, and what happens; each effect with the request that it does not hit as its control."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import get_args, get_type_hints

import aiohttp
import msgspec
import pytest
from msgspec.structs import replace

from paymentsdk import OutcomeUnknown, RateLimited, ServerError
from paymentsdk.sandbox import FaultRule, Sandbox


def created(sandbox: Sandbox) -> int:
    """Return how many orders were made."""
    return [entry.kind for entry in sandbox.ledger()].count("order_created")


async def test_fail_before_commit_does_nothing(client, sandbox, order):
    """The client hears of a 500, and nothing was done."""
    with sandbox.faults.add(FaultRule(effect="fail_before_commit")), pytest.raises(OutcomeUnknown) as failed:
        await client.orders.create(order())

    assert isinstance(failed.value.last_error, ServerError)
    assert "generic" == failed.value.last_error.code
    assert 0 == created(sandbox)


async def test_lose_response_after_commit_does_everything_and_says_nothing(client, sandbox, order):
    """The order exists; the same key finds out about it, and makes no second one."""
    with (
        sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.create")),
        pytest.raises(OutcomeUnknown) as lost,
    ):
        await client.orders.create(order())
    assert 1 == created(sandbox)

    new_order = await client.orders.create(order(), idempotency_key=lost.value.idempotency_key)

    assert 1 == created(sandbox)
    assert "created" == new_order.status


async def test_without_the_key_a_lost_response_makes_two_orders(client, sandbox, order):
    """The negative control: another key is another order."""
    with sandbox.faults.add(FaultRule(effect="lose_response_after_commit", times=1)), pytest.raises(OutcomeUnknown):
        await client.orders.create(order())
    await client.orders.create(order())

    assert 2 == created(sandbox)


async def test_a_request_that_breaks_does_nothing(plain, sandbox, data):
    """A reset comes before anything is done."""
    sandbox.faults.add(FaultRule(effect="reset", operation="orders.create"))

    with pytest.raises(aiohttp.ClientOSError):  # An orderly end would be a ServerDisconnectedError.
        await plain("POST", "/v1/orders", data(), key="k")

    assert 0 == created(sandbox)
    assert 1 == sandbox.faults.list()[0].hits


async def test_a_hang_ends_with_its_client(plain, sandbox, data, until):
    """While it lasts nothing is done and its key is in flight; when the client has gone, the key is free again."""
    with sandbox.faults.add(FaultRule(effect="hang")):
        call = asyncio.create_task(plain("POST", "/v1/orders", data(), key="k"))
        await until(lambda: sandbox.faults.list()[0].hits)
    meanwhile = await plain("POST", "/v1/orders", data(), key="k")
    call.cancel()
    await asyncio.wait([call])
    assert (True, 409, 0) == (call.cancelled(), meanwhile.status, created(sandbox))

    await until(lambda: None in statuses_seen(sandbox))

    assert 201 == (await plain("POST", "/v1/orders", data(), key="k")).status


async def test_a_hang_ends_with_the_sandbox(start, plain_to, data, until, monkeypatch):
    """Stopping does not wait for what would never end: the hang ends by itself, and is not cut off after a while."""
    monkeypatch.setattr("paymentsdk.sandbox._server._GRACE", 3600.0)
    sandbox = await start()
    sandbox.faults.add(FaultRule(effect="hang"))
    call = asyncio.create_task(plain_to(sandbox)("POST", "/v1/orders", data(), key="k"))
    await until(lambda: sandbox.faults.list()[0].hits)
    assert [] == statuses_seen(sandbox)

    await sandbox.stop()

    assert [None] == statuses_seen(sandbox)
    with pytest.raises(aiohttp.ClientError):
        await call


def statuses_seen(sandbox: Sandbox) -> list[int | None]:
    """Return the status of each request that is over; `None` where no response was sent."""
    return [line.status for line in sandbox.platform.feed.requests]


@pytest.mark.parametrize(("effect", "committed"), [("delay_before_commit", 0), ("delay_after_commit", 1)])
async def test_a_delay_is_before_or_after_the_commit(plain, sandbox, data, until, end_delays, effect, committed):  # noqa: PLR0917
    """A client that gives up during the delay does not know what was done: both are possible."""
    sandbox.faults.add(FaultRule(effect=effect, operation="orders.create", seconds=3600))

    call = asyncio.create_task(plain("POST", "/v1/orders", data(), key="k"))
    await until(lambda: sandbox.faults.list()[0].hits)
    await plain("GET", "/preapproval_plan/search")  # By the time of this response the other would be there.
    meanwhile = created(sandbox)
    call.cancel()
    await asyncio.wait([call])
    assert (True, committed) == (call.cancelled(), meanwhile)

    end_delays(sandbox)
    await until(lambda: created(sandbox))  # The request goes on without its client.


@pytest.mark.control("paymentsdk.sandbox._platform.Platform._run_some", lambda *_: False)
async def test_an_order_that_expires_while_a_request_waits_has_expired(plain, sandbox, data, until, end_delays):
    """A delayed request sees the state at the time when it runs, not when it arrived."""
    new_order = (await plain("POST", "/v1/orders", data(), key="a")).json
    rule = FaultRule(effect="delay_before_commit", operation="orders.cancel", seconds=3600, times=1)
    delay = sandbox.faults.add(rule)
    call = asyncio.create_task(plain("POST", f"/v1/orders/{new_order['id']}/cancel", key="k"))
    await until(lambda: delay.hits)
    # As time goes by itself: nobody asks the clock to run what is due.
    sandbox.clock.state = replace(sandbox.clock.state, frozen_at=sandbox.clock.now() + timedelta(minutes=15))
    end_delays(sandbox)
    response = await call

    assert 409 == response.status
    assert "cannot_cancel_order" == response.code
    assert ["order_created", "order_expired"] == [entry.kind for entry in sandbox.ledger()]


async def test_a_token_that_is_revoked_while_a_request_waits_is_rejected(plain, sandbox, data, until, end_delays):
    """A delayed request is authenticated once more, and does nothing."""
    delay = sandbox.faults.add(FaultRule(effect="delay_before_commit", seconds=3600))
    call = asyncio.create_task(plain("POST", "/v1/orders", data(), key="k"))
    await until(lambda: delay.hits)
    sandbox.revoke(sandbox.access_token)
    end_delays(sandbox)

    assert (401, 0) == ((await call).status, created(sandbox))


async def test_a_status_without_a_name_is_sent(plain, sandbox):
    """Proxies make up statuses of their own: the response has it, and nothing fails over its missing phrase."""
    for effect in ("refuse", "fail_before_commit"):
        with sandbox.faults.add(FaultRule(effect=effect, status=520)):
            response = await plain("GET", "/preapproval_plan/search")

        assert (520, "status 520") == (response.status, response.json["message"])


async def test_rate_limit_says_when_to_come_back(client, sandbox, order):
    """429 with Retry-After in seconds."""
    with sandbox.faults.add(FaultRule(effect="rate_limit", retry_after=7)), pytest.raises(RateLimited) as limited:
        await client.orders.create(order())

    assert (7, "too_many_requests") == (limited.value.retry_after, limited.value.code)
    assert 0 == created(sandbox)


async def test_the_effects_on_the_response_are_what_they_say(plain, sandbox, data):
    """Half of the bytes, no JSON, another type, a page: as a proxy or a crash would have it."""
    plain_answer = await plain("POST", "/v1/orders", data(), key="k")
    size = len(plain_answer.raw)
    with sandbox.faults.add(FaultRule(effect="truncate")), pytest.raises(aiohttp.ClientPayloadError, match=str(size)):
        await plain("POST", "/v1/orders", data(), key="k")
    with sandbox.faults.add(FaultRule(effect="malformed")):
        malformed = await plain("POST", "/v1/orders", data(), key="k")
    with sandbox.faults.add(FaultRule(effect="wrong_content_type")):
        typed = await plain("POST", "/v1/orders", data(), key="k")
    with sandbox.faults.add(FaultRule(effect="html")):
        page = await plain("POST", "/v1/orders", data(), key="k")

    assert 201 == malformed.status
    with pytest.raises(ValueError, match="JSON"):
        msgspec.json.decode(malformed.raw)
    assert (plain_answer.raw, "text/plain") == (typed.raw, typed.headers["Content-Type"].partition(";")[0])
    assert (502, "text/html") == (page.status, page.headers["Content-Type"].partition(";")[0])
    assert b"<title>502 Bad Gateway</title>" in page.raw


async def test_a_drip_gives_one_byte_at_a_time(start, plain_to, data, until):
    """All bytes arrive in the end; or never, when the client or the sandbox gives up before."""
    sandbox = await start()
    plain = plain_to(sandbox)
    with sandbox.faults.add(FaultRule(effect="drip", seconds=0.0001)):
        whole = await plain("POST", "/v1/orders", data(), key="k")
    sandbox.faults.add(FaultRule(effect="drip", seconds=60))
    call = asyncio.create_task(plain("POST", "/v1/orders", data(), key="l"))
    await until(lambda: created(sandbox) == 2)
    await sandbox.stop()

    assert ("created", "application/json") == (whole.json["status"], whole.headers["Content-Type"])
    with pytest.raises(aiohttp.ClientError):
        await call


async def walk(plain) -> tuple[list[str], set[int]]:
    """Walk merchant orders by offsets as a naive client does; return the rows and the totals that were said."""
    references, totals, offset = [], set(), 0
    while rows := (page := (await plain("GET", f"/merchant_orders/search?limit=3&offset={offset}")).json)["elements"]:
        references += [row["external_reference"] for row in rows]
        totals.add(page["total"])
        offset += len(rows)
    return references, totals


@pytest.mark.parametrize(
    ("rows", "references", "totals"), [(-2, "876" + "321" + "0", {9, 7}), (2, "876" + "765" + "432" + "10", {9, 11})]
)
async def test_rows_appear_or_vanish_between_two_pages(plain, client, sandbox, order, rows, references, totals):  # noqa: PLR0917 - fixtures
    """A walk by offsets skips what slid to the front, and sees twice what slid back; without the fault, neither."""
    for number in range(9):
        sandbox.buyer.pay(await client.orders.create(order(external_reference=str(number))))
        sandbox.clock.advance("PT1S")

    quiet = await walk(plain)
    with sandbox.faults.add(FaultRule(effect="page_drift", operation="*.search", rows=rows)):
        drifting = await walk(plain)

    assert (list("876543210"), {9}) == quiet
    assert (list(references), totals) == drifting


async def test_a_rule_picks_by_seller(plain, sandbox, data):
    """Tests that share a sandbox do not hit each other."""
    second_seller = sandbox.create_tenant()
    sandbox.faults.add(FaultRule(effect="fail_before_commit", tenant=second_seller.user_id))

    assert 201 == (await plain("POST", "/v1/orders", data(), key="k")).status
    assert 500 == (await plain("POST", "/v1/orders", data(), key="k", token=second_seller.access_token)).status


async def statuses(plain, count: int) -> list[int]:
    """Return the statuses of *count* searches."""
    return [(await plain("GET", "/preapproval_plan/search")).status for _ in range(count)]


async def test_a_rule_picks_the_nth_request_or_the_first_ones(plain, sandbox):
    """Requests are counted from one, among those that match."""
    for which, expected in (({"nth": 3}, [200, 200, 500, 200]), ({"times": 2}, [500, 500, 200, 200])):
        with sandbox.faults.add(FaultRule(effect="fail_before_commit", operation="plans.search", **which)):
            assert expected == await statuses(plain, 4)


async def test_chance_is_seeded(plain, sandbox):
    """The same seed hits the same requests; another one hits others; about as many as it says."""
    runs = []
    for seed in (1, 1, 2):
        with sandbox.faults.add(FaultRule(effect="fail_before_commit", probability=0.3, seed=seed)):
            runs.append(await statuses(plain, 30))

    assert runs[0] == runs[1] != runs[2]
    assert 3 < runs[0].count(500) < 16


async def test_a_rule_ends_with_its_block(plain, sandbox):
    """The context manager takes it out, also after an error."""
    with pytest.raises(ZeroDivisionError), sandbox.faults.add(FaultRule(effect="fail_before_commit")):
        1 / 0  # noqa: B018 - any error will do

    assert () == sandbox.faults.list()
    assert [200] == await statuses(plain, 1)


async def test_clear_removes_all_faults_or_the_faults_of_a_seller(sandbox):
    """A test can remove the rules of its own seller only."""
    for tenant in (None, 1, 2):
        sandbox.faults.add(FaultRule(effect="reset", tenant=tenant))

    sandbox.faults.clear(tenant=1)
    sellers = [added.rule.tenant for added in sandbox.faults.list()]
    sandbox.faults.clear()

    assert [None, 2] == sellers
    assert () == sandbox.faults.list()


async def test_a_rejection_without_a_code_is_a_general_one(plain, sandbox):
    """Not whatever code stands first: it would blame a country or a key that are as they should be."""
    sandbox.faults.add(FaultRule(effect="refuse"))
    codes = {"/v1/orders": "bad_request", "/checkout/preferences": "bad_request", "/v1/customers": "125"}

    responses = {path: await plain("POST", path, {}, key="k") for path in codes}

    assert {path: (400, code) for path, code in codes.items()} == {
        path: (response.status, response.code) for path, response in responses.items()
    }


@pytest.mark.control("paymentsdk.sandbox._noun._SERVER_ERRORS", 501)
async def test_a_status_that_is_not_documented_has_a_code_of_its_kind(plain, sandbox):
    """From 500 on it is the platform that failed, and below the request: no documented code says the contrary."""
    answers = {}
    for status in (418, 499, 500, 599):
        with sandbox.faults.add(FaultRule(effect="refuse", status=status)):
            response = await plain("DELETE", "/v1/account/release_report/schedule")
        answers[status] = (response.status, response.json["error"])

    kinds = {418: "bad_request", 499: "bad_request", 500: "generic", 599: "generic"}
    assert {status: (status, code) for status, code in kinds.items()} == answers


BAD_RULES = [
    {"effect": "magic"},
    {"effect": "reset", "operation": "orders.creat"},
    {"effect": "reset", "probability": 1.5},
    {"effect": "reset", "nth": 0},
    {"effect": "hang", "status": 500},
    {"effect": "refuse", "seconds": 5},
    {"effect": "refuse", "status": 200},
    {"effect": "row_deleted", "operation": "plans.search"},
    {"effect": "drip", "rows": 3},
]


async def test_a_rule_that_could_not_do_what_it_says_is_rejected(plain, sandbox):
    """Over HTTP and in Python alike: a test with such a rule would pass for the wrong reason."""
    for rule in BAD_RULES:
        response = await plain("POST", "/_sandbox/faults", rule)
        with pytest.raises(ValueError, match=r".+"):
            sandbox.faults.add(FaultRule(**rule))

        assert (400, "bad_request") == (response.status, response.json["code"]), rule
    assert "drip does not take rows; its details: seconds" in response.json["message"]
    assert () == sandbox.faults.list()


@pytest.mark.control("paymentsdk.sandbox._faults.AddedFault.picks", lambda self, operation, tenant: False)
async def test_every_effect_has_one(plain, client, sandbox, order, monkeypatch):
    """An effect that is declared, and that nothing brings about, would be a test that passes for nothing."""
    waits: list[float] = []

    async def pause(seconds: float, stopping: asyncio.Event) -> None:
        waits.append(seconds)

    async def hang(request: object, stopping: asyncio.Event) -> None:
        pass

    async def seen() -> tuple[object, ...]:
        waits.clear()
        try:
            pages = [await plain("GET", f"/merchant_orders/search?offset={offset}") for offset in (0, 1)]
        except aiohttp.ClientError as error:
            return type(error), *waits
        return *[(page.status, page.raw, page.headers["Content-Type"]) for page in pages], *waits

    monkeypatch.setattr("paymentsdk.sandbox._app.pause", pause)
    monkeypatch.setattr("paymentsdk.sandbox._app.hang", hang)
    for _ in range(2):
        sandbox.buyer.pay(await client.orders.create(order()))
    on_notifications = set()
    for effect in get_args(get_type_hints(FaultRule)["effect"]):
        rule, usual = FaultRule(effect=effect, operation="merchant_orders.search"), await seen()
        try:
            added = sandbox.faults.add(rule)
        except ValueError:
            on_notifications.add(effect)
            continue
        with added:
            assert usual != await seen(), f"{effect} changes nothing: see the header of paymentsdk/sandbox/_faults.py"

    assert on_notifications == {
        "lost", "duplicated", "delayed", "reordered", "wrong_signature", "stale_timestamp", "truncated"
    }, "test a new effect on notifications in tests/sandbox/test_notifications.py"  # fmt: skip


@pytest.mark.control("paymentsdk.sandbox._faults.Faults.restore", lambda self, standing: None)
async def test_a_restored_fault_goes_on_where_it_stood(plain, sandbox):
    """With what chance brings next, and without the rules that came since: what follows a restore is the same again."""
    sandbox.faults.add(FaultRule(effect="refuse", operation="plans.search", probability=0.5, seed=3))
    before = await statuses(plain, 12)
    sandbox.platform.snapshot()
    after = await statuses(plain, 12)
    sandbox.faults.add(FaultRule(effect="refuse", operation="plans.search"))
    sandbox.platform.restore()

    assert after == await statuses(plain, 12) != before
    assert 1 == len(sandbox.faults.list())
