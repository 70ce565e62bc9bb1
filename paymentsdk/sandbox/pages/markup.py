"""HTML from templates, in which every value is escaped unless it is markup already."""

from __future__ import annotations

import string
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib import resources

__all__ = ["Markup", "bare", "join", "render"]


class Markup(str):
    """Text that is HTML already. Only :func:`render`, :func:`join` and code that writes constants make it."""

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


def bare(template: str) -> Markup:
    """Return the file *template* as it is."""
    return Markup(_template(template).template)


@cache
def _template(name: str) -> string.Template:
    file = resources.files(__package__) / "templates" / name
    return string.Template(file.read_text(encoding="utf-8"))
