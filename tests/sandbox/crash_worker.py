"""Kills itself at every single statement of an order's life, and looks what is left; run by test_crash.py.

For each statement: a child makes, pays and refunds an order, with the same keys every time, and is killed by SIGKILL
right before that statement. Then the whole is done again on the same file, as a client does who got no answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import sys
from contextlib import nullcontext
from pathlib import Path

from paymentsdk.resources import orders
from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._faults import Hit
from paymentsdk.sandbox._pipeline import Incoming, authenticate, execute
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._records import MERCHANT_ORDERS, ORDERS

BODY = json.dumps(orders.CREATE.example).encode()


def ask(platform: Platform, operation, key: str, body: bytes = b"", **path: str) -> dict:
    """Do what a request does, without a network."""
    token = platform.default_tenant().access_token
    incoming = Incoming(
        path=path, query={}, authorization=f"Bearer {token}", content_type="application/json", key=key, body=body
    )
    platform.run_due()
    principal = authenticate(platform, operation, incoming, live_tokens=False)
    return json.loads(execute(platform, operation, incoming, principal, Hit()).body)


def live(platform: Platform) -> None:
    """Make, pay and refund an order; every step can be done again."""
    made = ask(platform, orders.CREATE, "create", BODY)
    if platform.store.get(ORDERS, made["id"]).order.status == "created":
        Buyer(platform).pay(made["id"])
    part = {"transactions": [{"id": made["transactions"]["payments"][0]["id"], "amount": "20.00"}]}
    ask(platform, orders.REFUND, "part", json.dumps(part).encode(), order_id=made["id"])
    ask(platform, orders.REFUND, "rest", order_id=made["id"])


class Killer:
    """A connection that dies before its statement number *at*."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._connection, self._left = connection, at

    def execute(self, *statement: object) -> sqlite3.Cursor:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._connection.execute(*statement)

    def close(self) -> None:
        self._connection.close()


def open_platform(path: Path, *, sabotage: bool) -> Platform:
    """Open the books in *path*, with or without the defence."""
    platform = Platform(db=str(path))
    platform.bind("http://sandbox")
    if sabotage:  # The defence taken away: every statement is committed by itself.
        platform.store.transaction = nullcontext
    return platform


def wrong(path: Path) -> list[str]:
    """Say what is wrong with the books after everything was done twice."""
    platform = open_platform(path, sabotage=False)
    kinds = [entry.kind for entry in platform.ledger()]
    expected = ["order_created", "payment", "refund", "refund"]
    found = [] if kinds == expected else [f"the ledger has {kinds}"]
    if platform.store.count(ORDERS, None) != 1:
        found.append(f"there are {platform.store.count(ORDERS, None)} orders")
    if sum(entry.amount for entry in platform.ledger()) != 0:
        found.append("money was lost or made")
    rows = [row.merchant_order for row in platform.store.find(MERCHANT_ORDERS, None)]
    if [(row.order_status, str(row.refunded_amount)) for row in rows] != [("reverted", "50.00")]:
        found.append(f"the merchant orders are {rows}")
    platform.close()
    return found


def main(directory: Path, *, sabotage: bool) -> None:
    """Print one line of JSON: how many statements there were, and what was wrong after a kill at each."""
    fresh = directory / "fresh.db"
    platform = open_platform(fresh, sabotage=False)
    platform.default_tenant()
    platform.close()
    results: dict[int, list[str]] = {}
    at = 0
    finished = False
    while not finished:
        at += 1
        path = directory / "killed.db"
        for file in directory.glob("killed.db*"):
            file.unlink()
        shutil.copy(fresh, path)
        child = os.fork()
        if child == 0:
            platform = open_platform(path, sabotage=sabotage)
            platform.store._connection = Killer(platform.store._connection, at)
            live(platform)
            os._exit(0)
        finished = os.waitpid(child, 0)[1] == 0
        again = open_platform(path, sabotage=sabotage)
        try:
            live(again)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            results[at] = [f"doing it again failed: {error!r}"]
        finally:
            again.close()
        results[at] = results.get(at, []) + wrong(path)
    sys.stdout.write(json.dumps({"statements": at - 1, "wrong": {n: found for n, found in results.items() if found}}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sabotage=sys.argv[2:] == ["--sabotage"])
