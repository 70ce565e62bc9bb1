"""An inbox of resources that must be looked at again, and its workers."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from secrets import token_hex
from typing import TYPE_CHECKING

from msgspec import Struct

from paymentsdk._database import Database, Kind, shared
from paymentsdk._validate import check_seconds, check_within
from paymentsdk.errors import describe
from paymentsdk.resources.common import require
from paymentsdk.webhooks import _table
from paymentsdk.webhooks._table import Claim, InboxDepth, InboxRow

if TYPE_CHECKING:
    from paymentsdk.resources.orders import Order

logger = logging.getLogger("paymentsdk")

#: Seconds without work after which the connection is closed.
_IDLE = 30.0
#: The longest pause between two tries, in seconds.
_HOUR = 3600.0
_LATEST = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
#: Text in a fence: it contains no quote, and no placeholder of any driver.
_NAME = re.compile(r"[A-Za-z0-9_.,=@/+-]{1,200}")


class Look(Struct, frozen=True, eq=False):
    """A resource that a handler has to look at. `Inbox.handling` creates it."""

    seller: str
    """The user id of the seller, as given to `Inbox.put`."""
    topic: str
    """The topic, as given to `Inbox.put`."""
    id: str
    """The id of the resource."""
    attempt: int
    """The number of the try since the last success, from 1 to 20."""
    _claimed: Claim
    _lane: Database
    _states: list[str]
    """The states of its fences, and the stale states that it has read: all have to be handled at its end."""

    def __repr__(self) -> str:
        return f"Look(seller={self.seller!r}, topic={self.topic!r}, id={self.id!r}, attempt={self.attempt})"

    async def is_new(self, state: str, updated: datetime | None) -> bool:
        """Return whether *state* is still to be handled. Ask this first to avoid work that the fence would roll back.

        It is false if *state* or a later state was handled. After a later state, the read was stale: the resource is
        looked at again after a pause.

        Args:
            state: As in `fence`.
            updated: As in `fence`.

        Raises:
            ConnectionError: The database cannot be used.
            RequestInvalid: As in `fence`.
        """
        moment = _seconds("updated", updated)
        states = await self._lane.run(partial(_table.handled, key=self._claimed[:3]), Kind.READS)
        if _check_name("state", state) in states:
            return False
        # SQLite reads some numbers with an error in the last bit, so that an equal moment would be a later one.
        is_stale = moment is not None and any(moment < round(date, 6) for date in states.values() if date is not None)
        if is_stale:
            self._states.append(state)
        return not is_stale

    def fence(self, state: str, updated: datetime | None) -> str:
        """Return one SQL statement for the handler's own transaction in the same database, with any driver.

        Run it first, without parameters. Then do the work, and commit before the handler returns: a look whose fence
        was not committed has failed. The statement fails if the state or a later state was handled, or if another
        worker has the resource now. Do not catch its error: the work is rolled back, and the worker reads the row
        again. If the state is handled, the look is done. Otherwise it is tried again.

        Args:
            state: The state that you have read: 1 to 200 ASCII letters, digits and ``_.,=@/+-``; see `state_of`. Each
                state is handled once. If a resource can return to a state, add to the text what tells the two apart.
            updated: When the resource was last changed, according to the platform, with a time zone. `None` if the
                platform does not say: then a later state is not noticed.

        Raises:
            RequestInvalid: *state* has other characters, or *updated* has no time zone.
        """
        statement = _table.fence(self._claimed, _check_name("state", state), _seconds("updated", updated))
        self._states.append(state)
        return statement


#: Looks at a resource.
Handler = Callable[[Look], Awaitable[object]]


class Inbox:
    """Resources that must be looked at again: one row for each seller, topic and id, never for each message.

    A handler reads the resource and does the work for its state. Use `Look.fence` in the handler's own transaction in
    the same database: then no state is handled twice. The last state is handled if a later `put` has returned, or if a
    `due` comes later. States in between may be skipped. Without the same database, a state is handled at least once:
    write by state, and write to the platform with ``once=``.

    Any number of processes may use one database. An inbox need not be closed.

    Args:
        database: The path of a SQLite file, which may contain your own tables; the inbox turns on its write-ahead log.
            Or ``postgresql://user:password@host:port/database``, which needs the extra ``postgres``. The inbox creates
            the tables ``paymentsdk_inbox`` and ``paymentsdk_fence``, in PostgreSQL in the first schema of the search
            path.
        lease: Seconds that a look may take, above 0 and at most 86,400. After that the look is cancelled, and tried
            again. If a process dies, another process takes over its resources after the same time.
        keep: How long rows at rest are kept. Handled states are kept forever.
        now: The clock of the leases and of `due`, in seconds since the epoch, the same for all processes. By default,
            the clock of the machine for SQLite, and of the server for PostgreSQL.

    Raises:
        RequestInvalid: *database*, *lease* or *keep* is invalid.
    """

    def __init__(
        self,
        database: str | os.PathLike[str],
        *,
        lease: float = 60,
        keep: timedelta = timedelta(days=90),
        now: Callable[[], float] | None = None,
    ) -> None:
        require(isinstance(keep, timedelta) and keep > timedelta(0), "keep", "must be a timedelta above 0")
        self._keep = keep
        self._lease = float(check_seconds("lease", lease))
        self._lane = shared(_table.driver(database, now), ConnectionError, _IDLE)

    async def put(self, seller: str, topic: str, id: str, *, due: datetime | None = None) -> None:  # noqa: A002
        """Note durably, with one commit, that a resource must be looked at. Answer 202 once this returns.

        Looks that wait are merged. A look that is under way is followed by another.

        Args:
            seller: The user id of the seller. Take it from the address or the secret of the webhook, never from an
                unsigned body. 1 to 200 ASCII letters, digits and ``_.,=@/+-``, as *topic* and *id*.
            topic: The topic, such as ``"orders"``. Use the same text each time, since a state is handled once for each
                seller, topic and id. So take them from signed data, or from your own.
            id: The id of the resource.
            due: Look then, not now; with a time zone. Put each new order for its expiration, in case a notification is
                lost. Of several moments to come, the first and the last are kept.

        Raises:
            ConnectionError: The resource was not noted; answer 503, so that the platform sends the message again.
            RequestInvalid: A name has other characters, or *due* has no time zone; answer 400.
        """
        key = _check_name("seller", seller), _check_name("topic", topic), _check_name("id", id)
        await self._lane.run_together(_table.put, (*key, _seconds("due", due)), Kind.STATEMENT)

    @asynccontextmanager
    async def handling(self, handle: Handler, *, in_flight: int = 8, every: float = 1.0) -> AsyncIterator[None]:
        """Look at due resources in the background while the context lasts. Its end waits for looks under way.

        A look that raises is tried again after *every* seconds. The pause doubles each time, up to an hour. After 20
        tries the resource waits for `retry`. Errors are logged without their text.

        Args:
            handle: Is called with a `Look`. No two workers have the same resource. A repeated call must do no harm.
            in_flight: The most looks at the same time, 1 to 1,000.
            every: Seconds between two searches for due resources, above 0 and at most 86,400.

        Raises:
            RequestInvalid: *in_flight* or *every* is out of range.
        """
        check_within("in_flight", in_flight, 1, 1000)
        check_seconds("every", every)
        loop = asyncio.get_running_loop()
        stopping, looks = loop.create_future(), set[asyncio.Task[None]]()

        async def work() -> None:
            async with asyncio.TaskGroup() as group:
                while not stopping.done():
                    until, limit = loop.time() + self._lease, in_flight - len(looks)
                    claim = partial(_table.claim, owner=token_hex(16), lease=self._lease, limit=limit, keep=self._keep)
                    try:
                        claims = await self._lane.run(claim)
                    except Exception as error:  # noqa: BLE001 - a worker goes on
                        claims = []
                        logger.warning("inbox: %s", error)
                    for claimed, attempt in claims:
                        look = Look(*claimed[:3], attempt, claimed, self._lane, [])
                        task = group.create_task(self._run(look, handle, until, every))
                        looks.add(task)
                        task.add_done_callback(looks.discard)
                    await asyncio.wait({stopping, *looks}, timeout=every, return_when=asyncio.FIRST_COMPLETED)

        worker = asyncio.ensure_future(work())
        try:
            yield
        finally:
            stopping.set_result(None)
            try:
                await asyncio.wait((worker,))
            finally:  # Also if the caller is cancelled, so that no task outlives the context.
                worker.cancel()
                await asyncio.wait((worker,))

    async def rows(self, *, failed: bool = False, id: str | None = None) -> list[InboxRow]:  # noqa: A002
        """Return up to 1,000 rows that are not at rest, the oldest first.

        Args:
            failed: Only rows that have failed.
            id: Only rows of this resource, including rows at rest.

        Raises:
            ConnectionError: The database cannot be used.
        """
        return await self._lane.run(partial(_table.rows, failed=failed, id=id), Kind.READS)

    async def depth(self) -> InboxDepth:
        """Return the number of waiting resources.

        Raises:
            ConnectionError: The database cannot be used.
        """
        return await self._lane.run(_table.depth, Kind.READS)

    async def retry(self, seller: str, topic: str, id: str) -> bool:  # noqa: A002
        """Make a resource due that has failed 20 times; return whether there was one.

        Raises:
            ConnectionError: The database cannot be used.
        """
        return await self._lane.run(partial(_table.retry, key=(seller, topic, id)))

    async def _run(self, look: Look, handle: Handler, until: float, every: float) -> None:
        """Call the handler, until a moment by the clock of the loop, and store the result."""
        reason, timeout = "", asyncio.timeout_at(until)
        try:
            async with timeout:
                await handle(look)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of a library in Rust is no `Exception`
            reason = f"it took longer than its lease, {self._lease:g} s" if timeout.expired() else describe(error)
        pause = min(every * 2 ** (look.attempt - 1), _HOUR)
        end = partial(_table.end, claimed=look._claimed, states=look._states)  # noqa: SLF001
        try:
            outcome = await self._lane.run(partial(end, attempt=look.attempt, reason=reason, pause=pause))
        except Exception as error:  # noqa: BLE001 - the other looks go on
            outcome = f"is looked at again after its lease: {error}"
        if outcome:
            logger.warning("inbox: %r %s", look, outcome)


def state_of(order: Order) -> str:
    """Return the state of an order for `Look.is_new` and `Look.fence`: status, detail, and each refund with its status.

    It has at most 200 characters; for an order with many refunds, it is a hash.
    """
    refunds = sorted(f"{refund.id}={refund.status}" for refund in order.refunds)
    state = ",".join([f"{order.status}/{order.status_detail}", *refunds])
    return state if _NAME.fullmatch(state) else sha256(state.encode()).hexdigest()


def _check_name(name: str, value: str) -> str:
    is_name = isinstance(value, str) and _NAME.fullmatch(value)
    require(is_name, name, "must be 1 to 200 ASCII letters, digits and _.,=@/+-")
    return value


def _seconds(name: str, moment: datetime | None) -> float | None:
    require(moment is None or moment.tzinfo, name, "must have a time zone")
    # `datetime` could not read later or earlier moments, such as `datetime.max`, back.
    return None if moment is None else min(max(moment.timestamp(), 0.0), _LATEST)
