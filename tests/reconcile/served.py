"""The platform in memory behind a transport; as a program, walks over it that kill themselves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pyarrow.parquet

from paymentsdk import PaymentsClient, Request, Response, RetryPolicy
from paymentsdk.reconcile import WalkReport, _walk, walk
from paymentsdk.reconcile._checkpoint import DoneWindow
from paymentsdk.reconcile._merchant_orders import Rows
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.reconcile.model import CREATED
from tests.reconcile.platform import CAP, NOW, Platform, Row, milliseconds, moment_of

#: The week of the model, as the public interface takes it.
WEEK = (moment_of(CREATED.begin), moment_of(CREATED.end))


class Autumn(tzinfo):
    """A zone in the night in which its clocks go back: no machine has to have a database of them."""

    def utcoffset(self, moment: datetime | None) -> timedelta:
        return timedelta(hours=-4 if moment and moment.fold else -3)

    def dst(self, moment: datetime | None) -> timedelta:
        return self.utcoffset(moment) - timedelta(hours=-4)


class Served:
    """Responds to searches for the rows of a platform.

    Args:
        platform: It has the rows.
        spoil: Changes the rows of a page before they are sent.
    """

    def __init__(self, platform: Platform, spoil: Callable[[list[dict]], object] = lambda rows: None) -> None:
        self.platform = platform
        self.spoil = spoil
        self.in_flight = self.most_in_flight = 0

    async def __call__(self, request: Request) -> Response:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0)
        self.in_flight -= 1
        query = dict(parse_qsl(urlsplit(request.url).query))
        begin, end = (asked_moment(query.get(f"date_created_{which}")) for which in ("from", "to"))
        limit = int(query["limit"]) if "limit" in query else None
        page = self.platform.show(begin, end, int(query["offset"]), limit)
        if page is None:
            return answer(self.platform.now, {"error": "ds_search_query", "message": "offset"}, 400)
        rows = [as_json(row) for row in page[0]]
        self.spoil(rows)
        return answer(self.platform.now, {"elements": rows, "total": page[1], "next_offset": 0})


def answer(now: int, body: object, status: int = 200) -> Response:
    """A response of a platform whose clock is at *now*."""
    headers = {"Date": format_datetime(moment_of(now).astimezone(UTC), usegmt=True)}
    return Response(status, headers, body if isinstance(body, bytes) else json.dumps(body or {}).encode())


def as_json(row: Row) -> dict[str, object]:
    """A row as the platform sends it."""
    return {
        "id": row.id,
        "status": "closed",
        "order_status": "paid",
        "external_reference": f"order-{row.id}",
        "date_created": None if row.created is None else moment_of(row.created).isoformat(timespec="milliseconds"),
        "last_updated": moment_of(row.updated).isoformat(timespec="milliseconds"),
        "total_amount": 24.90,
        "paid_amount": 24.90,
        "refunded_amount": 0,
        "payments": [{"id": row.id, "currency_id": "EUR"}],
    }


def asked_moment(text: str | None) -> int | None:
    """A moment of a query, in milliseconds since 1970."""
    return None if text is None else milliseconds(datetime.fromisoformat(text))


def client_of(handler: Callable[[Request], object]) -> PaymentsClient:
    """A client that finds the rows of *handler*."""
    return PaymentsClient(
        "token",
        base_url="https://x",
        transport=MemoryTransport(handler),
        clock=FakeClock(),
        retry=RetryPolicy(attempts=1),
    )


def quiet(seed: int, rows: int = 150, **settings: object) -> Platform:
    """A platform whose rows stay, so that two walks over it find the same."""
    platform = Platform(seed, **settings)
    platform.fill(rows, CREATED.begin, NOW - 3_600_000)
    return platform


def written(report: WalkReport | Path) -> list[tuple[str, int]]:
    """The account and the id of every row that was written, in order."""
    files = report.parts if isinstance(report, WalkReport) else sorted(report.glob("*.parquet"))
    rows: list[tuple[str, int]] = []
    for file in files:
        table = pyarrow.parquet.read_table(file)
        rows += zip(table["account"].to_pylist(), map(int, table["id"].to_pylist()), strict=True)
    return sorted(rows)


def entered_first(self: _walk.Walk, pending: Sequence[tuple[DoneWindow, Rows]]) -> None:
    """What must not be: a window in the checkpoint before its rows are in their file."""
    name = f"{uuid4().hex}.parquet"
    self.commit([window for window, _ in pending], [(name, True)])
    _walk.write([], self.directory / "999999.unfinished")
    _walk.write([rows for _, rows in pending], self.directory / name)


def client_of_sellers(handlers: Mapping[str, Callable[[Request], object]]) -> PaymentsClient:
    """A client of several sellers, each with a platform of its own, found by its token."""

    def answer(request: Request) -> object:
        return handlers[request.headers["Authorization"].removeprefix("Bearer token-of-")](request)

    return PaymentsClient(
        base_url="https://x",
        accounts="token-of-{}".format,
        transport=MemoryTransport(answer),
        clock=FakeClock(),
        retry=RetryPolicy(attempts=1),
    )


SELLERS = ("one", "two")


def sellers_of(seed: int) -> dict[str, Served]:
    """Return two sellers, the same in every process."""
    return {name: Served(quiet(seed + i, order="random")) for i, name in enumerate(SELLERS)}


async def walk_and_die(out: Path, calls: int, place: str) -> None:
    """Walk, and kill this process: at a call, or between a file and the checkpoint that names it."""
    remaining = calls

    def tick() -> None:
        nonlocal remaining
        remaining -= 1
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    def dying(handler: Served) -> Callable[[Request], object]:
        async def answer(request: Request) -> Response:
            if place == "call":
                tick()
            return await handler(request)

        return answer

    write = _walk.write
    if place in ("written", "early"):
        _walk.write = lambda *arguments: (write(*arguments), tick())
    if place == "early":
        _walk.Walk._save = entered_first
    _walk.COMMIT_EVERY = 0.0
    client = client_of_sellers({name: dying(served) for name, served in sellers_of(1).items()})
    await walk(client, created=WEEK, out=out, accounts=SELLERS, max_window=CAP, lag=timedelta(minutes=5))


def main(folder: Path) -> None:
    """Have forks of this process walk into a folder of each place, and write how each ended."""
    statuses = {}
    for place, kills in {"call": (17, 29), "written": (2, 3), "early": (3,)}.items():
        for calls in (*kills, *[10**9] * (place != "early")):
            if not (child := os.fork()):
                asyncio.run(walk_and_die(folder / place, calls, place))
                os._exit(0)
            statuses[f"{place}-{calls}"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    (folder / "statuses").write_text(json.dumps(statuses))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
