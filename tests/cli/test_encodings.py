"""What commands print on a pipe whose encoding has no form for some of it, as cp1252 of Windows has none for emoji."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sys
from collections.abc import Callable

import pytest
from msgspec import structs

from paymentsdk import PaymentsClient
from paymentsdk.cli import main
from paymentsdk.journal import SQLiteJournal
from paymentsdk.sandbox import Sandbox
from tests.journal.platform import order

TEXT = "Té ☕ 😀 Ωß"


@pytest.fixture
def piped(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[bytes, bytes]]:
    """Run a command against a sandbox with one order; return the bytes of stdout and stderr."""

    async def sell() -> str:
        async with PaymentsClient.from_env(journal=SQLiteJournal("payments.db")) as client:
            return (await client.orders.create(structs.replace(order(), description=TEXT), once=TEXT)).id

    order_id = asyncio.run(sell())

    def run(encoding: str, *arguments: str, code: int = 0) -> tuple[bytes, bytes]:
        streams = [io.TextIOWrapper(io.BytesIO(), encoding, errors) for errors in ("strict", "backslashreplace")]
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", streams[0])
            patch.setattr(sys, "stderr", streams[1])
            assert code == main([order_id if word == "ORDER" else word for word in arguments])
        return tuple(stream.detach().getvalue() for stream in streams if not stream.flush())

    return run


def test_json_is_json(piped) -> None:
    """A program that parses it reads the very text."""
    order, _ = piped("cp1252", "orders", "get", "ORDER", "--json")
    records, _ = piped("cp1252", "journal", "list", "--all", "--json")

    assert TEXT == json.loads(order.decode("cp1252"))["description"]
    assert TEXT in [record["name"] for record in json.loads(records.decode("cp1252"))]


@pytest.mark.parametrize(("encoding", "arguments"), [
    ("ascii", "orders get ORDER"), ("cp1252", "orders get ORDER --csv"), ("utf-8", "journal list --all"),
])  # fmt: skip
def test_people_read_what_can_be_shown(piped, encoding: str, arguments: str) -> None:
    """In a table and in CSV, what has no form is escaped, and the rest stays as it is."""
    printed = piped(encoding, *arguments.split())[0].decode(encoding)
    if arguments.endswith("--csv"):
        names, row = csv.reader(printed.splitlines())
        printed = row[names.index("description")]

    expected = "".join(letter if can_encode(letter, encoding) else json.dumps(letter)[1:-1] for letter in TEXT)
    assert expected in printed


def can_encode(letter: str, encoding: str) -> bool:
    """Whether *encoding* has a form for *letter*."""
    return letter == letter.encode(encoding, "ignore").decode(encoding)
