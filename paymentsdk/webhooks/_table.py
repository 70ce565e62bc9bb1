"""The two tables of an inbox, and every statement on them, in plain functions of a connection.

`paymentsdk_inbox` has a row for each resource. `ready` is when it may be claimed: NULL at rest, the end of the lease
while it is in hand. `paymentsdk_fence` has a row for each handled state, numbered in the order of handling.

A fence is one INSERT in the transaction of the handler. It fails if the state has a row already, if `number` is NULL,
or if another transaction has taken the same number. So it needs no lock, and works at any isolation level. `number` is
NULL if another worker has the resource, or if a later state was handled.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
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
#: The `ready` of a resource that only a person makes due.
_NEVER = 1e18
#: Rows that one statement reads or removes.
_PAGE = 1000
#: Seconds that PostgreSQL may take for a statement, including new connections.
_TIMEOUT = 5.0
_MARK = f"paymentsdk inbox {SCHEMA}"
_CREATE = (
    f"""CREATE TABLE IF NOT EXISTS paymentsdk_inbox (
        -- {_MARK}
        seller text NOT NULL, topic text NOT NULL, id text NOT NULL,
        wanted bigint NOT NULL, seen bigint NOT NULL, attempt bigint NOT NULL, owner text NOT NULL,
        ready float8, dues text NOT NULL, reason text NOT NULL, since float8 NOT NULL,
        PRIMARY KEY (seller, topic, id)
    )""",
    """CREATE TABLE IF NOT EXISTS paymentsdk_fence (
        seller text NOT NULL, topic text NOT NULL, id text NOT NULL,
        state text NOT NULL, number bigint NOT NULL, updated bigint,
        PRIMARY KEY (seller, topic, id, state), UNIQUE (seller, topic, id, number)
    )""",
    "CREATE INDEX IF NOT EXISTS paymentsdk_inbox_ready ON paymentsdk_inbox (ready) WHERE ready IS NOT NULL",
    "CREATE INDEX IF NOT EXISTS paymentsdk_inbox_rest ON paymentsdk_inbox (since) WHERE ready IS NULL",
)
_KEY = "seller = %s AND topic = %s AND id = %s"
_COLUMNS = {"seller": "text", "topic": "text", "id": "text", "looks": "bigint", "due": "float8", "dues": "text"}
#: While a resource is in hand, or waits after a failure, `ready` stays as it is: the next look begins then. A `due` in
#: the past counts as a look, too: the look that is under way may have read before it.
_PUT = (
    "INSERT INTO {table} (seller, topic, id, wanted, seen, attempt, owner, ready, dues, reason, since) "
    "SELECT new.seller, new.topic, new.id, new.looks + CASE WHEN new.due <= new.now THEN 1 ELSE 0 END, "
    "0, 0, '', coalesce(new.due, new.now), new.dues, '', new.now "
    "FROM {rows} WHERE true ON CONFLICT (seller, topic, id) DO UPDATE SET wanted = {table}.wanted + excluded.wanted, "
    "since = CASE WHEN {table}.wanted > {table}.seen THEN {table}.since ELSE excluded.since END, "
    "dues = CASE WHEN {position}({table}.dues, excluded.dues) > 0 THEN {table}.dues "
    "ELSE {table}.dues || excluded.dues END, "
    "ready = CASE WHEN {table}.attempt > 0 OR {table}.ready <= excluded.ready THEN {table}.ready "
    "ELSE excluded.ready END"
)
_CLAIM = (
    "WITH due AS MATERIALIZED (SELECT seller AS s, topic AS t, id AS i FROM {table} "
    f"WHERE ready <= {{now}} AND attempt < {TRIES} ORDER BY ready LIMIT %s {{skip_locked}}) "
    "UPDATE {table} SET attempt = attempt + 1, owner = %s, ready = {now} + %s FROM due "
    "WHERE seller = s AND topic = t AND id = i RETURNING seller, topic, id, attempt, wanted, {now}"
)
_IN_HAND = f"SELECT wanted, dues, {{now}} FROM {{table}} WHERE {_KEY} AND owner = %s {{locked}}"
_SETTLE = (
    "UPDATE {table} SET seen = %s, attempt = 0, owner = '', ready = %s, dues = %s, reason = '', since = {now} "
    f"WHERE {_KEY}"
)
_RELEASE = (
    "UPDATE {table} SET attempt = attempt - %s, owner = '', ready = %s + {now}, reason = %s "
    f"WHERE {_KEY} AND owner = %s"
)
_RETRY = (
    f"UPDATE {{table}} SET attempt = 0, owner = '', ready = {{now}} WHERE {_KEY} AND attempt >= {TRIES} "
    "AND (owner = '' OR ready <= {now}) RETURNING id"
)
_STATUS = (
    "CASE WHEN ready IS NULL THEN 'at rest' WHEN owner <> '' AND ready > {now} THEN 'in hand' "
    f"WHEN attempt >= {TRIES} THEN 'failed' WHEN wanted > seen OR attempt > 0 OR ready <= {{now}} THEN 'waiting' "
    "ELSE 'scheduled' END"
)
_SINCE = "CASE WHEN wanted > seen THEN since ELSE ready END"
_DUE = f"CASE WHEN ready < {_NEVER!r} THEN ready END"
_LIST = f"SELECT seller, topic, id, {_STATUS}, attempt, reason, {_DUE} FROM {{table}} WHERE"
_DEPTH = f"SELECT {_STATUS}, count(*), {{now}} - min({_SINCE}) FROM {{table}} WHERE ready IS NOT NULL GROUP BY 1"
_REMOVE = (
    "DELETE FROM {table} WHERE ready IS NULL AND since < {now} - %s AND (seller, topic, id) IN ("
    "SELECT seller, topic, id FROM {table} WHERE ready IS NULL AND since < {now} - %s ORDER BY since LIMIT %s"
    ") RETURNING id"
)


#: Seller, topic and id of a resource.
Key: TypeAlias = tuple[str, str, str]


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
    handled: tuple[str, ...]
    """The states that were handled with a fence, the oldest first."""


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


class Claimed(Struct, frozen=True):
    """A resource in the hands of a worker."""

    key: Key
    owner: str
    attempt: int
    wanted: int
    at: float


def driver(database: str | os.PathLike[str], now: Callable[[], float] | None) -> Driver:
    """Return the driver for the tables, which are created in *database*; it may have other tables."""
    if is_dsn(database):
        return Postgres(database, _TIMEOUT, Table("paymentsdk_inbox", _MARK, _CREATE), now=now)
    return SQLite(
        path=check_path("database", database),
        table="paymentsdk_inbox",
        create=_CREATE,
        settings=("journal_mode = WAL", "synchronous = FULL"),
        mark=_MARK,
        is_private=False,
        now=now or time.time,
    )


def put(connection: Connection, items: Sequence[tuple[Key, float | None]]) -> list[None]:
    """Note that resources must be looked at: now, or at a moment. Rows are locked in one order, against deadlocks."""
    moments: dict[Key, list[float | None]] = defaultdict(list)
    for key, due in items:
        moments[key].append(due)
    rows = []
    for key, dues in sorted(moments.items()):
        dated = [due for due in dues if due is not None]
        looks = len(dues) - len(dated)
        rows.append((*key, looks, None if looks else min(dated), _text_of(dated)))
    connection.each(_PUT, _COLUMNS, rows)
    return [None] * len(items)


def claim(connection: Connection, owner: str, lease: float, limit: int) -> list[Claimed]:
    """Claim up to *limit* due resources for *lease* seconds."""
    rows = connection.fetch(_CLAIM, limit, owner, lease)
    return [Claimed((seller, topic, id_), owner, *columns) for seller, topic, id_, *columns in rows]


class End(Struct, frozen=True):
    """The end of a look."""

    claimed: Claimed
    reason: str
    """Why the look has failed; empty if it has not."""
    states: Sequence[str]
    """The states of its fences."""
    pause: float
    """Seconds until the next try, if the look has failed."""


def end(connection: Connection, ends: Sequence[End]) -> list[str]:
    """End looks, locking rows in one order, against deadlocks; return a text for the log for each, or an empty text."""
    outcomes = {look.claimed: _end(connection, look) for look in sorted(ends, key=lambda look: look.claimed.key)}
    return [outcomes[look.claimed] for look in ends]


def _end(connection: Connection, look: End) -> str:
    """End a look. If all its fences exist, it has not failed: some handler has handled its states."""
    claimed, reason = look.claimed, look.reason
    is_fenced = bool(look.states) and set(look.states) <= handled(connection, claimed.key).keys()
    if look.states and not is_fenced:  # Also if nothing was raised: without a commit the handler has done nothing.
        reason = reason or "its fence was not committed"
    if reason and not is_fenced:
        is_last = claimed.attempt >= TRIES
        connection.fetch(_RELEASE, 0, _NEVER if is_last else look.pause, reason, *claimed.key, claimed.owner)
        outcome = f"has failed {TRIES} times and waits for `paymentsdk inbox retry`" if is_last else "is tried again"
        return f"{outcome}: {reason}"
    for looks, text, now in connection.fetch(_IN_HAND, *claimed.key, claimed.owner):
        dues = sorted({due for due in map(float, text.split()) if due > claimed.at})
        ready = now if looks > claimed.wanted else next(iter(dues), None)
        connection.fetch(_SETTLE, claimed.wanted, ready, _text_of(dues), *claimed.key)
    return f"is handled: {reason}" if reason else ""


def give_back(connection: Connection, claimed: Claimed) -> None:
    """Release a resource that was not looked at, for another worker."""
    connection.fetch(_RELEASE, 1, 0.0, "", *claimed.key, claimed.owner)


def retry(connection: Connection, key: Key) -> bool:
    """Make a resource due that has failed too often; return whether there was one."""
    return bool(connection.fetch(_RETRY, *key))


def remove(connection: Connection, keep: timedelta) -> bool:
    """Remove a page of rows that were at rest for longer than *keep*; return whether there may be more."""
    age = keep.total_seconds()
    return len(connection.fetch(_REMOVE, age, age, _PAGE)) == _PAGE


def handled(connection: Connection, key: Key) -> dict[str, int | None]:
    """Return the handled states in their order, each with the time of its update."""
    statement = f"SELECT state, updated FROM paymentsdk_fence WHERE {_KEY} ORDER BY number"
    return dict(connection.fetch(statement, *key))


def rows(connection: Connection, *, failed: bool, id: str | None) -> list[InboxRow]:  # noqa: A002 - as the public method
    """Return a page of rows, the oldest first."""
    condition, values = ("ready IS NOT NULL", ()) if id is None else ("id = %s", (id,))
    condition += f" AND {_STATUS} = 'failed'" if failed else ""
    page = connection.fetch(f"{_LIST} {condition} ORDER BY {_SINCE} LIMIT %s", *values, _PAGE)
    marks = ", ".join(["%s"] * len(page)) or "NULL"
    statement = f"SELECT seller, topic, id, state FROM paymentsdk_fence WHERE id IN ({marks}) ORDER BY number"
    states: dict[object, tuple[str, ...]] = defaultdict(tuple)
    for *key, state in connection.fetch(statement, *(row[2] for row in page)):
        states[tuple(key)] += (state,)
    members = (dict(zip(InboxRow.__struct_fields__, (*row, states[row[:3]]), strict=True)) for row in page)
    return [msgspec.convert(values, InboxRow, strict=False) for values in members]  # `due` comes as seconds.


def depth(connection: Connection) -> InboxDepth:
    """Return the number of waiting resources."""
    counts = {status: (number, max(0.0, age)) for status, number, age in connection.fetch(_DEPTH)}
    waiting, in_hand, failed = (counts.get(status, (0, None)) for status in ("waiting", "in hand", "failed"))
    return InboxDepth(waiting[0], in_hand[0], failed[0], waiting[1])


def fence(claimed: Claimed, state: str, updated: int | None) -> str:
    """Return a statement that fails if *state* or a later state was handled, or if *claimed* is not held any more."""
    seller, topic, id_ = (f"'{value}'" for value in claimed.key)
    key = f"seller = {seller} AND topic = {topic} AND id = {id_}"
    moment = "NULL" if updated is None else str(updated)
    number = f"(SELECT CASE WHEN max(updated) > {moment} THEN NULL ELSE count(*) END FROM paymentsdk_fence WHERE {key})"
    return (
        "INSERT INTO paymentsdk_fence (seller, topic, id, state, updated, number) VALUES "
        f"({seller}, {topic}, {id_}, '{state}', {moment}, {number} + "
        f"(SELECT 0 FROM paymentsdk_inbox WHERE {key} AND owner = '{claimed.owner}'))"
    )


def _text_of(dues: Sequence[float]) -> str:
    return "".join(f" {due!r} " for due in dues)  # The spaces tell a moment from a part of a longer number.
