"""The command line itself: help, version, exit codes, one line of complaint."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from importlib.metadata import version
from typing import get_args, get_type_hints

import pytest

from paymentsdk.cli import main
from paymentsdk.sandbox import FaultRule

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main({arguments!r}))"


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    program = before + PROGRAM.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def test_version(capsys):
    """--version prints the version that is installed."""
    assert 0 == main(["--version"])
    assert f"paymentsdk {version('paymentsdk')}\n" == capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--version"], ["sandbox", "--seed", "x"], ["unknown"]], ids=" ".join)
def test_the_package_can_be_run(arguments: list[str]):
    """`python -m paymentsdk` says and ends as the command does."""
    command = run(*arguments)
    module = subprocess.run(
        [sys.executable, "-m", "paymentsdk", *arguments], capture_output=True, text=True, timeout=30, check=False
    )

    assert (command.returncode, command.stdout, command.stderr) == (module.returncode, module.stdout, module.stderr)
    assert module.stdout or module.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["unknown"],
        ["demo", "--orders", "0"],
        ["demo", "--orders", "many"],
        ["sandbox", "--port", "x"],
        ["sandbox", "--port", "65536"],
        ["sandbox", "--policy", "cancel_from"],
        ["sandbox", "pay"],
        ["sandbox", "pay", "ORD1", "--method", "cash"],
        ["sandbox", "faults", "stop"],
        ["sandbox", "faults", "add"],
        ["sandbox", "faults", "add", "hang", "times"],
        ["sandbox", "faults", "clear", "first"],
        ["sandbox", "faults", "clear", "0"],
        ["sandbox", "faults", "add", "explode"],
        ["sandbox", "faults", "add", "hang", "effect=reset"],
        ["sandbox", "faults", "list", "1"],
        ["sandbox", "advance"],
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
    "option",
    ["--host localhost", "--port 9", "--db x", "--json", "--seed 1", "--policy page_size=3", "--frozen", "--public"],
)
@pytest.mark.parametrize("command", [["pay", "ORD1"], ["policies"], ["faults"], ["advance", "PT1M"]])
def test_what_a_server_is_started_with_is_not_ignored(capsys, monkeypatch, option: str, command: list[str]):
    """An option that a command would not follow is rejected, and nobody is asked."""
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", "http://127.0.0.1:9")
    with pytest.raises(SystemExit) as ended:
        main(["sandbox", *option.split(), *command])

    complaint = f" is for starting a sandbox, but `paymentsdk sandbox {command[0]}` needs a running one"
    assert 2 == ended.value.code
    assert option.partition(" ")[0] + complaint in capsys.readouterr().err


def test_complaints_show_how_the_command_is_used(capsys):
    """Not how the whole program is: the words that are too many were for the command."""
    with pytest.raises(SystemExit):
        main(["sandbox", "faults", "list", "x"])

    assert capsys.readouterr().err.startswith("usage: paymentsdk sandbox faults list ")


def test_who_names_no_command_sees_them_all(capsys):
    """With the one to start with; it is on stderr, since nothing was done."""
    with pytest.raises(SystemExit) as ended:
        main([])
    misused = capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["--help"])

    assert (2, "", capsys.readouterr().out) == (ended.value.code, misused.out, misused.err)


@pytest.mark.parametrize("arguments", [["--foo"], ["demo", "--foo"], ["sandbox", "faults", "--foo"]], ids=" ".join)
def test_unknown_values_are_named(capsys, arguments: list[str]):
    """In the words that every command line has for it."""
    with pytest.raises(SystemExit):
        main([*arguments, *([] if arguments[1:] else ["demo"])])

    assert capsys.readouterr().err.endswith(": error: unrecognized argument: --foo\n")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ([], "Start with: paymentsdk demo"),
        (["sandbox"], "usage: paymentsdk sandbox [OPTIONS] [COMMAND ...]"),
        (["sandbox"], "paymentsdk sandbox --db shop.db"),
        (["sandbox"], "paymentsdk sandbox pay POS001"),
        (["sandbox", "advance"], "[--tenant ID] DURATION"),
        (["sandbox"], "authorization code in it lasts 10 minutes"),
        (["sandbox"], "(takes precedence over policies stored in --db)"),
        (["sandbox", "pay"], "account_money, credit_card"),
    ],
)
def test_help_says_how_to_begin(capsys, command: list[str], expected: str):
    """The first step, an example, what is optional, what there is to choose from."""
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])

    assert 0 == ended.value.code
    assert expected in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", [["faults"], ["faults", "add"]])
def test_help_lists_every_effect(capsys, command: list[str]):
    """A line for each, with the details that it takes and their defaults."""
    with pytest.raises(SystemExit) as ended:
        main(["sandbox", *command, "--help"])

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert 0 == ended.value.code
    for name in get_args(get_type_hints(FaultRule)["effect"]):
        assert any(line.startswith(f"{name} ") for line in lines)
    assert "drip The response comes byte by byte (seconds=1)" in lines


HELPED = ["", "demo", "journal", "journal recover", "reconcile", "sandbox", "sandbox pay",
          "sandbox policies", "sandbox faults", "sandbox faults add", "sandbox faults clear", "sandbox advance",
          "orders create", "orders get", "merchant-orders search"]  # fmt: skip


@pytest.mark.parametrize("command", HELPED)
def test_help_fits_a_terminal(monkeypatch, capsys, command: str):
    """Examples and tables too, which nobody wraps: no line is above the 80 columns of most of them."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])

    assert [] == [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]


def test_help_is_cheap():
    """Help imports neither aiohttp nor the sandbox: people ask for it all the time."""
    process = run("--help", before="import atexit; atexit.register(lambda: print(sorted(sys.modules)));")

    assert 0 == process.returncode
    modules = process.stdout.splitlines()[-1]
    assert "'paymentsdk.cli'" in modules
    assert "'aiohttp'" not in modules
    assert "'paymentsdk.sandbox'" not in modules
    assert "'urllib.request'" not in modules


@pytest.mark.parametrize("command", ["demo", "sandbox"])
def test_what_is_not_installed_is_said(monkeypatch, capsys, command: str):
    """The sandbox needs a later aiohttp than the client: a command that has none says so, and shows no traceback."""

    def missing(name: str) -> None:
        raise ImportError("the sandbox needs aiohttp 3.14.4 or later, and 3.13.5 is installed")

    monkeypatch.setattr("paymentsdk.cli.import_module", missing)
    with pytest.raises(SystemExit) as ended:
        main([command])

    assert 2 == ended.value.code
    [*_, message] = capsys.readouterr().err.splitlines()
    assert f"paymentsdk {command}: error: the sandbox needs aiohttp 3.14.4 or later, and 3.13.5 is installed" == message


@pytest.mark.parametrize("function", ["import_module", "_demo._run"])
def test_an_interruption_is_130(monkeypatch, capsys, function: str):
    """Ctrl-C ends a command with 130, without a traceback: also while it is loaded."""

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"paymentsdk.cli.{function}", interrupted)

    assert 130 == main(["demo"])
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["sandbox", "--port", "0"], "1"),
        (["sandbox", "--help"], ""),
        (["--version"], ""),
        (["--version"], "1"),
    ],
)
def test_a_reader_who_leaves_is_no_crash(arguments: list[str], unbuffered: str):
    """When nobody reads stdout any more (`| head`), the command ends as SIGPIPE would end it, without a word."""
    command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
    settings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        complaint = process.stderr.read()

    assert b"" == complaint
    assert 141 == process.returncode


def test_no_stdout_is_no_crash(monkeypatch, capsys):
    """Where there is no stdout (`>&-`), the command is done all the same."""
    monkeypatch.setattr(sys, "stdout", None)

    assert 0 == main(["--version"])
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(("arguments", "lines"), [(["--version"], 1), (["bogus"], 0)])
def test_no_stderr_is_not_stdout_instead(monkeypatch, capsys, arguments: list[str], lines: int):
    """Where there is no stderr (`2>&-`), whoever reads stdout finds what was asked for there, and nothing else."""
    monkeypatch.setattr(sys, "stderr", None)

    with suppress(SystemExit):
        main(arguments)

    assert lines == len(capsys.readouterr().out.splitlines())
