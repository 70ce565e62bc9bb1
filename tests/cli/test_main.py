"""The command line itself: help, version, exit codes, one line of complaint."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

from paymentsdk.cli import main

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main({arguments!r}))"


def run(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    program = before + PROGRAM.format(arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)


def test_version(capsys):
    """--version prints the version that is installed."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert 0 == ended.value.code
    assert f"paymentsdk {version('paymentsdk')}\n" == capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--version"], ["sandbox", "policies"], ["unknown"]], ids=" ".join)
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
        ["sandbox", "faults", "list", "1"],
        ["sandbox", "advance"],
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


def test_help_is_cheap():
    """Help imports neither aiohttp nor the sandbox: people ask for it all the time."""
    done = run("--help", before="import atexit; atexit.register(lambda: print(sorted(sys.modules)));")

    assert 0 == done.returncode
    modules = done.stdout.splitlines()[-1]
    assert "'paymentsdk.cli'" in modules
    assert "'aiohttp'" not in modules
    assert "'paymentsdk.sandbox'" not in modules
    assert "'urllib.request'" not in modules


def test_an_interruption_is_130(monkeypatch, capsys):
    """Ctrl-C ends a command with 130, without a traceback."""

    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("paymentsdk.cli.demo.demonstrate", interrupted)

    assert 130 == main(["demo"])
    assert "" == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["sandbox", "policies"], ""), (["sandbox", "--help"], ""), (["--version"], ""), (["--version"], "1")],
)
def test_a_reader_who_leaves_is_no_crash(arguments: list[str], unbuffered: str):
    """When nobody reads stdout any more (`| head`), the command ends without a traceback."""
    command = [sys.executable, "-c", PROGRAM.format(arguments=arguments)]
    settings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with subprocess.Popen(command, env=settings, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        complaint = process.stderr.read()

    assert b"" == complaint
    assert 1 == process.returncode


def test_no_stdout_is_no_crash(monkeypatch, capsys):
    """Where there is no stdout (`>&-`), the command is done all the same."""
    monkeypatch.setattr(sys, "stdout", None)

    assert 0 == main(["sandbox", "policies"])
    assert "" == capsys.readouterr().err
