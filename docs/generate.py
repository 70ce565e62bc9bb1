"""Writes the tables in docs/reference, and the pages of docs/api, from the declarations that the code runs on.

::

    python -m docs.generate            write them
    python -m docs.generate --check    exit with 1 and the names of the pages that are not up to date

In docs/reference, a block is between two comments; the first one names the function that writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from docs import api
from docs.tables import BLOCKS

DOCS = Path(__file__).parent
NOTE = "<!-- Written by `python -m docs.generate`. Change the declarations, not this page. -->"
BLOCK = re.compile(r"(<!-- ([\w-]+): python -m docs.generate -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def written() -> Iterator[tuple[Path, str]]:
    """Yield the path of each page, and its text."""
    for page in sorted(DOCS.glob("reference/*.md")):
        text = page.read_text(encoding="utf-8")
        yield page, BLOCK.sub(lambda block: f"{block[1]}{BLOCKS[block[2]]()}{block[3]}", text)
    for name, text in api.pages():
        title, _, body = text.partition("\n\n")
        yield DOCS / "api" / name, f"{title}\n\n{NOTE}\n\n{body}\n".lstrip()


def main(arguments: list[str]) -> None:
    """Write the pages, or check them."""
    pages = dict(written())
    stale = [page for page, text in pages.items() if not page.exists() or page.read_text(encoding="utf-8") != text]
    stale += [page for page in DOCS.glob("api/*.md") if page not in pages]
    if stale and arguments == ["--check"]:
        names = ", ".join(page.relative_to(DOCS).as_posix() for page in stale)
        sys.exit(f"not up to date, run `python -m docs.generate`: {names}")
    for page in stale:
        if page in pages:
            page.write_text(pages[page], encoding="utf-8")
        else:
            page.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
