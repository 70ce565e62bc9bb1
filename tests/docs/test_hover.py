"""What an editor shows: the text below each public field, asked of a language server as an editor asks."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import pairwise

import pytest

from docs.api import public_modules
from docs.describe import names_of

pytestmark = pytest.mark.timeout(300)  # Seconds of work; a loaded machine takes many times that.


def fields() -> Iterator[tuple[type, str, str]]:
    """Yield each field that a public class of ours declares: the class, its name, and the text below it."""
    for module in public_modules():
        for name in names_of(module):
            cls = getattr(module, name)
            if inspect.isclass(cls) and cls.__module__.startswith("paymentsdk") and not issubclass(cls, Enum):
                for node in tree_of(cls.__module__):
                    if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                        yield from ((cls, *field) for field in documented([*node.body, ast.Pass()]))


@cache
def tree_of(module: str) -> list[ast.stmt]:
    """Return the statements of a module."""
    return ast.parse(inspect.getsource(importlib.import_module(module))).body


def documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """Yield each field of the body of a class, with the text below it."""
    for statement, below in pairwise(body):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name)) if not name.startswith("_"):
                match below:
                    case ast.Expr(value=ast.Constant(value=str() as text)):
                        yield name, " ".join(text.split())
                    case _:
                        yield name, ""


def test_every_public_field_is_documented():
    """Whoever hovers over a field learns what it holds, its unit and its default: none is without a text."""
    texts = [(f"{cls.__module__}.{cls.__qualname__}.{name}", text) for cls, name, text in fields()]

    assert 900 < len(texts)
    assert [] == [name for name, text in texts if len(text) < 5]
