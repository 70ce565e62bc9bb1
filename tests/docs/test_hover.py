"""What an editor shows: the text below each public field, asked of a language server as an editor asks."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from enum import Enum
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from docs.api import public_modules
from docs.describe import names_of

ROOT = Path(__file__).parents[2]
SERVER = Path(sys.executable).with_name("pyright-langserver")
#: A method, a function, and an argument that is a field of a TypedDict: what else one hovers over.
OTHERS = {
    "paymentsdk.PaymentsClient(base_url='').orders.create": "Create an order",
    "paymentsdk.PaymentsClient.from_env": "PAYMENTSDK_BASE_URL",
}


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


class Editor:
    """A client of a language server, over its standard input and output."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self._server = server
        self._number = 0

    def ask(self, method: str, parameters: dict[str, object]) -> typing.Any:
        """Send a request, and return its result; whatever the server asks meanwhile gets an empty response."""
        self._number += 1
        self.send({"id": self._number, "method": method, "params": parameters})
        while True:
            message = self._read()
            if message.get("id") == self._number and "method" not in message:
                return message["result"]
            if "id" in message:
                items = message["params"].get("items", []) if isinstance(message.get("params"), dict) else []
                self.send({"id": message["id"], "result": [None for _ in items]})

    def send(self, message: dict[str, object]) -> None:
        """Send a message."""
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self._server.stdin.flush()

    def _read(self) -> dict[str, typing.Any]:
        length = 0
        while line := self._server.stdout.readline().strip():
            if line.lower().startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        return json.loads(self._server.stdout.read(length))


@pytest.fixture
def hover(tmp_path: Path):
    """Return a function that opens a file in an editor, and returns what it shows at each line's last name."""
    if not SERVER.exists():
        pytest.skip("needs pyright: the group `types`")
    tmp_path.joinpath("pyrightconfig.json").write_text(
        json.dumps({"venvPath": str(Path(sys.prefix).parent), "venv": Path(sys.prefix).name, "extraPaths": [str(ROOT)]})
    )

    def hover(lines: list[str]) -> list[str]:
        uri = tmp_path.joinpath("program.py").as_uri()
        pipe = subprocess.PIPE
        with subprocess.Popen([SERVER, "--stdio"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as server:
            editor = Editor(server)
            root = tmp_path.as_uri()
            editor.ask(
                "initialize",
                {
                    "processId": None,
                    "rootUri": root,
                    "capabilities": {},
                    "workspaceFolders": [{"uri": root, "name": "t"}],
                },
            )
            editor.send({"method": "initialized", "params": {}})
            text = {"uri": uri, "languageId": "python", "version": 1, "text": "\n".join(lines)}
            editor.send({"method": "textDocument/didOpen", "params": {"textDocument": text}})
            texts = []
            for number, line in enumerate(lines):
                place = {"line": number, "character": max(len(line) - 1, 0)}
                answer = editor.ask("textDocument/hover", {"textDocument": {"uri": uri}, "position": place})
                texts.append(" ".join(answer["contents"]["value"].split()) if answer else "")
            editor.ask("shutdown", {})
            editor.send({"method": "exit", "params": {}})
        return texts

    return hover


def plain(text: str) -> str:
    """Return the words of *text* alone: a server writes Markdown in its own way."""
    return re.sub(r"\W+", " ", text)


def test_an_editor_shows_the_text_of_every_field(hover):
    """Over each field of a Struct and an error, and over a method, the language server shows what is written below."""
    public_fields = [(cls, name, text) for cls, name, text in fields() if not typing.is_typeddict(cls)]
    modules = sorted({cls.__module__ for cls, _, _ in public_fields} | {"paymentsdk"})
    lines = [f"import {module}" for module in modules]
    place = {(cls, name): len(lines) + number for number, (cls, name, _) in enumerate(public_fields)}
    lines += [f"{cls.__module__}.{cls.__qualname__}.{name}" for cls, name, _ in public_fields]
    lines += OTHERS

    hovers = hover(lines)

    expected = {f"{cls.__qualname__}.{name}": (text, hovers[place[cls, name]]) for cls, name, text in public_fields}
    expected |= {title: (text, hovers[lines.index(title)]) for title, text in OTHERS.items()}
    assert [] == [
        title for title, (text, displayed) in expected.items() if plain(text)[:60].strip() not in plain(displayed)
    ]


def test_a_field_without_a_text_shows_none(hover):
    """Negative control: the text comes from below the field, not from its class or its type."""
    documented_class = ["class Told:", "    one: int", "    '''Its text.'''"]
    bare = ["class Bare:", "    '''Its text.'''", "    one: int"]

    *_, first, second = hover([*documented_class, *bare, "Told.one", "Bare.one"])

    assert "Its text" in first
    assert "Its text" not in second
