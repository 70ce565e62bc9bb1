"""The processes in a rule of a journal, and the record that they share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from typing import TypeAlias

from msgspec import structs

from paymentsdk.journal import Action, Journal, Record, RecordState, Resolution, derive_key
from paymentsdk.journal import _record as states
from paymentsdk.testing._expectation import expect

#: Makes a journal on the store of the case; the given clock is the clock of its leases.
MakeJournal: TypeAlias = Callable[[Callable[[], float]], Journal]

LEASE = 60.0
_BODY = b'{"total_amount":"24.90"}'


class Processes:
    """The processes of a case: two or more journals on one store, and one clock.

    A journal makes no decisions itself: each step uses another process than the step before, and then every process has
    to read the row that the rules in `paymentsdk.journal` return.
    """

    def __init__(self, make_journal: MakeJournal) -> None:
        self._make = make_journal
        self.time: float = 1_000.0
        self.rows: dict[str, Record] = {}
        self.journals: list[Journal] = []
        self._next = itertools.cycle((self.journal(), self.journal()))

    def journal(self) -> Journal:
        """Return the journal of one more process."""
        journal = self._make(lambda: self.time)
        self.journals.append(journal)
        return journal

    async def close(self) -> None:
        """Close the journals of all processes."""
        for journal in self.journals:
            await journal.aclose()

    async def begin(self, record: Record, expected: Action = Action.SEND, *, lease: float = LEASE) -> Record:
        """Begin a record in the next process, which must return the *expected* action; return its row."""
        _, row = states.begin_record(self.rows.get(record.key), record, now=self.time, lease=lease)
        action, returned = await next(self._next).begin(record, lease=lease)
        expect(action is expected, f"{record!r} is {action}, not {expected}")
        return await self._wrote(row, returned)

    async def renew(self, key: str, *, owner: str, lease: float) -> Record:
        """Renew a lease in the next process, and return the row."""
        row = states.renew_lease(self.rows[key], owner=owner, now=self.time, lease=lease)
        return await self._wrote(row, await next(self._next).renew(key, owner=owner, lease=lease))

    async def resolve(
        self, key: str, resolution: Resolution | RecordState, *, owner: str = "a/1", leaves: RecordState | None = None
    ) -> Record:
        """Resolve a record in the next process, and return its row; *leaves* is the state if it stays another."""
        resolution = Resolution(state=resolution) if isinstance(resolution, RecordState) else resolution
        row = states.resolve_record(self.rows[key], resolution, owner=owner, now=self.time)
        returned = await next(self._next).resolve(key, resolution, owner=owner)
        expect(returned.state is (leaves or resolution.state), f"{resolution.state} by {owner} has left {returned!r}")
        return await self._wrote(row, returned)

    async def claim(self, *sellers: str, owner: str = "b/1", keys: Collection[str] | None = None) -> list[str]:
        """Claim the records of *keys* in the next process, by default of all keys, and return their names."""
        keys = tuple(self.rows) if keys is None else keys
        claimed = await next(self._next).claim(sellers, owner=owner, lease=LEASE, keys=keys)
        for row in [self.rows[key] for key in keys if key in self.rows]:
            expected = states.claim_record(row, sellers=sellers, owner=owner, now=self.time, lease=LEASE)
            await self._wrote(expected, *(record for record in claimed if record.key == row.key))
        return [row.name for row in claimed]

    async def records(self, *among: RecordState, limit: int = 100) -> list[str]:
        """List records in the next process, and return their names."""
        rows = await next(self._next).records(among, limit=limit)
        for row in rows:
            await self._wrote(self.rows[row.key], row)
        return [row.name for row in rows]

    async def purge(self, before: float) -> int:
        """Purge in the next process, and return how many rows it has reduced."""
        count = await next(self._next).purge(before)
        for row in self.rows.values():
            await self._wrote(states.tombstone(row) if row.state in states.CLOSED and row.begun < before else row)
        return count

    async def _wrote(self, row: Record, *returned: Record) -> Record:
        """Check that each record in *returned* equals *row*, and that every process reads *row*; return *row*."""
        self.rows[row.key] = row
        for record in (*returned, *[await journal.get(row.key) for journal in self.journals]):
            pairs = {name: (getattr(record, name, None), getattr(row, name)) for name in row.__struct_fields__}
            wrong = [
                f"{name} is {value!r}, not {expected!r}"
                for name, (value, expected) in pairs.items()
                if value != expected
            ]
            expect(not wrong, f"in {row!r}, {', '.join(wrong)}")
        return row


def record_of(
    name: str = "table-7/1", *, body: bytes | None = _BODY, seller: str = "77", owner: str = "a/1", **more: object
) -> Record:
    record = Record(
        key=derive_key("http://127.0.0.1", seller, "orders.create", name),
        name=name,
        operation="orders.create",
        base_url="http://127.0.0.1",
        seller=seller,
        account="shop-1",
        path="/v1/orders",
        headers={"X-Platform-Session-Id": "device-1"},
        body=body,
        digest=states.digest("POST", "/v1/orders", body or b""),
        begun=500.0,
        not_after=1_100.0,
        owner=owner,
    )
    return structs.replace(record, **more)
