"""The store: transactions, documents, the ledger, and the file that keeps them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from itertools import count, product
from random import Random

import pytest
from msgspec import Struct
from msgspec.structs import replace

from paymentsdk.resources.orders import TypeResponse
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Platform, Sandbox
from paymentsdk.sandbox._clock import Ids
from paymentsdk.sandbox._records import MERCHANT_ORDERS, Documents, MerchantOrderRecord, Table
from paymentsdk.sandbox._store import Due, SavedResponse, Store

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Thing(Struct, frozen=True):
    name: str
    colour: str | None = None
    at: datetime | None = NOW


THINGS = Table(
    "things", Thing, key=lambda one: one.name, columns={"colour": lambda one: one.colour, "at": lambda one: one.at}
)


@pytest.fixture
def store():
    """A store in memory."""
    store = Store([THINGS])
    yield store
    store.close()


def test_a_document_is_kept_until_a_newer_one_takes_its_place(store):
    """By its key; the columns follow."""
    store.put(THINGS, 1, Thing("a", "red"))
    store.put(THINGS, 1, Thing("a", "blue"))

    assert Thing("a", "blue") == store.get(THINGS, "a")
    assert [] == store.find(THINGS, 1, [("colour", "=", "red")])


def test_documents_belong_to_a_tenant(store):
    """Others do not see them; without a tenant, all are seen."""
    store.put(THINGS, 1, Thing("a"))

    assert None is store.get(THINGS, "a", 2)
    assert (1, None) == (store.owner(THINGS, "a"), store.owner(THINGS, "b"))
    assert (0, 1) == (store.count(THINGS, 2), store.count(THINGS, None))


@pytest.mark.parametrize("order", ["at", pytest.param("seq", id="control: an index without the order")])
def test_a_page_does_not_cost_more_with_every_document(order):
    """Neither to find, where few have what is asked for, nor to sort, where nearly all of them have."""
    things = Table("things", Thing, key=THINGS.key, columns=THINGS.columns, dates=["at"] if order == "at" else [])

    def steps(documents, colour):
        store = Store([things])
        with store.transaction():
            for number in range(documents):
                store.put(things, 1, Thing(str(number), "rare" if number == 0 else "common", NOW))
        done = []
        store._connection.set_progress_handler(lambda: done.append(1), 1)
        store.find(things, 1, [("at", ">=", NOW), ("colour", "=", colour)], order="at", descending=True, limit=10)
        store.close()
        return len(done)

    flat = [steps(2_000, colour) < 2 * steps(200, colour) for colour in ("rare", "common")]

    assert (order == "at") == all(flat)


def test_merchant_orders_are_indexed_as_they_are_sorted():
    """Every column of theirs leads to a page in the order of their dates."""
    indexes = [line for line in MERCHANT_ORDERS.create.split(";") if "INDEX" in line and "_tenant ON" not in line]

    assert len(MERCHANT_ORDERS.columns) == len(indexes)
    assert len(indexes) - 2 == len([line for line in indexes if "date_created, seq)" in line])
    assert 1 == len([line for line in indexes if "(tenant, date_created, seq, last_updated)" in line])


DATED = [("date_created", ">=", NOW), ("last_updated", ">=", NOW)]


def plan_of(store: Store, statements: list[str]) -> list[str]:
    """Return how SQLite finds the rows of *statements*."""
    return [row[3] for one in statements for row in store._connection.execute(f"EXPLAIN QUERY PLAN {one}")]


@pytest.mark.parametrize("dates", [MERCHANT_ORDERS.dates, pytest.param((), id="control: no dates")])
def test_a_search_by_dates_reads_documents_of_its_page_only(dates):
    """Which rows it is and how many, an index tells alone."""
    table = Table("sold", MerchantOrderRecord, key=MERCHANT_ORDERS.key, columns=MERCHANT_ORDERS.columns, dates=dates)
    store, statements = Store([table]), []
    with closing(store):
        store._connection.set_trace_callback(statements.append)
        store.find(table, 1, DATED, order="date_created", descending=True, limit=30)
        store.count(table, 1, DATED)
        store._connection.set_trace_callback(None)
        found = plan_of(store, statements)

    assert bool(dates) == (2 == len([step for step in found if "COVERING INDEX" in step]))
    assert [] == [step for step in found if "SCAN" in step and "LIST" not in step]


def test_a_count_is_of_what_there_is():
    """Also what a transaction wrote that is rolled back, and what a snapshot brings back."""
    store = Store([THINGS])
    with closing(store):
        counts = [store.count(THINGS, 1)]
        store.put(THINGS, 1, Thing("a"))
        counts += [store.count(THINGS, 1), store.count(THINGS, 1)]
        before = store.copy()
        with suppress(KeyError), store.transaction():
            store.put(THINGS, 1, Thing("b"))
            counts.append(store.count(THINGS, 1))
            raise KeyError
        counts.append(store.count(THINGS, 1))
        store.put(THINGS, 1, Thing("c"))
        counts.append(store.count(THINGS, 1))
        store.restore(before)
        before.close()
        counts.append(store.count(THINGS, 1))

    assert [0, 1, 1, 2, 1, 2, 1] == counts


def test_a_count_follows_what_is_removed(store):
    """Of that seller alone, and of all; what was not there is not counted."""
    tills = store.prepare(Documents("tills", Thing, key=lambda one: one.name))
    store.put(tills, 1, Thing("a"))
    store.put(tills, 2, Thing("a"))
    before = [store.count(tills, tenant) for tenant in (1, 2, None)]
    removed = [store.remove(tills, "a", 1), store.remove(tills, "a", 1)]

    assert [1, 1, 2] == before
    assert [True, False] == removed
    assert [0, 1, 1] == [store.count(tills, tenant) for tenant in (1, 2, None)]


class Dated(Struct, frozen=True):
    name: str
    colour: str
    at: datetime | None
    seen: datetime | None


def dates_table() -> Table[Dated]:
    """A table of documents with two dates."""
    return Table(
        "dates",
        Dated,
        key=lambda one: one.name,
        columns={"colour": lambda one: one.colour, "at": lambda one: one.at, "seen": lambda one: one.seen},
        dates=("at", "seen"),
    )


#: Periods before, over and after the moving bound. Rows lie on the hours.
PERIODS = (
    [("at", ">=", NOW + timedelta(hours=1)), ("at", "<=", NOW + timedelta(hours=2))],
    [("at", ">", NOW + timedelta(hours=1)), ("at", "<", NOW + timedelta(hours=2))],
    [("at", ">", NOW + timedelta(hours=3)), ("at", "<=", NOW + timedelta(hours=40))],
    [("seen", ">=", NOW + timedelta(hours=9)), ("seen", "<=", NOW + timedelta(hours=9))],
    [("seen", "<", NOW + timedelta(hours=33)), ("colour", "=", "red")],
    [("at", "<", NOW + timedelta(hours=33)), ("at", ">=", NOW + timedelta(hours=44))],
    [("at", ">", NOW), ("seen", "<", NOW + timedelta(hours=30))],
    [],
)


def written(chance: Random, store: Store, table: Table[Dated], rows: int) -> None:
    """Write, move, hide and bring back rows of two sellers; some transactions are undone, and a snapshot comes back."""
    for step in range(rows):
        at = NOW + timedelta(hours=chance.randrange(50))
        hidden = chance.random() < 0.1
        seller, name = chance.choice([1, 1, 2]), chance.randrange(rows // 3)
        dates = (None, None) if hidden else (at, at + timedelta(hours=chance.choice([0, 0, 7])))
        with suppress(KeyError), store.transaction():
            store.put(table, seller, Dated(f"{seller}-{name}", chance.choice(["red", "green"]), *dates))
            if chance.random() < 0.1:
                raise KeyError
        if step == 200:
            earlier = store.copy()
            written(chance, store, table, 30)
            store.restore(earlier)
            earlier.close()


def test_a_search_by_dates_counts_and_finds_what_is_there():
    """Each search by dates, of a seller or of all, has the rows and the number that a look at each row gives."""
    table, chance, wrong, numbers = dates_table(), Random(9), [], set()
    store = Store([table])
    written(chance, store, table, 300)
    for conditions in PERIODS:
        for hours, tenant, descending in product((-1, 12), (1, None), (False, True)):
            every = [*conditions, ("at", ">=", NOW + timedelta(hours=hours))]
            options = {"order": chance.choice(["at", "seen"]), "descending": descending}
            rows = store.find(table, tenant, every, **options)
            number = store.count(table, tenant, every)
            numbers.add(number)
            for offset in {0, 1, 3, number // 2, number - 1, number, number + 1}:
                page = store.find(table, tenant, every, limit=7, offset=offset, **options)
                wrong += [(conditions, options)] if (len(rows), rows[offset:][:7]) != (number, page) else []

    store.close()
    assert [] == wrong[:3]
    assert len(numbers) > 10


def test_a_key_is_found_without_a_look_at_the_others(store):
    """However many keys a seller has used in a day."""
    saved, begin, steps = SavedResponse("print", b"{}"), NOW - timedelta(days=1), []
    with store.transaction():
        for number in range(1_000):
            store.save_response(1, str(number), saved, at=NOW, forgotten=begin)
    store._connection.set_progress_handler(lambda: steps.append(1), 1)

    assert saved == store.saved_response(1, "500", after=begin)
    assert len(steps) < 100


def test_documents_are_found_and_sorted(store):
    """By columns, moments included; equal ones in the order of their making; nothing is found by an unknown column."""
    for number, colour in enumerate("bab"):
        store.put(THINGS, 1, Thing(str(number), colour, NOW + timedelta(hours=number // 2)))

    def names(*conditions, **options):
        return "".join(one.name for one in store.find(THINGS, 1, conditions, **options))

    assert ("012", "210") == (names(), names(descending=True))
    assert ("02", "1") == (names(("colour", "=", "b")), names(("colour", "<>", "b")))
    assert ("2", "01") == (names(("at", ">", NOW)), names(("at", "<=", NOW)))
    assert "210" == names(order="at", descending=True)
    assert "1" == names(limit=1, offset=1)
    assert "" == names(("colour", "holds", "ab"))
    with pytest.raises(KeyError):
        names(("name; DROP TABLE things", "=", ""))


def test_a_transaction_is_all_or_nothing(store):
    """With an error nothing is kept, and nobody is told; without, everything is."""
    told = []

    def fail() -> None:
        with store.transaction():
            store.put(THINGS, 1, Thing("a"))
            store.append(1, b"{}")
            store.after_commit(lambda: told.append("lost"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (None, [], []) == (store.get(THINGS, "a"), store.ledger(), told)

    with store.transaction():
        store.put(THINGS, 1, Thing("a"))
        store.after_commit(lambda: told.append("kept"))
        assert [] == told
    assert (Thing("a"), ["kept"]) == (store.get(THINGS, "a"), told)


def test_a_transaction_inside_another_is_a_part_of_it(store):
    """It is kept or lost with the outer one."""

    def fail() -> None:
        with store.transaction():
            with store.transaction():
                store.put(THINGS, 1, Thing("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert None is store.get(THINGS, "a")


def test_a_transaction_that_cannot_begin_leaves_none_behind(store):
    """What comes after it is whole or nothing again."""

    def fail() -> None:
        with store.transaction():
            store.put(THINGS, 1, Thing("a"))
            raise ZeroDivisionError

    store._connection.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError):
        fail()
    store._connection.execute("ROLLBACK")
    with pytest.raises(ZeroDivisionError):
        fail()

    assert None is store.get(THINGS, "a")


def test_a_commit_that_fails_leaves_nothing_behind(store):
    """As on a full disk: what was written in it is not counted, and what comes after it is whole or nothing again."""
    connection = store._connection
    reference = "REFERENCES things (seq) DEFERRABLE INITIALLY DEFERRED"
    connection.executescript(f"PRAGMA foreign_keys = ON; CREATE TABLE parts (thing {reference});")

    def fail() -> None:
        with store.transaction():
            store.put(THINGS, 1, Thing("a"))
            connection.execute("INSERT INTO parts VALUES ('of nothing')")

    counts = [store.count(THINGS, 1)]
    with pytest.raises(sqlite3.IntegrityError):
        fail()
    counts.append(store.count(THINGS, 1))
    with store.transaction():
        store.put(THINGS, 1, Thing("b"))
    counts.append(store.count(THINGS, 1))

    assert [0, 0, 1] == counts


def test_lines_of_the_ledger_are_never_changed(store):
    """The database itself rejects."""
    store.append(1, b"{}")

    for statement in ("UPDATE ledger SET entry = ''", "DELETE FROM ledger"):
        with pytest.raises(sqlite3.IntegrityError, match="append only"):
            store._connection.execute(statement)


def test_what_is_due_comes_in_time_order(store):
    """Up to a moment; each once; those of one moment in the order of their making."""
    for kind, hours in (("c", 2), ("a", 1), ("b", 1), ("d", 3)):
        store.schedule(Due(at=NOW + timedelta(hours=hours), kind=kind, tenant=1, id="x"))
    taken = []
    while due := store.take_due(NOW + timedelta(hours=2)):
        taken.append(due)

    assert "abc" == "".join(due.kind for due in taken)
    assert NOW + timedelta(hours=1) == taken[0].at


def test_threads_take_turns(store):
    """Transactions of different threads do not run into each other."""

    def work(name: str) -> None:
        for number in range(100):
            with store.transaction():
                store.put(THINGS, 1, Thing(f"{name}{number}"))
                store.append(1, b"{}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 400 == store.count(THINGS, 1) == len(store.ledger())


@pytest.mark.control("paymentsdk.sandbox._store.Store.locked", lambda self: nullcontext())
@pytest.mark.parametrize(
    "change",
    [
        lambda platform: platform.snapshot(),
        lambda platform: platform.restore(),
        lambda platform: platform.clock.freeze(),
        lambda platform: platform.clock.advance("PT1S"),
        lambda platform: platform.clock.resume(),
        lambda platform: platform.change_policies({"page_size": 1}),
    ],
    ids=["snapshot", "restore", "freeze", "advance", "resume", "policies"],
)
def test_no_thread_comes_between_the_steps_of_a_change(change, monkeypatch):
    """It would find half of it done: the orders of before, say, with the time of later, by which they have expired."""
    kept_out = []

    def look(*step: object) -> None:
        with ThreadPoolExecutor(1) as other:
            taken = other.submit(platform.store._lock.acquire, blocking=False).result()
            if taken:
                other.submit(platform.store._lock.release).result()
        kept_out.append(not taken)

    # Closed also when the check fails, as it does in the controls: Python 3.13 reports a database that is left open.
    with closing(Platform()) as platform:
        platform.snapshot()
        monkeypatch.setattr(platform.feed, "publish", look)
        monkeypatch.setattr(platform.faults, "standing", look)
        change(platform)

    assert {True} == {*kept_out}


def test_snapshots_are_taken_and_restored_from_any_thread():
    """At the same time, under one name: nobody meets one that is gone or closed."""
    platform, failures = Platform(), []
    platform.snapshot()

    def work(step: Callable[[], None]) -> None:
        try:
            for _ in range(50):
                step()
        except (KeyError, sqlite3.Error) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(step,)) for step in (platform.snapshot, platform.restore) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    platform.close()

    assert [] == failures


async def test_a_file_keeps_everything(tmp_path, connect, order):
    """Sellers, orders, keys, the ledger; identifiers do not come again, also with a seed."""
    path = str(tmp_path / "sandbox.db")
    made = []
    for _ in range(2):
        async with Sandbox(db=path, seed=1) as sandbox, connect(sandbox) as client:
            made.append(await client.orders.create(order(), idempotency_key="k"))
            made.append(await client.orders.create(order()))
            assert (await client.orders.get(made[1].id)).id == made[1].id
            seller = sandbox.access_token

    first, one, again, two = made
    assert first == again
    assert one.id != two.id
    assert 3 == len({made.id for made in made})
    assert str(first.user_id) in seller


@pytest.mark.control("paymentsdk.sandbox._store.Store._decoded", lambda self, table, stored: table.decode(stored))
async def test_links_follow_the_address_of_a_restart(tmp_path, connect, order):
    """Codes, checkouts and plans of an earlier start lead to where the sandbox is now; nothing else changes."""
    path, dynamic = str(tmp_path / "sandbox.db"), {"qr": {"external_pos_id": "POS001", "mode": "dynamic"}}
    async with Sandbox(db=path, public_url="https://first.example.com") as sandbox, connect(sandbox) as client:
        other = sandbox.create_tenant()
        coded, plain = await client.orders.create(order(config=dynamic)), await client.orders.create(order())
        made = await client.preferences.create(PreferenceRequest(items=[PreferenceItemRequest(title="Lamp")]))
        plan = await client.plans.get(sandbox.plan_id)

    async with Sandbox(db=path) as sandbox, connect(sandbox) as client, connect(sandbox, other) as others:
        here = sandbox.base_url
        orders = [await client.orders.get(one.id) for one in (coded, plain)]
        preference = sandbox.buyer.open_checkout(made.id)[0]
        plans = [await client.plans.get(plan.id), await others.plans.get(other.plan_id)]

    assert [replace(coded, type_response=TypeResponse(qr_data=f"{here}/qr/{coded.id}")), plain] == orders
    assert (f"{here}/checkout/{made.id}",) * 2 == (preference.init_point, preference.sandbox_init_point)
    assert [f"{here}/subscriptions/{one.id}" for one in plans] == [one.init_point for one in plans]
    assert replace(plan, init_point=plans[0].init_point) == plans[0]


async def test_a_restart_gives_grants_that_work(tmp_path, connect):
    """A spent code and a spent refresh token are replaced; the access token stays."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path) as sandbox, connect(sandbox) as client:
        token = sandbox.access_token
        await client.oauth.exchange_code(sandbox.authorization_code)
        await client.oauth.refresh(sandbox.refresh_token)
    async with Sandbox(db=path) as sandbox, connect(sandbox) as client:
        assert token == sandbox.access_token
        assert await client.oauth.exchange_code(sandbox.authorization_code)
        assert await client.oauth.refresh(sandbox.refresh_token)


async def test_a_restart_gives_a_code_that_has_not_expired(tmp_path, connect, plain_to):
    """By the clock that the file keeps, at the very moment of its end; all places that show the code show the same."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path, frozen=True) as sandbox:
        expired = sandbox.authorization_code
        sandbox.clock.advance("PT10M")
    async with Sandbox(db=path) as sandbox, connect(sandbox) as client:
        state = (await plain_to(sandbox)("GET", "/_sandbox/state")).json
        assert expired != sandbox.authorization_code
        assert sandbox.authorization_code == sandbox.describe().authorization_code
        assert sandbox.authorization_code == state["sandbox"]["authorization_code"]
        assert await client.oauth.exchange_code(sandbox.authorization_code)


async def test_one_sandbox_uses_a_file(tmp_path):
    """A second one says so; when the first has ended, it may."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path):
        with pytest.raises(OSError, match="another sandbox uses it"):
            Sandbox(db=path)
    async with Sandbox(db=path):
        pass


async def test_a_file_can_be_restored(tmp_path, connect, order):
    """A snapshot brings back what a file had, and it stays so after a restart."""
    path = str(tmp_path / "sandbox.db")
    async with Sandbox(db=path) as sandbox, connect(sandbox) as client:
        made = await client.orders.create(order())
        sandbox.platform.snapshot()
        await client.orders.cancel(made.id)
        sandbox.platform.restore()
        assert "created" == (await client.orders.get(made.id)).status
    async with Sandbox(db=path) as sandbox:
        assert ["order_created"] == [entry.kind for entry in sandbox.ledger()]


@pytest.mark.parametrize("content", [b"not a database, but a text that is long enough to be looked at", None])
def test_a_file_that_is_no_sandbox_is_rejected(tmp_path, content):
    """Something else in it, or a directory that is not there."""
    path = tmp_path / "x" / "sandbox.db"
    if content:
        path.parent.mkdir()
        path.write_bytes(content)

    with pytest.raises(OSError, match="cannot use"):
        Sandbox(db=str(path))


@pytest.mark.parametrize("table", ["orders", "settings"])
def test_the_database_of_another_program_is_left_alone(tmp_path, table):
    """It is rejected, also where a table has a name that the sandbox uses, and not a byte of it is changed."""
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"CREATE TABLE {table} (a, b, c)")
    before = path.read_bytes()

    with pytest.raises(OSError, match="it is the database of another program"):
        Sandbox(db=str(path))

    assert before == path.read_bytes()


def test_identifiers_sort_by_time():
    """26 characters of Crockford's alphabet after the prefix; later is greater."""
    ids = Ids(1)
    early, late = ids.sortable("ORD", NOW), ids.sortable("ORD", NOW + timedelta(milliseconds=1))

    assert 29 == len(early)
    assert early < late
    assert not set(early[3:]) & set("ILOUabc")


def test_other_identifiers_have_their_lengths():
    """Digits, hexadecimal digits, a UUID."""
    ids = Ids(1)

    assert all(10**8 <= ids.number(9) < 10**9 for _ in range(100))
    assert {24} == {len(ids.token(24)) for _ in range(100)}
    assert "4" == ids.uuid()[14]
    assert Ids(1).token() == Ids(1).token() != Ids(2).token()


@pytest.mark.control("paymentsdk.sandbox._store.Store.unused", lambda self, noun, number: number())
async def test_no_number_is_given_twice(sandbox, client, order, monkeypatch):
    """A new seller, merchant order or invoice never takes the place of another, however often chance repeats itself."""
    fours = count()
    monkeypatch.setattr(Ids, "number", lambda _, digits=10: 10 ** (digits - 1) + next(fours) // 4)

    sellers = {sandbox.create_tenant().user_id for _ in range(5)}
    for _ in range(5):
        sandbox.buyer.pay(await client.orders.create(order()))
        sandbox.buyer.subscribe()
    sold, invoices = await client.merchant_orders.search().collect(), await client.invoices.search().collect()

    assert [5, 5, 5] == [len(sellers), len(sold), len({one.preapproval_id for one in invoices})]


def test_a_file_has_a_write_ahead_log(tmp_path):
    """Without a journal a kill amid a commit would leave a half of it, and a rollback would undo nothing."""
    with closing(Platform(db=str(tmp_path / "sandbox.db"))) as platform:
        connection = platform.store._connection
        modes = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]

    assert ["wal", 1] == modes


def test_the_store_is_not_read_amid_the_transaction_of_another_thread():
    """A reader would see what may never be committed: it waits for the lock."""
    store, seen = Store([THINGS]), []

    def read() -> None:
        seen.append(store.ledger())

    with store.transaction():
        store.append(1, b"{}")
        reader = threading.Thread(target=read)
        reader.start()
        reader.join(0.05)
        amid = list(seen)
    reader.join()
    store.close()

    assert ([], [[b"{}"]]) == (amid, seen)
