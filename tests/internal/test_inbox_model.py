"""A model of receivers, workers, kills and the network: the inbox loses nothing and does nothing twice."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from paymentsdk._database import Connection, Kind
from paymentsdk.webhooks import _table
from tests.webhooks.model import LEASE, Claim, EventIds, Modelled, Unfenced, play

#: Runs of the model, and so many that a control breaks ten times in them.
RUNS, CONTROLS, ON_TABLES = 500, 250, 100
ORDER = ("77", "orders", "ORD1")


def test_what_was_promised_is_handled_once() -> None:
    """Whatever is killed, lost, repeated or reordered: each state is handled once, in order, and the last one is."""
    outcome = play(Modelled, RUNS)

    assert (outcome.lost, outcome.twice, outcome.stale) == (0, 0, 0)
    assert outcome.handled > RUNS


def test_an_inbox_of_event_ids_loses_and_doubles() -> None:
    """The control: known events are answered alike, whether they are done or a dead process had them."""
    outcome = play(EventIds, CONTROLS)

    assert outcome.lost > 10
    assert outcome.twice > 10


def test_without_a_fence_work_is_done_twice() -> None:
    """The control: a worker that was killed or held up between its work and the end of its look does it again."""
    assert play(Unfenced, CONTROLS).twice > 10


class SeenIsNow(Modelled):
    """A control: the end of a look counts all messages as seen, also those that came after the read."""

    def settle(self, claim: Claim, now: float) -> None:
        """See `Store.settle`."""
        self.claimed = self.wanted
        super().settle(claim, now)


class DuesEndNow(Modelled):
    """A control: the end of a look drops the moments that have come after its read."""

    def settle(self, claim: Claim, now: float) -> None:
        """See `Store.settle`."""
        self.claimed_at = now
        super().settle(claim, now)


class OrderIsNothing(Modelled):
    """A control: a state is handled, though a later one was."""

    def is_new(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Store.is_new`."""
        return state not in dict(self.fences)

    def work(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Store.work`."""
        if not self.is_new(claim, state, updated):
            return False
        self.fences.append((state, updated))
        self.ledger.append((state, updated))
        return True


@pytest.mark.parametrize(("control", "fault"), [(SeenIsNow, "lost"), (DuesEndNow, "lost"), (OrderIsNothing, "stale")])
def test_each_rule_is_needed(control: type[Modelled], fault: str) -> None:
    """Without one of the rules, something is lost, or handled after what came later."""
    assert any(getattr(play(control, 50, first=first), fault) for first in range(0, 5000, 50))


class Tables:
    """The inbox in the tables of the package. The handler has a connection of its own, for its work and its fence."""

    def __init__(self, connection: Connection, handler: sqlite3.Connection, clock: list[float]) -> None:
        self._connection = connection
        self._handler = handler
        self._clock = clock
        self._claims: dict[str, _table.Claim] = {}

    @contextmanager
    def _at(self, now: float) -> Iterator[Connection]:
        self._clock[0] = now
        self._connection.begin(Kind.WRITES, math.inf)
        yield self._connection
        self._connection.commit()

    def put(self, event: str, now: float, due: float | None = None) -> bool:
        """See `Store.put`."""
        with self._at(now) as connection:
            _table.put(connection, [(*ORDER, due)])
        return False

    def claim(self, owner: str, now: float) -> Claim | None:
        """See `Store.claim`."""
        owner = f"{owner}-{len(self._claims)}"
        with self._at(now) as connection:
            claims = _table.claim(connection, owner, LEASE, 1, timedelta(days=90))
        if not claims:
            return None
        [(self._claims[owner], _)] = claims
        return Claim(owner)

    def is_new(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Store.is_new`."""
        with self._at(self._clock[0]) as connection:
            return state not in _table.handled(connection, ORDER)

    def work(self, claim: Claim, state: str, updated: float) -> bool:
        """See `Store.work`."""
        fence = _table.fence(self._claims[claim.owner], state, updated)
        with suppress(sqlite3.IntegrityError), self._handler:
            self._handler.execute(fence)
            self._handler.execute("INSERT INTO sale VALUES (?, ?)", (state, updated))
            return True
        return False

    def settle(self, claim: Claim, now: float) -> None:
        """See `Store.settle`."""
        with self._at(now) as connection:
            _table.end(connection, self._claims[claim.owner], attempt=1, reason="", states=[], pause=1.0)

    def fail(self, claim: Claim, states: list[str], now: float) -> None:
        """See `Store.fail`."""
        with self._at(now) as connection:
            claimed, reason = self._claims[claim.owner], "it has failed"
            _table.end(connection, claimed, attempt=1, reason=reason, states=states, pause=1.0)

    def next_due(self) -> float:
        """See `Store.next_due`."""
        [(ready,)] = self._connection.fetch("SELECT ready FROM {table}")
        return math.inf if ready is None else ready

    def handled(self) -> list[tuple[str, float]]:
        """See `Store.handled`."""
        return self._handler.execute("SELECT state, updated FROM sale ORDER BY rowid").fetchall()


def test_the_tables_keep_the_rules_of_the_model(tmp_path: Path) -> None:
    """The statements of the package, with a real fence in the transaction of a handler, lose and double nothing."""
    clock = [0.0]
    driver = _table.driver(tmp_path / "shop.db", lambda: clock[0])
    with closing(driver.connect(math.inf)) as connection, closing(sqlite3.connect(tmp_path / "shop.db")) as handler:
        handler.execute("CREATE TABLE sale (state TEXT, updated REAL)")

        def make() -> Tables:
            with handler:
                for table in ("sale", "paymentsdk_inbox", "paymentsdk_fence"):
                    handler.execute(f"DELETE FROM {table}")
            return Tables(connection, handler, clock)

        outcome = play(make, ON_TABLES)

    assert (outcome.lost, outcome.twice, outcome.stale) == (0, 0, 0)
    assert outcome.handled > ON_TABLES
