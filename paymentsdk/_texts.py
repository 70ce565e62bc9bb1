"""Read the texts below members in the source, which editors show, for documents, pages and help texts."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise


@cache
def texts(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the text below each member of each class of *module*; empty without its source."""
    try:
        tree = ast.parse(inspect.getsource(import_module(module)))
    except OSError:
        return {}
    return {node.name: dict(_members(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for member, below in pairwise(node.body):
        match member, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str() as text)):
                yield name, " ".join(text.split())
