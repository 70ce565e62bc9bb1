"""`paymentsdk sandbox exec`, the pinned seller, and the ready file: a start for programs in any language."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from tests.cli.terminal import read

MAIN = [sys.executable, "-m", "paymentsdk", "sandbox"]
SEARCH = "/preapproval_plan/search"
PINNED = {
    "PAYMENTSDK_SANDBOX_TOKEN": "TEST-ci",
    "PAYMENTSDK_SANDBOX_CLIENT_ID": "ci",
    "PAYMENTSDK_SANDBOX_CLIENT_SECRET": "s",
    "PAYMENTSDK_SANDBOX_POS": "TILL-1",
}
#: Prints each signal that it gets, until it has got as many as it is told, and ends with 3.
COUNTS = """
import signal, sys, time
got = []
def handle(number, _):
    got.append(number)
    print("got", int(number), flush=True)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, handle)
print("ready", flush=True)
while len(got) < int(sys.argv[1]):
    time.sleep(0.01)
sys.exit(3)
"""


def execute(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `paymentsdk sandbox` with *arguments* to its end."""
    environment = {**os.environ, **environment}
    return subprocess.run([*MAIN, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)


def python(program: str, *arguments: str) -> list[str]:
    """Return the words for `exec` that run *program*."""
    return ["exec", "--", sys.executable, "-c", program, *arguments]


def test_a_command_finds_a_sandbox_and_ends_it_with_its_code():
    """The address and the token are in the environment and work; the exit code is the command's; nothing is printed.

    `--env` adds a name; the pinned seller comes from options or from the environment.
    """
    program = f"""
import os, json, sys
from urllib.request import Request, urlopen
headers = {{"Authorization": "Bearer " + os.environ["ACCESS_TOKEN"]}}
assert urlopen(Request(os.environ["BASE_URL"] + "{SEARCH}", headers=headers)).status == 200
print(json.dumps([sys.argv[1:], dict(os.environ)]))
sys.exit(7)
"""
    options = ("--token", "TEST-option", "exec", "--env", "API_URL=base_url", "--env", "TILL=external_pos_id")
    ended = execute(*options, *python(program, "--json", "--", "-x")[1:], **PINNED)

    assert ("", 7) == (ended.stderr, ended.returncode)
    arguments, variables = json.loads(ended.stdout)
    assert ["--json", "--", "-x"] == arguments
    assert variables["API_URL"] == variables["BASE_URL"] == variables["PAYMENTSDK_BASE_URL"]
    assert "TEST-option" == variables["ACCESS_TOKEN"] == variables["PAYMENTSDK_ACCESS_TOKEN"]
    seller = variables["PAYMENTSDK_CLIENT_ID"], variables["PAYMENTSDK_CLIENT_SECRET"], variables["TILL"]
    assert ("ci", "s", "TILL-1") == seller


def test_a_command_that_a_signal_ends_has_the_code_of_a_shell():
    """128 and the number of the signal."""
    ended = execute(*python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))

    assert 137 == ended.returncode


def test_signals_are_forwarded():
    """The command gets the signal, and says itself how all ends."""
    command = [*MAIN, *python(COUNTS, "1")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert "ready\n" == process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        output = process.stdout.read()

    assert ("got 15\n", 3) == (output, process.returncode)


def test_ctrl_c_in_a_terminal_reaches_the_command_once():
    """The terminal sends it to both; a second one would cut the clean-up of a test runner short."""
    pid, terminal = pty.fork()
    if pid == 0:
        *flags, control = termios.tcgetattr(0)
        flags[3] |= termios.NOFLSH  # By default, Ctrl-C also drops output that nobody has read yet.
        termios.tcsetattr(0, termios.TCSANOW, [*flags, control])
        os.execv(sys.executable, [*MAIN, *python(COUNTS, "2")])
    read(terminal, until=b"ready")
    os.write(terminal, b"\x03")
    output = read(terminal, until=b"got 2")
    os.kill(pid, signal.SIGTERM)
    output += read(terminal)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)

    assert 3 == os.waitstatus_to_exitcode(status)
    assert [b"2", b"15"] == re.findall(rb"got (\d+)", output)


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["exec", "--", "no-such-command"], 127, "no command no-such-command; name a program on the PATH, or `sh -c"),
        (["exec", "--env", "A=b", "--", "true"], 2, "'b' is not one of access_token, client_id"),
        (["--ready-file", "f", "exec", "--", "true"], 2, "--json and --ready-file cannot be combined with exec"),
        (["--client-id", "ci", "exec", "--", "true"], 2, "no seller has the application ci; give --client-secret"),
        (["--ready-file", "/no/such/folder/ready"], 1, "cannot write /no/such/folder/ready"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(run, arguments: list[str], code: int, complaint: str):
    """It names the option or the command, and the way out."""
    ended = run("sandbox", "--port", "0", *arguments)

    assert (code, "") == ended[:2]
    assert complaint in ended[2].splitlines()[-1]


@contextmanager
def serving(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a sandbox until the end of the block, and kill it if it does not end by itself."""
    command = [*MAIN, "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, **environment}) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for(file: Path) -> Mapping[str, str]:
    """Return the variables of a ready file, once it is there."""
    deadline = time.monotonic() + 30
    while True:
        with suppress(FileNotFoundError):
            return dict(line.split("=", 1) for line in file.read_text().splitlines())
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_ready_file_says_when_and_where(tmp_path: Path):
    """It is there once requests are handled, for its owner alone, and gone at the end.

    The file of a sandbox that was killed is replaced.
    """
    file = tmp_path / "ready.env"
    with serving("--ready-file", str(file), **PINNED) as process:
        killed = wait_for(file)
        process.kill()
        process.wait()
    assert file.exists()
    with serving("--ready-file", str(file), **PINNED) as process:
        deadline = time.monotonic() + 30
        while (variables := wait_for(file)) == killed:
            assert time.monotonic() < deadline
        mode = stat.S_IMODE(file.stat().st_mode)
        headers = {"Authorization": f"Bearer {variables['ACCESS_TOKEN']}"}
        with urlopen(Request(variables["BASE_URL"] + SEARCH, headers=headers), timeout=20) as response:
            status = response.status
        process.terminate()
        process.wait(timeout=20)

    assert ("TEST-ci", 200, 0o600, 0) == (variables["ACCESS_TOKEN"], status, mode, process.returncode)
    assert not file.exists()
