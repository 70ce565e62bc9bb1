"""Keeping credentials out of everything that a person or a log may see."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import ClassVar, Self, SupportsIndex, TypeVar, cast, overload

import msgspec
from msgspec import Struct

T = TypeVar("T")

MASK = "***"
#: Shorter values are not looked for in answers: masking them would only garble the text.
_SHORTEST = 8


class Hidden(str):
    """A credential in a variable: debuggers, and tracebacks that show variables, print ``***``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    def __getitem__(self, place: SupportsIndex | slice) -> Self:
        # Of a long text some of them print the beginning only: it is that of a credential, and hidden as well.
        return type(self)(super().__getitem__(place))

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a credential cannot be pickled")


class HiddenBytes(bytes):
    """A credential that was given as bytes by mistake: it is refused, and the refusal must not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    @overload
    def __getitem__(self, place: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: SupportsIndex | slice) -> int | Self:
        part = super().__getitem__(place)
        return part if isinstance(part, int) else type(self)(part)


def hide(text: T) -> T:
    """Return *text* as one that does not show itself; anything else, such as ``None``, as it is."""
    if isinstance(text, bytes):
        return cast("T", HiddenBytes(text))
    return cast("T", Hidden(text)) if isinstance(text, str) else text


class Secretive:
    """Mixin for a Struct with members that are credentials: ``repr`` masks them, and pickling is refused.

    A pickle that silently lacked the credential would fail later and elsewhere, so there is none.
    """

    __slots__ = ()
    __secrets__: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [
            (name, MASK if name in self.__secrets__ and getattr(self, name) is not None else getattr(self, name))
            for name in getattr(self, "__struct_fields__", ())
        ]

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        names: tuple[str, ...] = getattr(self, "__struct_fields__", ())
        return type(self)(**{name: copy.deepcopy(getattr(self, name), memo) for name in names})

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} holds credentials and cannot be pickled")


def secrets_in(value: object) -> Iterator[str]:
    """Yield every credential held by the Struct *value*, at any depth."""
    if isinstance(value, Struct):
        hidden: frozenset[str] = getattr(value, "__secrets__", frozenset())
        for name in value.__struct_fields__:
            member = getattr(value, name)
            if name in hidden and isinstance(member, str):
                yield member
            else:
                yield from secrets_in(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from secrets_in(member)


def scrub(text: bytes, secrets: Iterable[str]) -> bytes:
    """Mask *secrets* wherever *text* repeats them, as a platform that echoes requests would, as they are or in JSON."""
    # The longest first: of one that begins with another, the rest would stay.
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST:
            for form in (secret.encode(), msgspec.json.encode(str(secret))[1:-1]):
                text = text.replace(form, MASK.encode())
    return text
