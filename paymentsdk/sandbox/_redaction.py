"""Takes credentials out of what is shown of a request: of its body, its response and its address."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import cache
from typing import cast
from urllib.parse import unquote

from paymentsdk._operation.operation import Operation
from paymentsdk._secrets import MASK
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox._records import Tenant
from paymentsdk.sandbox._responses import read_json, structs_in, write_json

#: A credential only in a request for a token: elsewhere a ``code`` is that of a rejection.
_OF_GRANT = frozenset({"code"})
#: A credential only under this very name, or as a part of one (``payer[token]``). Other parameters are known by how
#: their names end, and one that ends like this may say of what kind a token is (``type_token``).
_WHOLE = frozenset({"token"})

#: A letter as an escape of JSON.
_ESCAPED = re.compile(r"\\u00([4567][0-9A-Fa-f])")
#: The value of a member in what is no JSON: a text, a word that nothing opens after, as in `bytearray(b"...")`, or else
#: all the rest, since nobody knows where it ends.
_VALUE = r"""(?:[bu]?"(?:[^"\\]|\\.)*"?|[bu]?'(?:[^'\\]|\\.)*'?|[^\s"'(){\[,}\]]++(?!["'({\[])|.+)"""
#: A parameter. A match begins where a name can, and gives back nothing that it took (``++``): otherwise a body of one
#: long word would be read anew from each of its letters.
_PARAMETER = re.compile(r"(?<![^&?=\s\"])([^&?=\s\"]++)=(\"[^&\"]*+\"?|[^&\s\"]*+)")

#: What a body looks like in which members can be found: JSON, whole or not, or a form.
_JSON = re.compile(r"\s*+[{\[][^\0]*+")
_FORM = re.compile(r"\s*+(?![{\[\"])[^\s=&]++=[^\s&]*+(?:&[^\s=&]++=[^\s&]*+)*+\s*+")
#: How JSON begins that holds texts, where what looks like a parameter is none.
_OPENING = ("{", "[", '"')


def redact_body(body: bytes, *, grant: bool, also: frozenset[str] = frozenset()) -> str:
    """Return *body* as text with a mask for every credential; just as it came, unless it may hold one.

    Args:
        body: What was sent, JSON or not.
        grant: Whether it asks for a token.
        also: Names of credentials that only another program declares.
    """
    secrets = (_secrets() | also) - (frozenset() if grant else _OF_GRANT)
    text = body.decode(errors="replace")
    if grant and text and not _FORM.fullmatch(text) and not _JSON.fullmatch(text):
        return MASK  # Where its secrets begin and end, nobody knows.
    if grant or _telling(secrets).search(body):
        text = _masked(secrets, body, text)
    # The contract wants JSON; a client that sends a form, as OAuth has it elsewhere, sends its secrets all the same.
    return text if not grant and text.lstrip().startswith(_OPENING) else _with_masks(secrets, text)


def redact_parameters(text: str, also: frozenset[str] = frozenset()) -> str:
    """Return *text*, such as an address, with a mask for the value of each parameter that is a credential."""
    return _with_masks(_secrets() | also, text)


def _with_masks(secrets: frozenset[str], text: str) -> str:
    return _PARAMETER.sub(lambda found: f"{found[1]}={MASK}" if _is_secret(secrets, found[1]) else found[0], text)


def _is_secret(secrets: frozenset[str], name: str) -> bool:
    """Whether a parameter of this *name*, such as `client_secret` or `payer[token]`, is or holds one of *secrets*."""
    return _naming(secrets).search(unquote(name)) is not None


@cache
def _naming(names: frozenset[str]) -> re.Pattern[str]:
    """Return what finds one of *names* in the name of a parameter, or in a part of it, in any case."""
    endings, whole = "|".join(names - _WHOLE), "|".join(_WHOLE)
    return re.compile(rf"(?:{endings}|(?<![^\[\].])(?:{whole}))(?![^\[\].])", re.IGNORECASE)


@cache
def _secrets() -> frozenset[str]:
    return secrets_of(OPERATIONS.values())


def secrets_of(operations: Iterable[Operation[object, object]]) -> frozenset[str]:
    """Return the names of all that one of *operations*, or a seller, declares a credential, in lower case."""
    kinds = {kind for one in operations for kind in (one.body, one.result) if kind is not None}
    return frozenset[str]().union(*map(_declared_in, {Tenant, *kinds}))


@cache
def _declared_in(kind: type) -> frozenset[str]:
    """Return the names of the credentials that a value of *kind* may hold, in lower case."""
    return frozenset(
        field.encode_name.lower()
        for struct in structs_in([kind])
        for field in struct.fields
        if field.name in getattr(struct.cls, "__secrets__", ())
    )


@cache
def _telling(names: frozenset[str]) -> re.Pattern[bytes]:
    """Return what finds one of *names* in quotes, in any case, or a letter as an escape, which may be a part of one.

    Single quotes count as well: a program that forgot to make JSON of a dict sends them.
    """
    return re.compile(rf"""["'](?:{"|".join(names)})["']|\\u00[4567]""".encode(), re.IGNORECASE)


def _masked(secrets: frozenset[str], body: bytes, text: str) -> str:
    """Return *body*, which is *text*, with a mask for every member of *secrets*, be it JSON or what looks like it."""
    try:
        return write_json(_without(secrets, read_json(body))).decode()
    except (ValueError, ArithmeticError, RecursionError):
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        return _member_of(secrets).sub(rf'\1"{MASK}"', text)


def _without(secrets: Container[str], value: object) -> object:
    """Return *value*, read from JSON, with a mask in the place of every member of *secrets*, whatever that holds."""
    match value:
        case dict():
            members = cast("dict[str, object]", value)
            return {
                name: MASK if name.lower() in secrets else _without(secrets, inner) for name, inner in members.items()
            }
        case list():
            return [_without(secrets, inner) for inner in cast("list[object]", value)]
        case _:
            return value


@cache
def _member_of(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"""(["']?(?:{"|".join(names)})["']?\s*:\s*){_VALUE}""", re.DOTALL | re.IGNORECASE)
