"""A Markdown extension that links names in backticks to their pages.

`RetryPolicy` in a page or a docstring becomes a link to the page of the public name; `orders.create` leads to the
operation. It changes the headings of the API, so that the search of the site finds the guides first.
"""

from __future__ import annotations

import re
from pathlib import Path
from re import Match
from xml.etree.ElementTree import Element, SubElement

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from markdown.postprocessors import Postprocessor
from markdown.preprocessors import Preprocessor
from markdown.util import AtomicString

from paymentsdk import OPERATIONS

API = Path(__file__).parent / "api"


def public_names() -> dict[str, str]:
    """Return the full path of each public name that is unique, by name."""
    paths: dict[str, str] = {}
    for page in sorted(API.glob("*.md")):
        for path in re.findall(r"^::: (paymentsdk\.[\w.]+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            name = path.rpartition(".")[2]
            paths[name] = "" if name in paths else path
    return {name: path for name, path in paths.items() if path}


class Names(InlineProcessor):
    """Links code in backticks that is a public name, or a member of a public name."""

    def __init__(self, md: Markdown) -> None:
        super().__init__(r"(?<![`\\\[])(`{1,2})((?:paymentsdk\.)?[A-Za-z_][\w.]*)(\(\))?\1(?!`)", md)
        self._names = public_names()
        self._operations = {name: name.replace(".", "") for name in OPERATIONS}

    def handleMatch(self, m: Match[str], data: str) -> tuple[Element, int, int] | tuple[None, None, None]:
        """Return the link, or `None` three times if the name is not from this package."""
        name = m[2].removeprefix("paymentsdk.")
        first, _, attribute = name.partition(".")
        path = self._names.get(first) if first[:1].isupper() else self._operations.get(name)
        if path is None:
            return None, None, None
        member = f".{attribute}" if attribute and first[:1].isupper() else ""
        link = Element("autoref", {"identifier": path + member, "optional": ""})
        SubElement(link, "code").text = AtomicString(m[2] + (m[3] or ""))
        return link, m.start(0), m.end(0)


class Colons(Preprocessor):
    """Replaces the `::` before code in a docstring: Markdown recognizes code by the indentation."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the *lines* without `::`."""
        return [re.sub(r"^ *::$", "", re.sub(r"(?<=[^:\s])::$", ":", line)) for line in lines]


class Headings(Postprocessor):
    """Changes headings so that the search finds guides before the API: it ranks titles by the position of a word.

    The heading of a field becomes text of its class. Any other heading begins with its kind.
    """

    _FIELD = re.compile(
        r'<h([2-6]) (id="[^"]*" class="doc doc-heading">(?:(?!</h).)*?doc-attribute-name.*?)</h\1>', re.DOTALL
    )
    _KIND = re.compile(r'(<code class="doc-symbol doc-symbol-heading doc-symbol-((?!attribute)\w+)">)(?=</code>)')
    # Labels that every field has are removed; `async`, `property` and `classmethod` stay.
    _LABEL = re.compile(r'<small class="doc doc-label doc-label-(?:class|instance|module)-attribute">.*?</small>')

    def run(self, text: str) -> str:
        """Return the HTML *text* with the changed headings."""
        text = self._FIELD.sub(r'<div role="heading" aria-level="\1" \2</div>', text)
        return self._LABEL.sub("", self._KIND.sub(r"\1\2", text))


class Links(Extension):
    """The extension with all of these processors."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Register the processors: colons after fenced code (25), names before inline code (190), headings last."""
        md.preprocessors.register(Colons(md), "colons", 5)
        md.inlinePatterns.register(Names(md), "public-names", 195)
        md.postprocessors.register(Headings(md), "headings", 0)


def makeExtension(**options: object) -> Links:
    """Return the extension; Markdown asks for it by this name."""
    return Links(**options)
