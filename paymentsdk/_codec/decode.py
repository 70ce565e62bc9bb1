"""A response's bytes as a Struct: exact where they follow the contract, repaired where they do not.

Nearly every response goes straight from bytes to its Struct, in C: the text of a JSON number becomes a `Decimal`, and
never a float. Only when that fails is the JSON read untyped, and repaired along the type.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cached_property
from types import GenericAlias
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec
from msgspec import Struct, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MALFORMED, Anomaly, Reports

if TYPE_CHECKING:
    from paymentsdk._codec.slices import Rows, Steps

R = TypeVar("R")
T = TypeVar("T")

#: Bytes from which on other tasks have turns while a response is decoded: less takes a few milliseconds, even if all of
#: it is malformed.
LARGE = 65_536
#: Bytes from which on the rows of a response are repaired one by one, which is cheaper if there are several.
SEVERAL_ROWS = 4_096
#: Bytes from which on any response is decoded in slices.
HUGE = 1_048_576
#: What the decoder says of a day without a time.
_NO_TIMESTAMP = "RFC3339"
#: What a response without members looks like.
_EMPTY = frozenset({b"", b"null", b"[]", b'""'})


class ResponseDecoder(Generic[R]):
    """Decodes the responses of one operation."""

    def __init__(
        self,
        result: type[R],
        *,
        empty: bool = False,
        documented: bool = False,
        essential: Callable[[Anomaly], bool] | None = None,
    ) -> None:
        self._type = result
        self._essential = essential
        self._empty = empty
        self._documented = documented
        self._exact = msgspec.json.Decoder(result).decode
        self._unusable = amounts.compile_check(result)

    def decode(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Return the value in *body*, and what had to be repaired.

        Raises:
            DecodingError: Nothing in it can be trusted.
        """
        try:  # Nearly every response takes this way alone.
            value = self._exact(body)
            if not self._unusable(value):
                return value, ()
        except MALFORMED:
            pass
        steps, done = self.steps(body), None
        try:
            while True:
                work = steps.send(done)
                done = work() if work else None
        except StopIteration as end:
            return cast("tuple[R, tuple[Anomaly, ...]]", end.value)

    async def decode_in_turns(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Do what `decode` does; others go on between the slices of a large page, and while a huge row is repaired."""
        steps, done = self.steps(body), None
        try:
            while True:
                if work := steps.send(done):
                    done = await asyncio.to_thread(work)
                else:
                    done = await asyncio.sleep(0, None)
        except StopIteration as end:
            return cast("tuple[R, tuple[Anomaly, ...]]", end.value)

    def steps(self, body: bytes) -> Steps[tuple[R, tuple[Anomaly, ...]]]:
        """Do what `decode` does, a large page of rows in slices of some milliseconds, with a pause after each."""
        if len(body) < HUGE and (done := self._read(body)):
            return done
        rows = self._rows if len(body) >= SEVERAL_ROWS else None
        split = rows.split(body) if rows is not None else None
        if rows is None or split is None:
            return self._read(body) or self._repair(body)
        yield None
        around, listed = split
        reports = Reports(self._essential)
        read = self._read(around)
        value = read[0] if read else self._repaired(around, reports)
        found = yield from rows.decode(listed, reports)
        make = type(getattr(value, rows.name))
        whole = structs.replace(cast(Struct, value), **{rows.name: make(found)})
        return cast(R, whole), reports.all()

    def _read(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]] | None:
        """Return the value in *body*, unless something in it has to be repaired."""
        value = self._read_as(body, self._exact, self._unusable)
        return None if value is None else (value, ())

    def _read_as(self, body: bytes, exact: Callable[[bytes], T], unusable: Callable[[T], bool]) -> T | None:
        try:
            value = exact(body)
        except MALFORMED as error:
            dated = self._dated(body) if _NO_TIMESTAMP in str(error) else None
            return None if dated is None else self._read_as(dated, exact, unusable)
        return None if unusable(value) else value

    def _dated(self, body: bytes) -> bytes | None:
        """Return *body* with a time behind each day without one, which the contract has as well; `None` without such.

        A page of them would take several times as long to repair.
        """
        dated, count = self._dates.subn(rb'\1T00:00:00Z"', body) if self._dates is not None else (body, 0)
        return dated if count else None

    def _repair(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Return what can be read of *body*, and report the rest."""
        if self._empty and body.strip() in _EMPTY:
            found = Anomaly("$", "", "the body is empty; every field is unset")
            return self._type(), () if self._documented and not body else (found,)
        reports = Reports(self._essential)
        value = self._repaired(body, reports)
        return cast(R, value), reports.all()

    @cached_property
    def _repaired(self) -> Callable[[bytes, Reports], object]:
        """Reads and repairs a body, and reports what was wrong."""
        from paymentsdk._codec import repair  # only a malformed response needs it

        return repair.compile_body(self._type)

    @cached_property
    def _dates(self) -> re.Pattern[bytes] | None:
        """What finds days without a time, unless there are none, or other data that may have the same names."""
        from paymentsdk._codec import repair

        return repair.days_without_time(self._type)

    @cached_property
    def _rows(self) -> Rows | None:
        """The member with the rows, if this is a response with one kind of rows."""
        from paymentsdk._codec import repair  # only a large page needs these
        from paymentsdk._codec.relaxed import RelaxedRows
        from paymentsdk._codec.slices import Rows

        found = repair.rows_of(self._type)
        if found is None:
            return None
        name, on_wire, row = found
        exact = msgspec.json.Decoder(GenericAlias(list, (row,))).decode
        unusable = amounts.compile_check(row)
        kind = repair.compile_row(row)
        return Rows(
            name=name,
            on_wire=on_wire,
            read=lambda body: self._read_as(body, exact, lambda rows: any(map(unusable, rows))),
            relaxed=lambda path, reports: RelaxedRows(kind, path, reports),
        )
