"""Keeping credentials out of everything that a person or a log may see.

where it could show           what keeps it out
repr of a variable            `Secret`: whatever takes a credential from outside calls `masked` on it first, which is
                              the client, its settings, `_auth`, `oauth`, the transports and the stores
repr of a Struct              `MaskedRepr` for the members in `__secrets__`; `HiddenRepr`, which shows the class alone
header fields                 `_headers.py`: a `Headers` shows the values of known fields only
the platform's error message  `scrub`, in `_contract/error_response.py`
the platform's request id     `Credential.mask_request_id`, in `_call/credential.py`
anomalies of a response       `_codec/repair.py`: of a member in `__secrets__`, no value
the journal                   `journal/_table.py`: a body with a secret is sealed, or not kept
the sandbox's feed and pages  `sandbox/_feed.py`
tracebacks                    errors are raised outside of handlers, without those of the frames below:
                              `Call.run`, `final_error` in `_call/verdicts.py`, `send` of `AiohttpTransport`;
                              that of `Http11Transport` has what it sends behind a view
events and the log            `_call/events.py`: no body, and of headers the request id alone; of a rejection its
                              code and message, which have been through `scrub`
pickles                       `__reduce__` of what holds one raises `TypeError`; but a `Headers` pickles as a dict
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar, Self, SupportsIndex, TypeVar, cast, overload

import msgspec
from msgspec import Struct

T = TypeVar("T")

MASK = "***"
#: Shorter values are masked as whole words alone: inside of others they would garble the text.
LONG = 8
#: Still shorter ones are not masked: they are no credentials of any platform, and stand in every text.
_SHORTEST = 4
#: Members of a dict that are credentials, in any case; a Struct names its own.
_NAMES = frozenset({
    "access_token", "authorization", "client_secret", "code_verifier", "password", "refresh_token", "secret", "token",
})  # fmt: skip


class _Masked:
    """Mixin for a credential in a variable: it shows ``***``, stays the same object in a copy, and is not pickled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a credential cannot be pickled")


class Secret(_Masked, str):
    """A credential in a variable: debuggers, and tracebacks that show variables, print ``***``."""

    __slots__ = ()

    def __getitem__(self, place: SupportsIndex | slice) -> Self:
        # Some of them print only the beginning of a long text: where that begins a credential, it is hidden as well.
        return type(self)(super().__getitem__(place))


class SecretBytes(_Masked, bytes):
    """A credential as bytes: the content of a token store, or what was given so by mistake and is rejected."""

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: SupportsIndex | slice) -> int | Self:
        part = super().__getitem__(place)
        return part if isinstance(part, int) else type(self)(part)


def masked(text: T) -> T:
    """Return *text* as one that does not show itself; anything else, such as ``None``, as it is."""
    if isinstance(text, bytes):
        return cast("T", SecretBytes(text))
    # Not `str(text)`: that of an Enum is its name.
    return cast("T", Secret(str.__str__(text))) if isinstance(text, str) else text


class HiddenRepr:
    """Mixin for what may hold credentials anywhere: it shows its class alone, and pickling is rejected."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} may hold credentials and cannot be pickled")


class MaskedRepr:
    """Mixin for a Struct with members that are credentials: ``repr`` masks them, and pickling is rejected.

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


def secrets_in(value: object, *, hidden: bool = False) -> Iterator[str]:
    """Yield every credential in *value*, at any depth of Structs, dicts and lists; if it is *hidden*, all its texts."""
    if isinstance(value, str):
        if hidden:
            yield value
    elif isinstance(value, Struct):  # It names its own, also where it is hidden itself.
        names: frozenset[str] = getattr(value, "__secrets__", frozenset())
        for name in value.__struct_fields__:
            yield from secrets_in(getattr(value, name), hidden=name in names)
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield from secrets_in(member, hidden=hidden or str(name).lower() in _NAMES)
    elif isinstance(value, list | tuple | set | frozenset):
        for member in value:
            yield from secrets_in(member, hidden=hidden)


def scrub(text: bytes, secrets: Iterable[str]) -> bytes:
    """Mask *secrets* wherever *text* repeats them, as a platform that echoes requests would.

    That is as they are, and with the escapes of JSON; from 8 characters on also percent-encoded as in a URL, or as a
    part of what is in base64. Upper and lower case are the same. One of 4 to 7 characters is masked as a whole word,
    and not where it would be a number of JSON; a shorter one never.
    """
    lower = text.lower()
    # The longest first: of one that begins with another, the rest would stay.
    for secret in sorted(secrets, key=len, reverse=True):
        if _SHORTEST <= len(secret) <= len(text):  # No form of it is shorter.
            for form in _forms(str(secret)):
                # Nearly no text has one, and to look for it so costs a hundredth.
                if form.lower() in lower:
                    pattern = _pattern(form, whole_word=len(secret) < LONG)
                    text = re.sub(pattern, MASK.encode(), text, flags=re.IGNORECASE)
                    lower = text.lower()
    return text


def _forms(secret: str) -> set[bytes]:
    """Return *secret* in the forms in which somebody may repeat it."""
    plain = secret.encode()
    forms = {plain, msgspec.json.encode(secret)[1:-1]}
    if len(secret) >= LONG:
        from binascii import b2a_base64  # only a rejection needs them
        from urllib.parse import quote

        forms.add(quote(secret, safe="").encode())
        for before in range(3):  # What stands before it in the same base64 shifts it by so many bytes.
            whole = slice(before and before + 1, (before + len(plain)) * 8 // 6)  # The others tell of more than it.
            shifted = b2a_base64(bytes(before) + plain)[whole]
            forms |= {shifted, shifted.translate(bytes.maketrans(b"+/", b"-_"))}
    return forms


def _pattern(secret: bytes, *, whole_word: bool) -> bytes:
    if not whole_word:
        return re.escape(secret)
    bare = rb"(?<![:,\[])(?<![:,] )" if secret.isdigit() else b""
    return bare + rb"(?<!\w)" + re.escape(secret) + rb"(?!\w)"
