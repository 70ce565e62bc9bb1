"""What commands print on a pipe whose encoding has no form for some of it, as cp1252 of Windows has none for emoji."""

from __future__ import annotations

import asyncio
import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from paymentsdk import PaymentsClient
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import Sandbox

TEXT = "Té ☕ 😀 Ωß"


@pytest.fixture(scope="module")
def piped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[bytes, bytes]]]:
    """Run a command against a sandbox with one order; it has to succeed. Return the bytes of stdout and stderr."""
    folder: Path = tmp_path_factory.mktemp("shop")
    payments = TransactionsRequest(payments=[PaymentRequest(amount=Decimal(10))])
    request = OrderRequest(external_reference="A-1", description=TEXT, total_amount=Decimal(10), transactions=payments)

    async def sell() -> str:
        journal = SQLiteJournal(folder / "payments.db")
        async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url, journal=journal) as client:
            return (await client.orders.create(request, once=TEXT)).id

    with Sandbox().in_thread() as sandbox:
        order = asyncio.run(sell())
        access = {"PAYMENTSDK_BASE_URL": sandbox.base_url, "PAYMENTSDK_ACCESS_TOKEN": sandbox.access_token}

        def run(encoding: str, *arguments: str, code: int = 0) -> tuple[bytes, bytes]:
            command = [sys.executable, "-m", "paymentsdk", *(order if word == "ORDER" else word for word in arguments)]
            environment = {**os.environ, **access, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
            process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False, timeout=60)
            assert code == process.returncode, process.stderr
            return process.stdout, process.stderr

        yield run


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


def test_errors_are_escaped(piped) -> None:
    """The error of a name that there is not has the name, as far as stderr can show it."""
    _, error = piped("ascii", "journal", "show", "mesa ☕ 😀", code=1)

    assert "mesa" in error.decode("ascii")
    assert "Traceback" not in error.decode("ascii")


def can_encode(letter: str, encoding: str) -> bool:
    """Whether *encoding* has a form for *letter*."""
    return letter == letter.encode(encoding, "ignore").decode(encoding)
