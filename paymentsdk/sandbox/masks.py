"""Takes credentials out of what is shown of a request: of its body, its answer and its address."""

from __future__ import annotations

import re
from collections.abc import Container
from decimal import Decimal
from functools import cache
from typing import cast
from urllib.parse import unquote

import msgspec

__all__ = ["mask_body", "mask_parameters"]

_MASK = "***"
_SECRETS = frozenset({"client_secret", "code_verifier", "refresh_token", "access_token", "authorization_code", "token"})
#: Of a request for a token. Elsewhere a code is that of a refusal.
_SECRETS_OF_GRANT = _SECRETS | {"code"}
#: How the names of those parameters end whose values are credentials.
_ENDINGS = ("access_token", "client_secret", "code_verifier", "refresh_token", "code")

#: What may be one of their names, in any case: itself, also in the quotes of other languages, as a program sends that
#: forgot to make JSON of a dict, or a letter that is written as its number.
_TELLING = re.compile(rf"""["'](?:{"|".join(_SECRETS)})["']|\\u00[4567]""".encode(), re.IGNORECASE)
_ESCAPED = re.compile(r"\\u00([4567][0-9A-Fa-f])")
#: The value of a member in what is no JSON: a text, a word, or else all the rest, since nobody knows where it ends.
_VALUE = r"""(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\s"'{\[,}\]]+|.+)"""
#: It begins where a name can, and takes nothing back: a body of one long word is read once.
_PARAMETER = re.compile(r"(?<![^&?=\s\"])([^&?=\s\"]++)=([^&\s\"]*+)")

#: What a body looks like in which members can be found: JSON, whole or not, or a form.
_MEMBERS = re.compile(r"\s*+[{\[][^\0]*+|[^\s=&]++=[^\s&]*+(?:&[^\s=&]++=[^\s&]*+)*+")

# Numbers with a fraction stay as they are, as in what comes in.
_READ = msgspec.json.Decoder(float_hook=Decimal).decode
_WRITE = msgspec.json.Encoder(decimal_format="number").encode


def mask_body(body: bytes, *, grant: bool) -> str:
    """Return *body* as text with a mask for every credential; just as it came, unless it may hold one.

    Args:
        body: What was sent, JSON or not.
        grant: Whether it asks for a token.
    """
    secrets = _SECRETS_OF_GRANT if grant else _SECRETS
    text = body.decode(errors="replace")
    if grant and text and not _MEMBERS.fullmatch(text):
        return _MASK  # Where its secrets begin and end, nobody knows.
    if grant or _TELLING.search(body):
        text = _masked(secrets, body, text)
    # The contract wants JSON; a client that sends a form, as OAuth has it elsewhere, sends its secrets all the same.
    return mask_parameters(text) if grant else text


def mask_parameters(text: str) -> str:
    """Return *text*, such as an address or a form, with a mask for the value of each parameter that is a credential."""
    return _PARAMETER.sub(
        lambda found: f"{found[1]}={_MASK}" if unquote(found[1]).lower().endswith(_ENDINGS) else found[0], text
    )


def _masked(secrets: frozenset[str], body: bytes, text: str) -> str:
    """Return *body*, which is *text*, with a mask for every member of *secrets*, be it JSON or only look like it."""
    try:
        return _WRITE(_without(secrets, _READ(body))).decode()
    except (ValueError, ArithmeticError, RecursionError):
        text = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
        return _member_of(secrets).sub(rf'\1"{_MASK}"', text)


def _without(secrets: Container[str], value: object) -> object:
    """Return *value*, read from JSON, with a mask in the place of every member of *secrets*, whatever that holds."""
    match value:
        case dict():
            members = cast("dict[str, object]", value)
            return {
                name: _MASK if name.lower() in secrets else _without(secrets, inner) for name, inner in members.items()
            }
        case list():
            return [_without(secrets, inner) for inner in cast("list[object]", value)]
        case _:
            return value


@cache
def _member_of(names: frozenset[str]) -> re.Pattern[str]:
    return re.compile(rf"""(["']?(?:{"|".join(names)})["']?\s*:\s*){_VALUE}""", re.DOTALL | re.IGNORECASE)
