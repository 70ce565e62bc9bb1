"""README.md and the pages below docs/ are run.

Each page is one test. Its blocks run in order:

- ``python``: executed, with ``await`` at the top level; the blocks of a page share their names. A block that defines
  tests is run by pytest, on its own. A remark behind a ``print`` is what it prints, unless it is a sentence.
- ``console`` (lines after ``$``) and ``bash``: commands of ``paymentsdk`` are executed, servers until they tell their
  address. Any other command has to be in `ELSEWHERE`. What is shown below a command is what it prints.
- ``json``, ``toml`` and ``javascript``: parsed, where Python can; below ``<!-- file: name -->``, they are that file for
  the commands that follow. ``yaml`` is for other programs.
  ``text``: left alone. No other language is allowed, so that no block slips through.

A block that only works against the real platform stands below ``<!-- not run: the reason -->``; Python is then compiled
all the same.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from types import CodeType, ModuleType

import pytest

from paymentsdk.cli import main

#: How commands begin that are not run here, and where they are.
ELSEWHERE = {
    "python3 -m venv": "the commands of README.md: .ci/run runs the one, `nox -s wheel` the other",
    "pip install": "installing: `nox -s wheel`",
    "nox": "the checks themselves; this one is among them",
    "python -m benchmarks.": "measuring: `nox -s bench`",
    "set -a;": "a file that only the reader has",
    "eval": "the reader's own shell",
    "curl": "other programs of the reader; the same calls are made by the Python next to them",
}

#: Without it the plugin warns, which ends the tests of a page where the reader makes warnings errors.
LOOPS = ("-o", "asyncio_default_fixture_loop_scope=function")


#: Seconds that a command may take.
LONGEST = 150
#: Of the suites for a transport a part is run here; tests/tooling runs all.
SUITE, PART = "CASES, ids=str", "CASES[::12], ids=str"

_FENCE = re.compile(r"(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<language>\S*)(?P<more>.*)")
_PRINTED = re.compile(r"^ *print\(.*\)  # (.*(?:\.\.\.|[^.\n]))$", re.MULTILINE)
_EXCUSE = re.compile(r"<!-- not run: \S.* -->")
_FILE = re.compile(r"<!-- file: ([\w.-]+) -->")
_LINK = re.compile(r"(?<!`)\[[^\]]*\]\((?P<target>[^)\s]+)[^)]*\)")
_HEADING = re.compile(r"#{1,6} +(?P<title>.+?)(?: +#+)?$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; *line* is that of its first line, *file* what a reader saves it as."""

    page: Path
    line: int
    language: str
    text: str
    excused: bool
    file: str = ""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the fenced blocks of *page*."""
    lines = enumerate(page.read_text(encoding="utf-8").splitlines(), start=1)
    above = ""
    for number, line in lines:
        if not (opening := _FENCE.fullmatch(line)):
            above = line.strip() or above
            continue
        body = []
        for _, content in lines:
            if content.strip() == opening["fence"]:
                break
            body.append(content)
        else:
            pytest.fail(f"{page.name}:{number}: the block has no end")
        text = textwrap.dedent("\n".join(body)) + "\n"
        file = match[1] if (match := _FILE.fullmatch(above)) else ""
        yield Block(page, number + 1, opening["language"], text, excused=bool(_EXCUSE.fullmatch(above)), file=file)
        above = ""


def prose_of(page: Path) -> str:
    """Return *page* without its fenced blocks."""
    return re.sub(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def pages_of(root: Path) -> list[Path]:
    """Return the pages of the project."""
    return [root / "README.md", *sorted(root.glob("docs/**/*.md"))]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test for each page."""
    if "page" in metafunc.fixturenames:
        root = metafunc.config.rootpath
        pages = pages_of(root)
        metafunc.parametrize("page", pages, ids=[page.relative_to(root).as_posix() for page in pages])


class Reader:
    """Somebody who does what a page says, in a directory of their own."""

    def __init__(self, directory: Path, names: dict[str, object], runner: asyncio.Runner) -> None:
        self._directory = directory
        self._names = names
        self._runner = runner
        self._do: dict[str, Callable[[Block], object]] = {
            "python": self._python,
            "console": self._console,
            "bash": self._bash,
            "json": lambda block: json.loads(block.text),
            "toml": lambda block: tomllib.loads(block.text),
            "text": lambda block: None,
            "yaml": lambda block: None,
            "javascript": lambda block: None,
        }

    def assert_works(self, block: Block) -> None:
        """Do what *block* says, and see that it works as it says."""
        if block.language not in self._do:
            pytest.fail(f"{block}: blocks are one of {', '.join(self._do)}, not {block.language!r}")
        if block.file:
            self._directory.joinpath(block.file).write_text(block.text, encoding="utf-8")
        if not block.excused:
            self._do[block.language](block)
        elif block.language == "python":
            compiled(block)

    def _python(self, block: Block) -> None:
        code = compiled(block)
        if re.search(r"^(?:async )?def test_", block.text, re.MULTILINE):
            example = self._directory / f"test_line_{block.line}.py"
            example.write_text(block.text.replace(SUITE, PART), encoding="utf-8")
            config = ["--asyncio-mode=auto", *LOOPS, "--confcutdir=.", "--rootdir=.", "-p", "no:cacheprovider"]
            self._run(block, [sys.executable, "-m", "pytest", "-q", *config, example.name])
            return
        with redirect_stdout(io.StringIO()) as printed:
            if code.co_flags & inspect.CO_COROUTINE:
                self._runner.run(self._awaited(code))
            else:
                exec(code, self._names)
        assert [] == missing(_PRINTED.findall(block.text), printed.getvalue()), f"{block}\n{printed.getvalue()}"

    async def _awaited(self, code: CodeType) -> None:
        await eval(code, self._names)

    def _console(self, block: Block) -> None:
        commands = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
        assert commands, f"{block}: a console block shows its commands after `$ `"
        for command, expected in commands:
            self._command(block, command, expected)

    def _bash(self, block: Block) -> None:
        for command in block.text.replace("\\\n", " ").splitlines():
            if command.strip() and not command.lstrip().startswith("#"):
                self._command(block, command)

    def _command(self, block: Block, command: str, expected: str = "") -> None:
        words = shlex.split(command.replace("\\\n", " "), comments=True)
        if words[0] == "paymentsdk" and is_server(words):
            self._serve(block, words)
        elif words[0] == "paymentsdk":
            printed = self._run(block, words) if "exec" in words else self._call(block, words)
            assert [] == missing(expected.splitlines(), printed), f"{block}: {command}\n{printed}"
        elif not command.startswith(tuple(ELSEWHERE)):
            pytest.fail(f"{block}: `{command}` is neither run here nor said to be run elsewhere")

    def _call(self, block: Block, words: list[str]) -> str:
        """Run a command of `paymentsdk` in this process, which is quicker."""
        with redirect_stdout(io.StringIO()) as printed:
            try:
                code = main(words[1:])
            except SystemExit as end:  # Of argparse.
                code = end.code
        assert not code, f"{block}: {shlex.join(words)} ended with {code}\n{printed.getvalue()}"
        return printed.getvalue()

    def _run(self, block: Block, words: list[str]) -> str:
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LONGEST}
        process = subprocess.run(words, cwd=self._directory, env=environment(), check=False, **options)
        assert 0 == process.returncode, f"{block}: {shlex.join(words)}\n{process.stdout}{process.stderr}"
        return process.stdout

    def _serve(self, block: Block, words: list[str]) -> None:
        """Start a server on a free port, and end it as a person would once it has said that it is there."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen([*words, "--port", "0"], cwd=self._directory, env=environment(), **pipes) as server:
            output = ""
            # What Python says of itself may come first: in debug mode, that a step of the start took long.
            while "http://" not in output and (line := server.stdout.readline()):
                output += line
            server.send_signal(signal.SIGINT)
            more, _ = server.communicate(timeout=LONGEST)
        went_well = "http://" in output and server.returncode in (0, 130, -signal.SIGINT)
        assert went_well, f"{block}: {shlex.join(words)}\n{output}{more}"


def missing(expected: Iterable[str], printed: str) -> list[str]:
    """Return the lines that are *shown* and were not *printed* in this order; ``...`` stands for anything."""
    lines = iter(printed.splitlines())
    forms = {line: ".*".join(map(re.escape, line.split("..."))) for line in expected}
    return [line for line, form in forms.items() if not any(re.fullmatch(form, printed_line) for printed_line in lines)]


def is_server(words: list[str]) -> bool:
    """Whether the command *words* runs until it is ended: the sandbox itself, with nothing but options."""
    subcommand = [word for word in words[2:3] if not word.startswith("-")]
    return words[1:2] == ["sandbox"] and not subcommand and not {"--help", "exec"} & {*words}


def compiled(block: Block) -> CodeType:
    """Return the code of *block*, which points to its place in the page when it fails."""
    source = "\n" * (block.line - 1) + block.text
    return compile(source, str(block.page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def environment() -> dict[str, str]:
    """Return the environment of a reader who has activated the environment that the tests run in."""
    return {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


@pytest.mark.timeout(2 * LONGEST)
def test_a_page_does_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """A reader who copies every block of a page, from top to bottom, meets no error."""
    blocks = list(blocks_of(page))
    if any(block.language in ("python", "console", "bash") and not block.excused for block in blocks):
        request.getfixturevalue("platform")
    if any(block.language == "javascript" for block in blocks) and not which("node"):
        pytest.skip("needs node, which this machine does not have: apt-get install nodejs")
    # The examples are a program of their own: classes that they define are found there, by pickle for one.
    program = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # What a reader leaves there is removed with the rest.
    with asyncio.Runner() as runner:
        reader = Reader(tmp_path, vars(program), runner)
        for block in blocks:
            reader.assert_works(block)


def test_links_lead_somewhere(page: Path) -> None:
    """Every link to a file of the project, and to a heading in one, has an end."""
    dead = []
    for link in _LINK.finditer(prose_of(page)):
        target, _, anchor = link["target"].partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        if not file.exists() or (anchor and anchor not in anchors_of(file)):
            dead.append(link["target"])

    assert [] == dead


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that the headings of *page* get."""
    titles = (match["title"].lower() for match in _HEADING.finditer(prose_of(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}
