"""Keep credentials out of everything that a person or a log may see.

place                         what keeps credentials out
repr of a variable            `Secret`: all code that takes a credential from outside first calls `masked` on it. That
                              is the client, its settings, `_auth`, `oauth`, the transports and the stores
repr of a Struct              `MaskedRepr` for the members in `__secrets__`; `HiddenRepr`, which shows only the class
header fields                 `_headers.py`: a `Headers` shows the values of known fields only
the platform's error message  `scrub`, in `_contract/error_response.py`
the platform's request id     `Credential.mask_request_id`, in `_call/credential.py`
anomalies of a response       `_codec/repair.py`: no value of a member in `__secrets__`
the journal                   `journal/_table.py`: a body with a secret is sealed, or not kept
the sandbox's feed and pages  `sandbox/_feed.py`
tracebacks                    errors are raised outside of handlers, without the frames below them:
                              `Call.run`, `final_error` in `_call/verdicts.py`, `_exchange` of
                              `AiohttpTransport`; that of `Http11Transport` has the bytes to send behind a view
events and the log            `_call/events.py`: no body, and only the request id of the headers; the code and the
                              message of a rejection, which have been through `scrub`
pickles                       `__reduce__` of an object with a credential raises `TypeError`; except a `Headers`
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
#: Shorter values are masked only as whole words: masking parts of other words would garble the text.
LONG = 8
#: Still shorter values are not masked: no platform has such credentials, and they occur in every text.
_SHORTEST = 4
#: Members of a dict that are credentials, in upper or lower case; a Struct names its own.
_NAMES = frozenset({
    "access_token", "authorization", "client_secret", "code_verifier", "password", "refresh_token", "secret", "token",
})  # fmt: skip


class _Masked:
    """Mixin for a credential in a variable: it shows ``***``, stays one object in a copy, and cannot be pickled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(MASK)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a credential cannot be pickled")


class Secret(_Masked, str):
    """A credential as text: debuggers, and tracebacks that show variables, print ``***``."""

    __slots__ = ()

    def __getitem__(self, place: SupportsIndex | slice) -> Self:
        # Some debuggers print only the beginning of a long text, so a part of a credential is masked as well.
        return type(self)(super().__getitem__(place))


class SecretBytes(_Masked, bytes):
    """A credential as bytes: the content of a token store, or bytes that were passed by mistake and are rejected."""

    __slots__ = ()

    @overload
    def __getitem__(self, place: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: SupportsIndex | slice) -> int | Self:
        part = super().__getitem__(place)
        return part if isinstance(part, int) else type(self)(part)


def masked(text: T) -> T:
    """Return *text* as a value that masks itself; return anything else, such as ``None``, unchanged."""
    if isinstance(text, bytes):
        return cast("T", SecretBytes(text))
    # Not `str(text)`, which returns the name of an Enum.
    return cast("T", Secret(str.__str__(text))) if isinstance(text, str) else text


class HiddenRepr:
    """Mixin for a class that may hold credentials anywhere: it shows only the class name, and cannot be pickled."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return []

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(f"{type(self).__name__} may hold credentials and cannot be pickled")


class MaskedRepr:
    """Mixin for a Struct with members that are credentials: ``repr`` masks them, and it cannot be pickled.

    A pickle without the credential would fail later and elsewhere.
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
    """Yield every credential in *value*, at any depth of Structs, dicts and lists; if *hidden*, yield all its texts."""
    if isinstance(value, str):
        if hidden:
            yield value
    elif isinstance(value, Struct):  # A Struct names its own credentials, even inside a hidden member.
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

    They are masked as plain text and with JSON escapes. From 8 characters on also percent-encoded as in a URL, or
    inside base64. Upper and lower case are the same. A secret of 4 to 7 characters is masked as a whole word, except as
    a number in JSON. A shorter secret is never masked.
    """
    lower = text.lower()
    # The longest first: if a secret begins with a shorter one, its rest would stay visible.
    for secret in sorted(secrets, key=len, reverse=True):
        if _SHORTEST <= len(secret) <= len(text):  # No form of it is shorter.
            for form in _forms(str(secret)):
                # Nearly no text contains one, and this search takes a hundredth of the time.
                if form.lower() in lower:
                    pattern = _pattern(form, whole_word=len(secret) < LONG)
                    text = re.sub(pattern, MASK.encode(), text, flags=re.IGNORECASE)
                    lower = text.lower()
    return text


def _forms(secret: str) -> set[bytes]:
    """Return the forms in which a text may repeat *secret*."""
    plain = secret.encode()
    forms = {plain, msgspec.json.encode(secret)[1:-1]}
    if len(secret) >= LONG:
        from binascii import b2a_base64  # only a rejection needs them
        from urllib.parse import quote

        forms.add(quote(secret, safe="").encode())
        for before in range(3):  # So many bytes before it in the same base64 shift it.
            whole = slice(before and before + 1, (before + len(plain)) * 8 // 6)  # Without its neighbours' bits.
            shifted = b2a_base64(bytes(before) + plain)[whole]
            forms |= {shifted, shifted.translate(bytes.maketrans(b"+/", b"-_"))}
    return forms


def _pattern(secret: bytes, *, whole_word: bool) -> bytes:
    if not whole_word:
        return re.escape(secret)
    bare = rb"(?<![:,\[])(?<![:,] )" if secret.isdigit() else b""
    return bare + rb"(?<!\w)" + re.escape(secret) + rb"(?!\w)"
