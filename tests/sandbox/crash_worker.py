"""Kills itself at every moment of an order's life, and looks what is left; run by test_crash.py.

Before each of its statements a child is killed that makes, pays and refunds an order, with the same keys every time.
Then the whole is done again on the same file, as a client does who got no response.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
from collections.abc import Collection
from contextlib import closing, nullcontext
from pathlib import Path

from paymentsdk.resources import orders
from paymentsdk.sandbox import Buyer, Platform
from paymentsdk.sandbox._pipeline import ReceivedRequest, authenticate, execute
from paymentsdk.sandbox._records import MERCHANT_ORDERS, ORDERS

BODY = json.dumps(orders.CREATE.example).encode()


def ask(platform: Platform, operation, key: str, body: bytes = b"", **path: str) -> dict:
    """Do what a request does, without a network."""
    token = platform.default_tenant().access_token
    received = ReceivedRequest(operation=operation, path=path, authorization=f"Bearer {token}", key=key, body=body)
    platform.run_due()
    tenant = authenticate(platform, received)
    reply = execute(platform, received, tenant)
    asyncio.run(platform.store.committed())
    return json.loads(reply.body)


def live(platform: Platform) -> None:
    """Make, pay and refund an order; every step can be done again."""
    new_order = ask(platform, orders.CREATE, "create", BODY)
    if platform.store.get(ORDERS, new_order["id"]).order.status == "created":
        Buyer(platform).pay(new_order["id"])
    part = {"transactions": [{"id": new_order["transactions"]["payments"][0]["id"], "amount": "20.00"}]}
    ask(platform, orders.REFUND, "part", json.dumps(part).encode(), order_id=new_order["id"])
    ask(platform, orders.REFUND, "rest", order_id=new_order["id"])


class Killer:
    """A connection that dies before its statement number *at*."""

    def __init__(self, connection: sqlite3.Connection, at: int) -> None:
        self._connection, self._left = connection, at

    def __getattr__(self, name: str) -> object:
        if name.startswith("execute"):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._connection, name)


def open_platform(path: Path, options: Collection[str] = ()) -> Platform:
    """Open the books in *path*, with the defences or without one."""
    platform = Platform(db=str(path))
    platform.bind("http://sandbox")
    if "--without-transactions" in options:  # Every statement is committed by itself.
        platform.store.transaction = lambda **_: nullcontext()
    return platform


def wrong(path: Path) -> list[str]:
    """Say what is wrong with the books after everything was done twice."""
    platform = open_platform(path)
    kinds = [entry.kind for entry in platform.ledger()]
    expected = ["order_created", "payment", "refund", "refund"]
    problems = [] if kinds == expected else [f"the ledger has {kinds}"]
    if platform.store.count(ORDERS, None) != 1:
        problems.append(f"there are {platform.store.count(ORDERS, None)} orders")
    if sum(entry.amount for entry in platform.ledger()) != 0:
        problems.append("money was lost or made")
    rows = [row.merchant_order for row in platform.store.find(MERCHANT_ORDERS, None)]
    if [(row.order_status, str(row.refunded_amount)) for row in rows] != [("reverted", "50.00")]:
        problems.append(f"the merchant orders are {rows}")
    platform.close()
    return problems


def main(directory: Path, options: Collection[str]) -> None:
    """Print one line of JSON: how many moments there were, and what was wrong after a kill at each."""
    fresh = directory / "fresh.db"
    platform = open_platform(fresh)
    platform.default_tenant()
    platform.close()
    results: dict[int, list[str]] = {}
    at = 1 - (step := 3 if "--every-third" in options else 1)
    finished = False
    while not finished:
        at += step
        path = directory / "killed.db"
        for file in directory.glob("killed.db*"):
            file.unlink()
        shutil.copy(fresh, path)
        child = os.fork()
        if child == 0:
            platform = open_platform(path, options)
            platform.store._connection = Killer(platform.store._connection, at)
            live(platform)
            os._exit(0)
        finished = os.waitpid(child, 0)[1] == 0
        try:
            with closing(open_platform(path, options)) as again:
                live(again)
            results[at] = wrong(path)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            results[at] = [f"doing it again failed: {error!r}"]
    sys.stdout.write(
        json.dumps({"kills": at - 1, "wrong": {n: problems for n, problems in results.items() if problems}})
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
