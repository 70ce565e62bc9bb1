"""A failure inside the sandbox is never silent."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import NoReturn

import msgspec
import pytest

from paymentsdk import OPERATIONS, OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.sandbox import Documents, Rejected, Sandbox, SellerContext
from tests.sandbox.conftest import at_once


def fill_the_disk(sandbox: Sandbox, free: int = 0) -> None:
    """Let the database grow by *free* pages and no further, as on a full disk."""
    connection = sandbox.platform.store._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + free}")


@pytest.mark.parametrize(("part", "error"), [
    ("handler", BrokenPipeError), ("job", TimeoutError), ("signature", ZeroDivisionError),
])  # fmt: skip
async def test_an_error_of_a_part_of_another_program_is_said(start, plain_to, capsys, part, error):
    """Also one that a client who goes away would cause: such a part may well ask a server of its own."""

    def fail(*_: object) -> NoReturn:
        raise error("nobody is there")

    options = {
        "handler": {"handlers": {OPERATIONS["plans.search"]: fail}},
        "job": {"jobs": {"order.expire": fail}},
        "signature": {"authenticate": fail},
    }
    sandbox = await start(**options[part])
    plain = plain_to(sandbox)
    if part == "job":
        await plain("POST", "/v1/orders", OPERATIONS["orders.create"].example, key="k")
        sandbox.set_clock(lambda: sandbox.clock.state_advanced("PT1H"))

    response = await plain("GET", "/preapproval_plan/search")

    assert 500 == response.status
    assert f"{error.__name__}('nobody is there')" in capsys.readouterr().err
    assert [500] == [line.status for line in sandbox.feed.requests if line.path == "/preapproval_plan/search"]


@pytest.mark.parametrize(("error", "path"), [
    (ValueError("no such till"), "/_sandbox/clock"), (Rejected(404, "till_not_found"), "/preapproval_plan/search"),
])  # fmt: skip
async def test_a_job_that_fails_rejects_no_request(start, plain_to, capsys, error, path):
    """What it raises is not about the request that comes just now: its sender would look for a mistake of theirs."""

    def fail(*_: object) -> NoReturn:
        raise error

    sandbox = await start(jobs={"order.expire": fail})
    plain = plain_to(sandbox)
    await plain("POST", "/v1/orders", OPERATIONS["orders.create"].example, key="k")
    sandbox.set_clock(lambda: sandbox.clock.state_advanced("PT1H"))

    response = await plain("GET", path)

    assert (500, "generic") == (response.status, response.code)
    assert "the job order.expire failed" in capsys.readouterr().err


async def test_a_job_that_schedules_itself_at_its_own_moment_is_said(start, plain_to, capsys, monkeypatch):
    """It would go on for ever, and every request wait in silence."""
    monkeypatch.setattr("paymentsdk.sandbox._platform._MOST_RUNS", 100)
    runs = []

    def again(context: SellerContext, till: str) -> None:
        runs.append(till)
        if len(runs) < 200:
            context.schedule(context.now, "till.close", till)

    sandbox = await start(jobs={"till.close": again})
    context = sandbox.context(sandbox.tenant)
    context.schedule(context.now, "till.close", "7")

    response = await plain_to(sandbox)("GET", "/preapproval_plan/search")

    assert (500, 100) == (response.status, len(runs))
    assert "the job till.close of 7 never ends" in capsys.readouterr().err


async def create_many(client: PaymentsClient, order) -> None:
    """Create more orders than a full disk has room for."""
    for number in range(60):
        await client.orders.create(order(external_reference=f"order-{number}", description="x" * 150))


class Till(msgspec.Struct):
    """A document of an own handler."""

    id: str
    note: str = ""


TILLS = Documents("tills", Till, key=lambda till: till.id)


@pytest.mark.parametrize("write", [
    lambda context: context.schedule(context.now, "till.close", "\ud800"),
    lambda context: context.put(TILLS, Till("\ud800")),
])  # fmt: skip
async def test_a_request_that_fails_takes_no_other_with_it(start, write):
    """Requests at once share a commit, but a text that SQLite does not take fails where it is written."""
    handlers = {OPERATIONS["plans.search"]: lambda context, _: (write(context), {"results": []})[1]}
    sandbox = await start(handlers=handlers, jobs={"till.close": lambda *_: None})
    orders = [("POST", "/v1/orders", key, OPERATIONS["orders.create"].example) for key in "abc"]
    await at_once(sandbox, orders[0])  # reads what later ones find in memory

    answers = await at_once(sandbox, orders[1], ("GET", "/preapproval_plan/search", "", None), orders[2])

    assert [b"201", b"500", b"201"] == [answer[9:12] for answer in answers]


@pytest.mark.parametrize("status", [500, 503])
async def test_a_handler_that_catches_a_full_disk_has_done_nothing(start, plain_to, tmp_path, status):
    """Whether it goes on or rejects the request, no part of its work is kept. Once there is room, all works again."""

    def handle(context: SellerContext, _: object) -> object:
        context.record("till_opened", id="7", order_id="7")
        try:
            context.put(TILLS, Till("7", "x" * 60_000))
        except sqlite3.Error:
            if status == 503:
                raise Rejected(503, "no_room") from None
        context.record("till_noted", id="7", order_id="7")
        return {"results": []}

    sandbox = await start(db=str(tmp_path / "sandbox.db"), handlers={OPERATIONS["plans.search"]: handle})
    statuses = []
    for free in (3, 1_000):
        fill_the_disk(sandbox, free)
        statuses.append((await plain_to(sandbox)("GET", "/preapproval_plan/search")).status)

    assert [status, 200] == statuses
    assert ["till_opened", "till_noted"] == [entry.kind for entry in sandbox.ledger()]


async def test_a_commit_that_fails_elsewhere_is_told_to_whom_it_concerns(start, tmp_path):
    """Another thread may commit what a request has done, before that request looks after it itself."""
    sandbox = await start(db=str(tmp_path / "sandbox.db"))
    context = sandbox.context()
    fill_the_disk(sandbox)
    with context.store.transaction(shared=True):
        context.record("till_opened", id="7" * 60_000, order_id="7")

    with pytest.raises(sqlite3.OperationalError, match="full"):
        sandbox.ledger()
    with pytest.raises(sqlite3.OperationalError, match="full"):
        await context.store.committed()


@pytest.mark.control(
    "paymentsdk.sandbox._app.Endpoints.log_failure",
    lambda self, request, error: Rejected(500, "generic", "internal error of the sandbox"),
)
async def test_a_full_disk_is_said(tmp_path, order, capsys):
    """To the client, on stderr and in the list of requests."""
    async with Sandbox(db=str(tmp_path / "sandbox.db")) as sandbox:
        retry = RetryPolicy(attempts=1)
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, retry=retry) as client:
            fill_the_disk(sandbox)
            with pytest.raises(OutcomeUnknown) as unknown:
                await create_many(client, order)
        failed = [request for request in sandbox.platform.feed.requests if request.status == 500]

    assert "disk full" in str(unknown.value.last_error)
    assert "the sandbox failed at POST /v1/orders: disk full" in capsys.readouterr().err
    assert [("orders.create", True)] == [(request.operation, "disk full" in request.response) for request in failed]


async def test_a_file_of_another_schema_is_rejected(tmp_path):
    """By the number in the file, older or newer, and it says what to do; the same schema is opened again."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path) as sandbox:
        seller = sandbox.tenant.user_id
    async with Sandbox(db=path) as sandbox:
        assert seller == sandbox.tenant.user_id
    for schema, words in (
        (1, "an older version .* .schema 1.; .* move it away, or name another file$"),
        (8, "a newer version .* .schema 8.; .*, or update paymentsdk$"),
    ):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {schema}")
        with pytest.raises(OSError, match=words):
            Sandbox(db=path)


@pytest.mark.control(
    "paymentsdk.sandbox._store.check_file",
    lambda connection: bool(connection.execute("SELECT name FROM sqlite_master").fetchall()),
    raises=pytest.fail.Exception,
)
async def test_a_damaged_file_is_rejected(tmp_path):
    """When it is opened, in a sentence, and not at the first row that cannot be read."""
    path = tmp_path / "sandbox.db"
    async with Sandbox(db=str(path)) as sandbox:
        for _ in range(200):
            sandbox.create_tenant()
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 4096 * 8] = b"\xff" * 4096 * 8
    path.write_bytes(data)

    with pytest.raises(OSError, match=r"cannot use .* as the database of a sandbox: .*(damaged|malformed)"):
        Sandbox(db=str(path))


@pytest.mark.parametrize("setting", ["policies", "clock"])
async def test_a_setting_that_is_damaged_is_told_at_the_start(tmp_path, setting):
    """SQLite does not know what is in its rows: a start that cannot read them says that the file is damaged."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path) as sandbox:
        sandbox.platform.change_policies({"page_size": 7})
        sandbox.clock.freeze()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE settings SET value = ? WHERE name = ?", (b'"\xb2', setting))

    with pytest.raises(OSError, match=r"cannot use .* as the database of a sandbox: it is damaged"):
        Sandbox(db=path)


@pytest.mark.parametrize("name", ["file::memory:", "shop.db?a=b#c"])
async def test_a_file_has_the_name_that_was_said(tmp_path, monkeypatch, name):
    """SQLite would take some for an address, and keep nothing."""
    monkeypatch.chdir(tmp_path)
    async with Sandbox(db=name) as sandbox:
        pass
    async with Sandbox(db=name) as again:
        assert sandbox.tenant == again.tenant

    assert {name} == {path.name for path in tmp_path.iterdir()}
