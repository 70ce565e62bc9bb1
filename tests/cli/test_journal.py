"""`paymentsdk journal`: records of a real file, against a sandbox that runs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from paymentsdk import OutcomeUnknown, PaymentsClient, RetryPolicy
from paymentsdk.journal import PostgresJournal, Record, RecordState, Resolution, SQLiteJournal
from paymentsdk.sandbox import FaultRule, Sandbox
from tests.journal.conftest import make_record
from tests.journal.platform import order
from tests.postgres import Server


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test in a directory of its own, where `payments.db` is looked for."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(run: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """Run `paymentsdk journal ...`, and return its exit code, what it printed and what it said on stderr."""
    return partial(run, "journal")


def keep(record: Record, *resolutions: Resolution, lease: float = 0.0) -> str:
    """Keep *record* in `payments.db` with what became of it, and return its key."""

    async def write() -> None:
        journal = SQLiteJournal("payments.db")
        await journal.begin(record, lease=lease)
        for resolution in resolutions:
            await journal.resolve(record.key, resolution, owner=record.owner)
        await journal.aclose()

    asyncio.run(write())
    return record.key


def lose(sandbox: Sandbox, once: str) -> None:
    """Create an order whose response is lost, in a process that is gone."""
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="orders.create", times=1))

    async def create() -> None:
        settings = {"base_url": sandbox.base_url, "retry": RetryPolicy(attempts=1)}
        accounts = {"shop-1": sandbox.access_token}
        async with PaymentsClient(journal=SQLiteJournal("payments.db"), accounts=accounts, **settings) as client:
            with pytest.raises(OutcomeUnknown):
                await client.account("shop-1").orders.create(order(), once=once)

    asyncio.run(create())


def test_open_records_are_listed(run) -> None:
    """By default those that somebody may have to look at; `--all` lists the others, too."""
    keep(make_record("sold"), Resolution(state=RecordState.DONE))
    keep(make_record("in doubt", begun=200.0), Resolution(state=RecordState.UNKNOWN, reason="connection reset"))

    names = {
        arguments: [line.split("  ")[-1] for line in run("list", *arguments)[1].splitlines()[1:]]
        for arguments in ((), ("--all",))
    }

    assert {(): ["in doubt"], ("--all",): ["sold", "in doubt"]} == names
    code, out, err = run("list", "--all", "--limit", "1", "--json")
    assert (0, "only the oldest 1 are listed; raise --limit to list more\n") == (code, err)
    assert ["sold"] == [row["name"] for row in json.loads(out)]
    for command in ("show", "abandon"):
        name = {"show": "name or the key", "abandon": "key"}[command]
        assert (1, "", f"paymentsdk: no record has the {name} 'x'\n") == run(command, "x")


@pytest.mark.parametrize(("command", "is_empty"), [(["list"], False), (["recover"], True)])
def test_a_journal_that_is_not_there_is_not_made(run, directory: Path, command: list[str], is_empty: bool) -> None:
    """An empty journal in the wrong directory, or in a file that has lost all, would say that all is settled."""
    if is_empty:
        (directory / "payments.db").touch()

    code, printed, message = run(*command)

    assert (1, "") == (code, printed)
    assert "there is no journal 'payments.db'; name it with --file or PAYMENTSDK_JOURNAL\n" in message
    assert not any(file.stat().st_size for file in directory.iterdir())


def test_a_record_is_shown_without_what_was_sent(run) -> None:
    """By its name or its key, with everything but its bytes, header fields and response: they may hold credentials."""
    record = make_record("table-7/1", body=b'{"token":"s3cret"}', headers={"X-Session": "s3cret"})
    keep(record, Resolution(state=RecordState.UNKNOWN, reason="connection reset"))

    by_name, by_key = run("show", "table-7/1"), run("show", record.key)

    assert by_name == by_key
    assert f"key:         {record.key}" in by_name[1].splitlines()
    assert {"reason:      connection reset", "recoverable: yes"} <= {*by_name[1].splitlines()}
    assert "not after:   1970-01-01 00:11:40 UTC" in by_name[1].splitlines()
    assert [record.key] == [row["key"] for row in json.loads(run("show", "table-7/1", "--json")[1])]
    everything = by_name[1] + run("show", record.key, "--json")[1] + run("list", "--json")[1]
    assert "s3cret" not in everything


def test_recover_carries_out_what_is_open(run, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the credentials of the environment, whatever the program called the account: one order, and exit code 0."""
    lose(sandbox, "table-7/1")
    with monkeypatch.context() as patch:
        patch.delenv("PAYMENTSDK_ACCESS_TOKEN")
        reason = "is not set; set it to a token of the seller, or name a token store with --tokens"
        assert f"PAYMENTSDK_ACCESS_TOKEN: {reason}" in run("recover")[1]
    code, printed, progress = run("recover")

    assert (0, ["     1 done", "no record is open"]) == (code, printed.splitlines())
    assert "recovery: 1 record taken over" in progress.splitlines()
    assert 1 == len([entry for entry in sandbox.ledger() if entry.kind == "order_created"])
    assert (0, "no records\n", "") == run("list")


def test_recover_reports_open_records(run, sandbox: Sandbox) -> None:
    """Records of another seller are not sent: exit code 1, and who they belong to."""
    lose(sandbox, "table-7/1")
    keep(make_record("table-8/1", base_url=sandbox.base_url))

    code, printed, _ = run("recover", "--json")
    answer = json.loads(printed)

    assert (1, False, {"done": 1}) == (code, answer["complete"], answer["resolved"])
    assert [("table-8/1", "77")] == [(row["name"], row["seller"]) for row in answer["left"]]
    assert "left pending: table-8/1 (orders.create, seller 77)" in run("recover")[1].splitlines()


def test_abandon_closes_an_unknown_record(run) -> None:
    """Without a living owner; a later call with the name then says that its outcome is unknown."""
    key = keep(make_record("a"), Resolution(state=RecordState.UNKNOWN))

    code, printed, _ = run("abandon", key)

    assert (0, "a is abandoned: calls with this name now raise OutcomeUnknown\n") == (code, printed)
    assert "state:       abandoned" in run("show", "a")[1].splitlines()


def test_a_record_with_a_living_owner_is_not_abandoned(run) -> None:
    """Who works on it knows better; once its lease has ended, a person may."""
    held = keep(make_record("held"), lease=600.0)
    dead = keep(make_record("dead"), lease=0.0)

    code, _, message = run("abandon", held)

    assert (1, True) == (code, "a running process owns held until " in message)
    assert "state:       pending" in run("show", "held")[1].splitlines()
    assert 0 == run("abandon", dead)[0]


@pytest.mark.parametrize("state", [RecordState.DONE, RecordState.REFUSED])
def test_a_closed_record_is_not_abandoned(run, state: RecordState) -> None:
    """What became of it is known."""
    key = keep(make_record("a"), Resolution(state=state))

    code, _, message = run("abandon", key)

    assert (1, f"paymentsdk: a is {state.value} already, so it cannot be abandoned\n") == (code, message)


# --- in PostgreSQL ------------------------------------------------------------------------------------------------


def test_a_journal_in_postgres_is_named_by_the_environment(
    run: Callable[..., tuple[int, str, str]], postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`PAYMENTSDK_JOURNAL` names it, with a password that no other user of the machine can see."""

    async def keep() -> str:
        journal = PostgresJournal(address := await postgres.new())
        await journal.begin(make_record(), lease=60)
        await journal.aclose()
        return address

    monkeypatch.setenv("PAYMENTSDK_JOURNAL", asyncio.run(keep()))

    code, printed, _ = run("list")

    assert 0 == code
    assert "table-7/1" in printed


def test_a_record_that_cannot_be_read_is_named(run) -> None:
    """By its key, beside the others; recovery is not complete, until a person has closed it."""
    key = keep(make_record("damaged"), Resolution(state=RecordState.UNKNOWN, reason="connection reset"))
    keep(make_record("in doubt", begun=200.0), Resolution(state=RecordState.UNKNOWN, reason="connection reset"))
    with closing(sqlite3.connect("payments.db")) as database:
        database.execute("UPDATE record SET fixed = x'00' WHERE key = ?", (key,))
        database.commit()

    _, listed, _ = run("list")
    _, text, _ = run("show", key)
    code, _, _ = run("abandon", key)

    assert [["unreadable", key[:20]], ["orders.create", "in doubt"]] == [
        [line.split()[1], line.split("  ")[-1].strip()[:20]] for line in listed.splitlines()[1:]
    ]
    assert "its row cannot be read" in text
    assert 0 == code
    assert key not in run("list")[1]


def test_a_journal_that_fails_says_so_and_no_more(run, sandbox: Sandbox, directory: Path) -> None:
    """It does not say that nothing was sent, as to a call: a recovery may have finished other records before."""
    (directory / "payments.db").write_bytes(b"no database" * 100)

    code, printed, message = run("recover")

    assert (1, "") == (code, printed)
    assert message.endswith("payments.db: file is not a database\n")
    assert "sent" not in message
