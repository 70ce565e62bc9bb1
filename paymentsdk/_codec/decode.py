"""A response's bytes as a Struct: decoded exactly if they follow the contract, repaired if they do not.

Nearly every response goes straight from bytes to its Struct, in C. The text of a JSON number becomes a `Decimal`, and
never a float. Only if that fails, the response is repaired along its type, a large response in a thread. A malformed
row costs no other row, even if it has half an emoji, for which the decoder rejects the JSON. Only a value that is
nested too deeply for the decoder, about a thousand levels, costs the whole body.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, inspect

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import MALFORMED, Anomaly, DecodingError, Reports, kind_of
from paymentsdk._codec.type_walk import allows_null, rows_of, walk
from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._codec.repair import RelaxedDecoder, StructRepair

R = TypeVar("R")

#: Responses of so many bytes are repaired in a thread: smaller ones take a few milliseconds. A response that needs no
#: repair is decoded on the event loop, since the decoder holds the GIL in a thread, too.
LARGE = 65_536
#: An escape: of a whole character, which is a group, or of half a surrogate pair on its own.
_LONE_SURROGATE = (rb"(\\(?:[^u]|u(?![dD][89a-fA-F])|u[dD][89abAB]..\\u[dD][c-fC-F]..))|\\u[dD][89a-fA-F]..").replace(
    b".", rb"[0-9a-fA-F]"
)
#: The bodies of a response without members.
_EMPTY = frozenset({b"", b"null", b"[]", b'""'})


class ResponseDecoder(Generic[R]):
    """Decodes the responses of one operation.

    Raises:
        RequestInvalid: A Struct of *result* forbids unknown fields.
    """

    def __init__(
        self,
        result: type[R],
        *,
        empty: bool = False,
        documented: bool = False,
        essential: Callable[[Anomaly], bool] | None = None,
    ) -> None:
        info = inspect.type_info(result)
        for member in walk(info):
            if isinstance(member.type, inspect.StructType) and member.type.forbid_unknown_fields:
                reason = f"{member.type.cls.__name__} forbids unknown fields, and the platform may add some at any time"
                raise RequestInvalid("result", reason)
        self._type = result
        self._is_struct = isinstance(info, inspect.StructType) and not info.array_like
        self._essential = essential
        self._empty = empty
        self._documented = documented
        # Bytes are returned unchanged.
        self._exact = cast("Callable[[bytes], R]", bytes if result is bytes else msgspec.json.Decoder(result).decode)
        self._unusable = amounts.compile_check(result)

    def decode(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Return the value in *body*, and an anomaly for each repair.

        Raises:
            DecodingError: Nothing in it can be trusted.
        """
        if (value := self.exact(body)) is not None:  # The usual case.
            return value, ()
        return self.repair(body)

    def repair(self, body: bytes) -> tuple[R, tuple[Anomaly, ...]]:
        """Decode like `decode`, for a body that is not `exact`."""
        if self._empty and body.removeprefix(BOM_UTF8).strip() in _EMPTY:
            emptied = Anomaly("$", "", "the body is empty; every field is unset")
            return self._type(), () if self._documented and not body else (emptied,)
        reports = Reports(self._essential)
        try:
            return cast(R, self._repair(body, reports)), reports.all()
        except MALFORMED as error:
            raise DecodingError(f"the body is not JSON: {error}") from None

    def exact(self, body: bytes) -> R | None:
        """Return the value in *body*; `None` if any part of it must be repaired."""
        try:
            value = self._exact(body)
        except (*MALFORMED, ArithmeticError):  # ArithmeticError: a user's class may compare NaN.
            return None
        return value if self._unusable(value) is None else None

    def _repair(self, body: bytes, reports: Reports) -> object:
        if not self._is_struct:
            return self._repair_other(body, reports)
        decoder, page = self._decode(body, reports)
        return decoder.rebuild([page], ["$"], reports.add)[0]

    def _repair_other(self, body: bytes, reports: Reports) -> object:
        """Repair like `_repair`, for a user's type that is not a Struct, such as a list of Structs."""
        from paymentsdk._codec.repair import repair_of  # only a malformed response needs it

        info = inspect.type_info(self._type)
        whole = _with_whole_characters(body, reports).strip()
        value = repair_of(self._type, info)(Raw(whole), "$", reports.add)
        if value is None and not (whole == b"null" and allows_null(info)):
            raise DecodingError(f"the body holds {kind_of(amounts.read_untyped(whole))}, not {self._type}")
        return value

    def _decode(self, body: bytes, reports: Reports) -> tuple[RelaxedDecoder, Struct]:
        """Decode *body*, except its rows and its malformed members."""
        try:
            decoded = self._struct_repair.decode([body])
        except MALFORMED:
            whole = _with_whole_characters(body, reports)
            if whole == body:
                amounts.read_untyped(body)  # Raises with the position in the whole body.
                raise
            return self._decode(whole, reports)
        if decoded is None or len(decoded[1]) != 1:
            value = amounts.read_untyped(body)  # Raises if there is no value, or more than one.
            raise DecodingError(f"the body holds {kind_of(value)}, not an object")
        decoder, [page] = decoded
        return decoder, page

    @cached_property
    def _struct_repair(self) -> StructRepair:
        """The repair of a body, without its rows."""
        from paymentsdk._codec.repair import StructRepair  # only a malformed response needs it

        rows = rows_of(self._type)
        return StructRepair(cast("type[Struct]", self._type), frozenset(rows[1:2] if rows else ()))


def _with_whole_characters(body: bytes, reports: Reports) -> bytes:
    whole, halves = replace_lone_surrogates(body)
    if halves:
        reports.add("$", halves[0], f"has {len(halves)} escape(s) of half a character; each read as U+FFFD")
    return whole


def replace_lone_surrogates(body: bytes) -> tuple[bytes, list[str]]:
    """Return *body* with a replacement character for each escape that is half a surrogate pair, and these escapes.

    The grammar of JSON allows them, and a program that cuts a text inside an emoji writes them, but the decoder rejects
    them. A byte order mark before the JSON is skipped.
    """
    halves: list[str] = []

    def replaced(match: re.Match[bytes]) -> bytes:
        if match[1]:
            return match[1]
        halves.append(match[0].decode())
        return rb"\ufffd"

    return re.sub(_LONE_SURROGATE, replaced, body).removeprefix(BOM_UTF8), halves
