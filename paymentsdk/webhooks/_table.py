"""The two tables of an inbox, and every statement on them, in plain functions of a connection.

`paymentsdk_inbox` has a row for each resource. `ready` is when it may be claimed: NULL at rest, the end of the lease
while it is in hand. `due` and `last` are the first and the last moment that were put and that no claim has followed.
`paymentsdk_fence` has a row for each handled state, numbered in the order of handling.

A fence is one INSERT in the transaction of the handler. It fails if the state has a row already, if `number` is NULL,
or if another transaction has taken the same number. So it needs no lock, and works at any isolation level. `number` is
NULL if another worker has the resource, or if a later state was handled.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

import msgspec
from msgspec import Struct

from paymentsdk._database import Connection, Driver
from paymentsdk._postgres import Postgres, Table, is_dsn
from paymentsdk._sqlite import SQLite
from paymentsdk._validate import check_path

#: The version of the tables.
SCHEMA = 1
#: Looks at a resource without success before it waits for a person.
TRIES = 20
#: Rows that one statement reads or removes.
_PAGE = 1000
#: Seconds that PostgreSQL may take for a statement, including new connections.
_TIMEOUT = 5.0
_MARK, _INBOX = f"paymentsdk inbox {SCHEMA}", "paymentsdk_inbox"
_SETTINGS = ("journal_mode = WAL", "synchronous = FULL")
_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS paymentsdk_inbox (
        -- {_MARK}
        seller text NOT NULL, topic text NOT NULL, id text NOT NULL,
        again bigint NOT NULL, attempt bigint NOT NULL, owner text NOT NULL,
        ready float8, due float8, last float8, reason text NOT NULL, since float8 NOT NULL,
        PRIMARY KEY (seller, topic, id)
    )""",
    """CREATE TABLE IF NOT EXISTS paymentsdk_fence (
        seller text NOT NULL, topic text NOT NULL, id text NOT NULL,
        state text NOT NULL, number bigint NOT NULL, updated float8,
        PRIMARY KEY (seller, topic, id, state), UNIQUE (seller, topic, id, number)
    )""",
    "CREATE INDEX IF NOT EXISTS paymentsdk_inbox_ready ON paymentsdk_inbox (ready) WHERE ready IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS paymentsdk_inbox_rest ON paymentsdk_inbox (since) WHERE ready IS NULL",
)
_KEY = "seller = %s AND topic = %s AND id = %s"
_CLAIMED = f"{_KEY} AND owner = %s"
_COLUMNS = {"seller": "text", "topic": "text", "id": "text", "due": "float8"}
#: Rows are locked in one order, against deadlocks. While a resource is in hand, or waits after a failure, `ready` stays
#: as it is: the next look begins then. A `due` in the past counts as a message: a look under way may have read before.
_PUT = (
    "INSERT INTO {table} (seller, topic, id, again, attempt, owner, ready, due, last, reason, since) "
    "SELECT new.seller, new.topic, new.id, max(CASE WHEN new.due > new.now THEN 0 ELSE 1 END), 0, '', "
    "min(coalesce(new.due, new.now)), min(new.due), max(new.due), '', new.now "
    "FROM {rows} GROUP BY new.seller, new.topic, new.id, new.now ORDER BY new.seller, new.topic, new.id "
    "ON CONFLICT (seller, topic, id) DO UPDATE SET again = {table}.again + excluded.again, "
    "since = CASE WHEN {table}.again + {table}.attempt > 0 THEN {table}.since ELSE excluded.since END, "
    "due = CASE WHEN {table}.due < excluded.due THEN {table}.due ELSE coalesce(excluded.due, {table}.due) END, "
    "last = CASE WHEN {table}.last > excluded.last THEN {table}.last ELSE coalesce(excluded.last, {table}.last) END, "
    "ready = CASE WHEN {table}.attempt > 0 OR {table}.ready <= excluded.ready THEN {table}.ready "
    "ELSE excluded.ready END"
)
# The inner SELECT lets PostgreSQL compare the time with the index: its clock is not the same for each row.
_CLAIM = (
    "WITH next AS MATERIALIZED (SELECT seller AS s, topic AS t, id AS i FROM {table} "
    f"WHERE ready <= (SELECT {{now}}) AND attempt < {TRIES} ORDER BY ready LIMIT %s {{skip_locked}}) "
    "UPDATE {table} SET again = 0, attempt = attempt + 1, owner = %s, ready = {now} + %s, "
    "due = CASE WHEN due > {now} THEN due WHEN last > {now} THEN last END FROM next "
    "WHERE seller = s AND topic = t AND id = i RETURNING seller, topic, id, owner, attempt"
)
_SETTLE = (
    "UPDATE {table} SET attempt = 0, owner = '', reason = '', since = {now}, "
    f"ready = CASE WHEN again > 0 THEN {{now}} ELSE due END WHERE {_CLAIMED}"
)
_RELEASE = f"UPDATE {{table}} SET owner = '', ready = {{now}} + %s, reason = %s WHERE {_CLAIMED}"
_RETRY = (
    f"UPDATE {{table}} SET attempt = 0, owner = '', ready = {{now}} WHERE {_KEY} AND attempt >= {TRIES} "
    "AND (owner = '' OR ready <= {now}) RETURNING id"
)
_STATUS = (
    "CASE WHEN ready IS NULL THEN 'at rest' WHEN owner <> '' AND ready > {now} THEN 'in hand' "
    f"WHEN attempt >= {TRIES} THEN 'failed' WHEN again + attempt > 0 OR ready <= {{now}} THEN 'waiting' "
    "ELSE 'scheduled' END"
)
_SINCE = "CASE WHEN again + attempt > 0 THEN since ELSE ready END"
_DUE = f"CASE WHEN owner <> '' OR attempt < {TRIES} THEN ready END"
_LIST = f"SELECT seller, topic, id, {_STATUS}, attempt, reason, {_DUE} FROM {{table}} WHERE"
_DEPTH = f"SELECT {_STATUS}, count(*), {{now}} - min({_SINCE}) FROM {{table}} WHERE ready IS NOT NULL GROUP BY 1"
_REMOVE = (
    "DELETE FROM {table} WHERE ready IS NULL AND (seller, topic, id) IN ("
    "SELECT seller, topic, id FROM {table} WHERE ready IS NULL AND since < (SELECT {now}) - %s ORDER BY since LIMIT %s)"
)


#: Seller, topic and id of a resource.
Key: TypeAlias = tuple[str, str, str]
#: Seller, topic and id of a resource, and the worker that has it.
Claim: TypeAlias = tuple[str, str, str, str]


class InboxRow(Struct, frozen=True):
    """A resource in an inbox."""

    seller: str
    """The user id of the seller."""
    topic: str
    """The topic, such as ``"orders"``."""
    id: str
    """The id of the resource."""
    status: str
    """``"waiting"``: waits for a look. ``"in hand"``: a worker looks at it. ``"scheduled"``: waits for its `due`.
    ``"failed"``: waits for `Inbox.retry`. ``"at rest"``: nothing to do."""
    attempt: int
    """How many looks have begun since the last success."""
    reason: str
    """Why the last look failed; empty if it did not."""
    due: datetime | None
    """When the resource can be looked at next, or the end of the lease while it is in hand; `None` for never."""
    handled: tuple[str, ...] = ()
    """The states that were handled with a fence, the oldest first; only in `Inbox.rows` with an *id*."""


class InboxDepth(Struct, frozen=True):
    """The number of waiting resources, for metrics and health checks."""

    waiting: int
    """Resources that wait for a look, or for another try."""
    in_hand: int
    """Resources that a worker is looking at."""
    failed: int
    """Resources that have failed 20 times: a person has to look, then call `Inbox.retry`."""
    oldest: float | None
    """Seconds since the oldest waiting resource was put; `None` if no resource waits."""


def driver(database: str | os.PathLike[str], now: Callable[[], float] | None) -> Driver:
    """Return the driver for the tables, which are created in *database*; it may have other tables."""
    if is_dsn(database):
        return Postgres(database, _TIMEOUT, Table(_INBOX, _MARK, _CREATE), now=now)
    file, now = check_path("database", database), now or time.time
    return SQLite(path=file, table=_INBOX, create=_CREATE, settings=_SETTINGS, mark=_MARK, is_private=False, now=now)


def put(connection: Connection, rows: Sequence[tuple[str, str, str, float | None]]) -> list[None]:
    """Note that resources must be looked at: now, or at a moment."""
    connection.each(_PUT, _COLUMNS, rows)
    return [None] * len(rows)


def claim(connection: Connection, owner: str, lease: float, limit: int, keep: timedelta) -> list[tuple[Claim, int]]:
    """Claim up to *limit* due resources for *lease* seconds, and return each with the number of the try.

    This also removes a page of rows that have been at rest for longer than *keep*.
    """
    connection.fetch(_REMOVE, keep.total_seconds(), _PAGE)
    return [(row[:4], row[4]) for row in connection.fetch(_CLAIM, limit, owner, lease)]


def end(connection: Connection, claimed: Claim, *, attempt: int, reason: str, states: list[str], pause: float) -> str:
    """End a look; return a text for the log, or an empty text.

    If all its fences exist, it has not failed: some handler has handled its states.

    Args:
        connection: The connection.
        claimed: The resource.
        attempt: The number of the try.
        reason: Why the look has failed; empty if it has not.
        states: The states of its fences.
        pause: Seconds until the next try, if the look has failed.
    """
    is_fenced = bool(states) and set(states) <= handled(connection, claimed[:3]).keys()
    if states and not is_fenced:  # Also if nothing was raised: without a commit the handler has done nothing.
        reason = reason or "its fence was not committed, or it has read a state older than the last handled state"
    if reason and not is_fenced:
        connection.fetch(_RELEASE, pause, reason, *claimed)
        has_failed = f"has failed {TRIES} times and waits for `paymentsdk inbox retry`"
        return f"{has_failed if attempt >= TRIES else 'is tried again'}: {reason}"
    connection.fetch(_SETTLE, *claimed)
    return f"is handled: {reason}" if reason else ""


def retry(connection: Connection, key: Key) -> bool:
    """Make a resource due that has failed too often; return whether there was one."""
    return bool(connection.fetch(_RETRY, *key))


def handled(connection: Connection, key: Key) -> dict[str, float | None]:
    """Return the handled states in their order, each with the time of its update."""
    statement = f"SELECT state, updated FROM paymentsdk_fence WHERE {_KEY} ORDER BY number"
    return dict(connection.fetch(statement, *key))


def rows(connection: Connection, *, failed: bool, id: str | None) -> list[InboxRow]:  # noqa: A002 - as the public method
    """Return a page of rows, the oldest first."""
    condition, values = ("ready IS NOT NULL", ()) if id is None else ("id = %s", (id,))
    condition += f" AND {_STATUS} = 'failed'" if failed else ""
    page = connection.fetch(f"{_LIST} {condition} ORDER BY {_SINCE} LIMIT %s", *values, _PAGE)
    if id is not None:
        page = [(*row, tuple(handled(connection, row[:3]))) for row in page]
    members = (dict(zip(InboxRow.__struct_fields__, row, strict=False)) for row in page)
    return [msgspec.convert(values, InboxRow, strict=False) for values in members]  # `due` comes as seconds.


def depth(connection: Connection) -> InboxDepth:
    """Return the number of waiting resources."""
    counts = {status: (number, max(0.0, age)) for status, number, age in connection.fetch(_DEPTH)}
    waiting, in_hand, failed = (counts.get(status, (0, None)) for status in ("waiting", "in hand", "failed"))
    return InboxDepth(waiting[0], in_hand[0], failed[0], waiting[1])


def fence(claimed: Claim, state: str, updated: float | None) -> str:
    """Return a statement that fails if *state* or a later state was handled, or if *claimed* is not held any more."""
    seller, topic, id_, owner = (f"'{value}'" for value in claimed)
    key, moment = _KEY % (seller, topic, id_), "NULL" if updated is None else repr(updated)
    number = f"(SELECT CASE WHEN max(updated) > {moment} THEN NULL ELSE count(*) END FROM paymentsdk_fence WHERE {key})"
    return (
        f"INSERT INTO paymentsdk_fence (seller, topic, id, state, updated, number) VALUES ({seller}, {topic}, {id_}, "
        f"'{state}', {moment}, {number} + (SELECT 0 FROM paymentsdk_inbox WHERE {key} AND owner = {owner}))"
    )
