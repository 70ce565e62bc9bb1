"""HTML from templates, in which every value is escaped unless it is markup already."""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib import resources

#: The files of this package.
PAGES = resources.files("paymentsdk.sandbox._pages")


class Markup(str):
    """Text that is HTML already. Only the functions of this module and constants in the code make it."""

    __slots__ = ()


def render(template: str, **values: str) -> Markup:
    """Fill the file *template* of ``templates/`` with *values*, each escaped for text and for quoted attributes.

    Raises:
        KeyError: The template names a value that was not given.
    """
    safe = {name: value if isinstance(value, Markup) else escape(value) for name, value in values.items()}
    return Markup(_template(template).substitute(safe))


def join(parts: Iterable[Markup]) -> Markup:
    """Return *parts* one after the other."""
    return Markup("".join(parts))


def breakable(text: str) -> Markup:
    """Return *text* with an amount in it as one that breaks after a comma where it is too long for its place."""
    return Markup(escape(text).replace(",", ",<wbr>"))


@cache
def _template(name: str) -> string.Template:
    return string.Template((PAGES / "templates" / name).read_text(encoding="utf-8"))
