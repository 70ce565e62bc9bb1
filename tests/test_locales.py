"""SQLite files of the package do not depend on the locale. Run as a program, this module uses each file."""

from __future__ import annotations

import asyncio
import locale
import logging
import os
import shutil
import subprocess
import sys
from contextlib import closing, suppress
from decimal import Decimal
from pathlib import Path

import pytest

from paymentsdk import FlowControl, PaymentsClient, RateShare, Request, Response, SQLiteTokenStore, TokenPair
from paymentsdk.journal import SQLiteJournal
from paymentsdk.reconcile import walk
from paymentsdk.reconcile._checkpoint import Checkpoint
from paymentsdk.resources.preferences import PreferenceItemRequest, PreferenceRequest
from paymentsdk.sandbox import Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.platform import TOKEN, URL, Platform, order
from tests.reconcile.platform import CAP
from tests.reconcile.served import WEEK, Served, client_of, quiet, written

ROOT = Path(__file__).parents[1]
#: In Turkish, the small letter of I has no dot: CPython 3.11 does not see there that "INSERT" is "insert".
LOCALE = "tr_TR.UTF-8"


def test_no_locale_matters(tmp_path: Path) -> None:
    """A name makes one preference; a token, a rate, a walk and a sandbox are saved and read back."""
    if shutil.which("localedef") is None:
        pytest.skip("needs localedef")
    command = ["localedef", "-i", "tr_TR", "-f", "UTF-8", str(tmp_path / LOCALE)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    if not (tmp_path / LOCALE).exists():
        pytest.skip(f"needs the sources of locales: {compiled.stderr}")
    environment = {**os.environ, "LC_ALL": LOCALE, "LOCPATH": str(tmp_path)}
    command = [sys.executable, "-m", "tests.test_locales", str(tmp_path)]
    process = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8", check=False, timeout=100
    )

    assert (0, "") == (process.returncode, process.stderr)


async def name_preferences(folder: Path) -> None:
    """Make a preference with one name in three concurrent calls. It has no key, so only the journal prevents three."""
    item = PreferenceItemRequest(title="Coffee", quantity=1, unit_price=Decimal("10.50"))
    preference, posts, clock = PreferenceRequest(items=[item], external_reference="A-1"), list[Request](), FakeClock()

    def make(request: Request) -> Response:
        if request.method == "GET":
            return Platform(clock)(request)
        posts.append(request)
        return Response(201, {}, b'{"id":"preference-%d",%s' % (len(posts), request.body[1:]))

    async with PaymentsClient(
        TOKEN,
        base_url=URL,
        clock=clock,
        journal=SQLiteJournal(folder / "payments.db", now=clock.now),
        transport=MemoryTransport(make),
        flow=FlowControl(share=RateShare(folder / "rates.db", 1000)),
    ) as client:
        preferences = await asyncio.gather(*(client.preferences.create(preference, once="p") for _ in range(3)))

    assert 1 == len({preference.id for preference in preferences}) == len(posts)


async def restart_a_sandbox(folder: Path) -> None:
    """Keep an order and a snapshot in a file, and read them back."""
    db, ids = str(folder / "sandbox.db"), []
    for _ in range(2):
        async with Sandbox(db=db, seed=1) as sandbox:
            async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
                ids.append((await client.orders.create(order(), idempotency_key="k")).id)
            sandbox.snapshot("s")
            sandbox.restore("s")

    assert ids[0] == ids[1]


async def walk_twice(folder: Path) -> None:
    """Walk a week twice in the same directory."""
    served, reports = Served(quiet(1)), []
    for _ in range(2):
        async with client_of(served) as client:
            reports.append(await walk(client, created=WEEK, out=folder / "walk", max_window=CAP))

    assert written(reports[0]) == written(reports[1])
    assert 150 == reports[1].rows


async def undo_half_a_step(folder: Path) -> None:
    """Discard a step of a walk that fails in the middle: a file without its windows would duplicate rows."""
    with closing(Checkpoint(folder / "half", '{"accounts": [""]}')) as checkpoint:
        with suppress(ZeroDivisionError):
            checkpoint.commit((1 / number for number in [0]), [("1.parquet", True)])

        assert [] == checkpoint.names()


async def keep_a_token(folder: Path) -> None:
    """Save and load a pair."""
    store, pair = SQLiteTokenStore(folder / "tokens.db", "shop"), TokenPair(access_token="APP_USR-1", refresh_token="2")
    await store.save(pair)

    assert pair == await store.load()


async def main(folder: Path) -> None:
    """Use each SQLite file of the package."""
    for use in (name_preferences, restart_a_sandbox, walk_twice, undo_half_a_step, keep_a_token):
        await use(folder)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    assert locale.setlocale(locale.LC_CTYPE) == LOCALE, "the locale cannot be used"
    asyncio.run(main(Path(sys.argv[1])))
