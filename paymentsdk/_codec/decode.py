"""A response's bytes as a Struct: exact where they follow the contract, repaired where they do not.

Nearly every response goes straight from bytes to its Struct, in C: the text of a JSON number becomes a `Decimal`, and
never a float. Only when that fails is it repaired along the type. A large page is decoded in slices: the event loop has
a turn after each, and one malformed row costs no other.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec
from msgspec import Struct

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MALFORMED, Anomaly, DecodingError, Reports
from paymentsdk._codec.type_walk import days_without_time

if TYPE_CHECKING:
    from paymentsdk._codec.slices import BodyRepair

R = TypeVar("R")

#: Bytes from which on other tasks have turns while a response is decoded: less takes a few milliseconds, even if all of
#: it is malformed.
LARGE = 65_536
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
        # Bytes are taken for what they are.
        self._exact = cast("Callable[[bytes], R]", bytes if result is bytes else msgspec.json.Decoder(result).decode)
        self._unusable = amounts.compile_check(result)

    def decode(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Return the value in *body*, and what had to be repaired.

        Raises:
            DecodingError: Nothing in it can be trusted.
        """
        if (value := self._read(body)) is not None:  # Nearly every response takes this way alone.
            return value, ()
        if self._empty and body.strip() in _EMPTY:
            found = Anomaly("$", "", "the body is empty; every field is unset")
            return self._type(), () if self._documented and not body else (found,)
        reports = Reports(self._essential)
        try:
            return cast(R, self._body.read(body, reports)), reports.all()
        except MALFORMED as error:
            raise DecodingError(f"the body is not JSON: {error}") from None

    async def decode_in_turns(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Do what `decode` does with a large body; others go on between the slices of a page."""
        if (len(body) < HUGE or self._type is bytes) and (value := self._read(body)) is not None:
            return value, ()
        reports = Reports(self._essential)
        try:
            return cast(R, await self._body.read_in_turns(body, reports)), reports.all()
        except MALFORMED as error:
            raise DecodingError(f"the body is not JSON: {error}") from None

    def _read(self, body: bytes) -> R | None:
        """Return the value in *body*; `None` if something in it has to be repaired."""
        try:
            value = self._exact(body)
        except MALFORMED as error:
            if _NO_TIMESTAMP not in str(error) or self._days is None:
                return None
            # The contract has days without a time as well. A page of them would take several times as long to repair.
            dated, count = self._days.subn(rb'\1T00:00:00Z"', body)
            return self._read(dated) if count else None
        return value if self._unusable(value) is None else None

    @cached_property
    def _days(self) -> re.Pattern[bytes] | None:
        return days_without_time(self._type)

    @cached_property
    def _body(self) -> BodyRepair:
        from paymentsdk._codec.slices import BodyRepair  # only a malformed response needs it

        return BodyRepair(cast("type[Struct]", self._type))
