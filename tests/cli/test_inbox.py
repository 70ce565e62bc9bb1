"""`paymentsdk inbox`: what a person sees of the resources that wait, and makes due again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from paymentsdk.webhooks import Inbox, Look

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with an order that waits, one that has failed, and one that is handled; the environment names it."""
    path, clock = tmp_path / "shop.db", [1000.0]

    async def handle(look: Look) -> None:
        if look.id == "ORD2":
            raise ValueError

    async def fill() -> None:
        inbox = Inbox(path, now=lambda: clock[0])
        for number in (2, 3):
            await inbox.put("77", "orders", f"ORD{number}")
        async with inbox.handling(handle, every=0.001):
            while not (await inbox.depth()).failed:
                clock[0] += 3600
                await asyncio.sleep(0)
        await inbox.put("77", "orders", "ORD1")

    asyncio.run(fill())
    monkeypatch.setenv("PAYMENTSDK_INBOX", str(path))
    return str(path)


@pytest.fixture
def run(run: Run) -> Run:
    """Run `paymentsdk inbox ...`."""
    return partial(run, "inbox")


def test_list_shows_what_waits_and_what_has_failed(run: Run, database: str) -> None:
    """What is at rest is not listed; `--failed` lists what waits for a person."""
    code, out, _ = run("list")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [
        ["STATUS", "ATTEMPT", "SELLER", "TOPIC", "ID"],
        ["failed", "20", "77", "orders", "ORD2"],
        ["waiting", "0", "77", "orders", "ORD1"],
    ]
    assert [row["id"] for row in json.loads(run("list", "--failed", "--json")[1])] == ["ORD2"]


def test_show_says_why_and_what_was_handled(run: Run, database: str) -> None:
    """All that is known of a resource, also of one at rest."""
    code, out, _ = run("show", "ORD2")
    assert code == 0
    assert "status:  failed" in out
    assert "reason:  ValueError" in out
    assert "at rest" in run("show", "ORD3")[1]
    assert run("show", "ORD9")[::2] == (1, "paymentsdk: the inbox has no 'ORD9'\n")


def test_retry_makes_due_what_has_failed(run: Run, database: str) -> None:
    """Once; what has not failed is left alone."""
    assert run("retry", "ORD2")[:2] == (0, "1 resource made due\n")
    assert "waiting" in run("show", "ORD2")[1]
    for name in ("ORD2", "ORD1", "ORD9"):
        assert run("retry", name)[::2] == (1, f"paymentsdk: the inbox has no {name!r} that has failed\n")


def test_an_inbox_that_is_not_there_is_not_made(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits in an inbox that was made now: that would hide what waits in the right one."""
    monkeypatch.delenv("PAYMENTSDK_INBOX", raising=False)
    for arguments in ((), ("--file", str(tmp_path / "none.db"))):
        code, _, err = run("list", *arguments)
        assert code == 1
        assert "there is no inbox '" in err
        assert "name it with --file or PAYMENTSDK_INBOX" in err
    assert list(tmp_path.iterdir()) == []


def test_an_inbox_on_a_server_is_named_by_the_environment(run: Run, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its password is in no command line."""
    monkeypatch.setenv("PAYMENTSDK_INBOX", dsn)
    assert run("list")[:2] == (0, "nothing waits\n")
