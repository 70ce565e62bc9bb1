"""The code of the pages can be pasted into a prompt, `python -m asyncio`, of every version that is supported.

Up to 3.12 a prompt takes one statement at a time, and an empty line ends one that has a body. So a class with empty
lines between its methods has to stand in a file, as tests do; docs/README.md says so.
"""

from __future__ import annotations

import ast
import codeop
import re
from pathlib import Path

import pytest

from tests.docs.test_pages import blocks_of, pages_of

ROOT = Path(__file__).parents[2]
#: All but tests, classes and whole programs, which belong in a file.
BLOCKS = [
    block
    for page in pages_of(ROOT)
    for block in blocks_of(page)
    if block.language == "python" and not re.search(r"^class |def test_|^if __name__", block.text, re.MULTILINE)
]


def pasted(text: str) -> str | None:
    """Return what a prompt says to *text*, line by line; ``None`` if it takes all of it."""
    compiled = codeop.CommandCompiler()
    compiled.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    typed: list[str] = []
    for line in [*text.splitlines(), ""]:
        typed.append(line)
        try:
            if compiled("\n".join(typed), "<console>", "single") is not None:
                typed.clear()
        except SyntaxError as error:
            return f"{error}: {typed[-1]}"
    return "\n".join(typed).strip() or None


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_can_be_pasted(block) -> None:
    """Whoever tries what a page shows pastes it as it stands."""
    assert None is pasted(block.text)


@pytest.mark.parametrize(
    "text",
    [
        "class A:\n    x = 1\n\n    y = 2\n",
        "for x in y:\n    x\nprint(y)\n",
        "async with a:\n    pass\nawait b\n",
        "print(\n",
    ],
)
def test_what_cannot_be_pasted_is_found(text: str) -> None:
    """Negative control: an empty line inside a class, a statement right behind a body, one that is not whole."""
    assert pasted(text) is not None


def test_what_can_be_pasted_is_taken() -> None:
    """An empty line may stand between statements, and in brackets and texts."""
    assert None is pasted('x = [\n\n    1,\n]\n\n\ndef f():\n    """A\n\n    b."""\n    return 1\n\n\nawait f()\n')
