"""The command line itself: help, version, exit codes, one line of complaint."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import pytest

from paymentsdk.cli import main

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main({arguments!r}))"


#: Each argument, option and nested command, as `--help` shows it.
SURFACE = Path(__file__).with_name("surface.txt")
COMMANDS = ("demo", "sandbox", "journal", "inbox", "tokens", "reconcile")
#: The others have the same options.
OPERATIONS = ("orders create", "orders refund", "orders wait", "plans search")
SECTION = re.compile(r"^(positional arguments|options|commands|examples|exit codes):\n((?: .*\n)+)", re.MULTILINE)


def test_version(capsys):
    """--version prints the version that is installed."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert not ended.value.code
    assert f"paymentsdk {version('paymentsdk')}\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["unknown"], ["orders"], ["journal"], ["inbox"], ["tokens"], ["sandbox", "snapshot"]),
        ["demo", "--orders", "0"],
        ["sandbox", "--port", "65536"],
        ["sandbox", "--policy", "cancel_from"],
        *(["sandbox", "pay"], ["sandbox", "listen"], ["reconcile", "book.csv"]),
        ["sandbox", "pay", "/"],
        ["sandbox", "pay", "ORD1", "--method", "cash"],
        ["sandbox", "faults", "add", "hang", "times"],
        ["sandbox", "faults", "clear", "0"],
        ["sandbox", "faults", "list", "1"],
        ["sandbox", "policies", "cancel_from"],
    ],
)
def test_a_command_that_makes_no_sense_is_2(capsys, arguments: list[str]):
    """Misuse ends with 2, and says on stderr how it is used."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    printed = capsys.readouterr()
    assert 2 == ended.value.code
    assert "" == printed.out
    assert printed.err.startswith("usage: paymentsdk")


@pytest.mark.control("paymentsdk.cli._control._reject_settings", lambda options: None)
@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--host localhost", ["pay", "ORD1"]),
        ("--db x", ["policies"]),
        ("--policy page_size=3", ["faults"]),
        ("--frozen", ["advance", "PT1M"]),
    ],
)
def test_what_a_server_is_started_with_is_not_ignored(capsys, monkeypatch, option: str, command: list[str]):
    """An option that a command would not follow is rejected, and nobody is asked."""
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(SystemExit) as ended:
        main(["sandbox", *option.split(), *command])

    complaint = f" is for starting a sandbox, but `paymentsdk sandbox {command[0]}` needs a running one"
    assert 2 == ended.value.code
    assert option.partition(" ")[0] + complaint in capsys.readouterr().err


def test_scripts_find_what_they_know(run, monkeypatch):
    """Commands, arguments and options stay. Filters are not listed: they are those of the contract.

    Everybody on the machine sees arguments, so only a sandbox takes a credential there: its own.
    """
    monkeypatch.setenv("COLUMNS", "500")
    commands, lines = [*COMMANDS, *OPERATIONS], []
    for command in commands:
        text = run(*command.split(), "--help")[1]
        lines.append(re.sub(r"( \[(?!OPTIONS|FILTERS).*)?\n.*", "", text, flags=re.DOTALL))
        for title, rows in SECTION.findall(text):
            names = re.findall(r"^ {2,4}(\S.*?)(?:  |$)", rows, re.MULTILINE)
            commands += [f"{command} {name}" for name in names if title == "commands" and name.islower()]
            lines += [f"  {title}: {name}" for name in names if not name.endswith((" VALUE", "--help"))]

    assert SURFACE.read_text(encoding="utf-8").splitlines() == lines


def test_help_is_cheap():
    """Help imports neither aiohttp nor the sandbox: people ask for it all the time."""
    before = "import atexit; atexit.register(lambda: print(sorted(sys.modules)));"
    program = before + PROGRAM.format(arguments=["--help"])
    modules = subprocess.check_output([sys.executable, "-c", program], text=True).splitlines()[-1]

    assert "'paymentsdk.cli'" in modules
    assert "'aiohttp'" not in modules
    assert "'paymentsdk.sandbox'" not in modules
    assert "'urllib.request'" not in modules


def test_what_is_not_installed_is_said(monkeypatch, capsys):
    """The sandbox needs a later aiohttp than the client: a command that has none says so, and shows no traceback."""

    def missing(name: str) -> None:
        raise ImportError("the sandbox needs aiohttp 3.14.4 or later, and 3.13.5 is installed")

    monkeypatch.setattr("paymentsdk.cli.import_module", missing)
    with pytest.raises(SystemExit) as ended:
        main(["sandbox"])

    assert 2 == ended.value.code
    [*_, message] = capsys.readouterr().err.splitlines()
    assert "paymentsdk sandbox: error: the sandbox needs aiohttp 3.14.4 or later, and 3.13.5 is installed" == message


@pytest.mark.parametrize("function", ["import_module", "_demo._run"])
def test_an_interruption_is_130(monkeypatch, capsys, function: str):
    """Ctrl-C ends a command with 130, without a traceback: also while it is loaded."""

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"paymentsdk.cli.{function}", interrupted)

    assert 130 == main(["demo"])
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "unbuffered"), [(["sandbox", "--port", "0"], "1"), (["--version"], "")])
def test_a_reader_who_leaves_is_no_crash(arguments: list[str], unbuffered: str):
    """When nobody reads stdout any more (`| head`), the command ends as SIGPIPE would end it, without a word."""
    command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
    settings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        complaint = process.stderr.read()

    assert b"" == complaint
    assert 141 == process.returncode


@pytest.mark.parametrize(("arguments", "lines"), [(["--version"], 1), (["bogus"], 0)])
def test_no_stderr_is_not_stdout_instead(monkeypatch, capsys, arguments: list[str], lines: int):
    """Where there is no stderr (`2>&-`), whoever reads stdout finds what was asked for there, and nothing else."""
    monkeypatch.setattr(sys, "stderr", None)

    with suppress(SystemExit):
        main(arguments)

    assert lines == len(capsys.readouterr().out.splitlines())
