"""`paymentsdk sandbox exec` and the pinned seller: a start for programs in any language."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sys
import termios
from pathlib import Path

import pytest

MAIN = [sys.executable, "-m", "paymentsdk", "sandbox"]
SEARCH = "/preapproval_plan/search"
PINNED = {
    "PAYMENTSDK_SANDBOX_TOKEN": "TEST-ci",
    "PAYMENTSDK_SANDBOX_CLIENT_ID": "ci",
    "PAYMENTSDK_SANDBOX_CLIENT_SECRET": "s",
    "PAYMENTSDK_SANDBOX_POS": "TILL-1",
}
#: Prints each signal that it gets, until it has got as many as it is told, and ends with 3. It makes the file `ready`.
COUNTS = """
import signal, sys, time
got = []
def handle(number, _):
    got.append(number)
    print("got", int(number), flush=True)
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, handle)
print("ready", flush=True)
open("ready", "w").close()
while len(got) < int(sys.argv[1]):
    time.sleep(0.01)
sys.exit(3)
"""


def read(terminal: int, until: bytes | None = None) -> bytes:
    """Return what the terminal shows, to its end or to some words."""
    output = b""
    while until is None or until not in output:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # Linux says so that nobody is at the other end any more.
            break
        if not part:
            break
        output += part
    return output


def python(program: str, *arguments: str) -> list[str]:
    """Return the words for `exec` that run *program*."""
    return ["exec", "--", sys.executable, "-c", program, *arguments]


def test_a_command_finds_a_sandbox_and_ends_it_with_its_code(run, monkeypatch):
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
    for name, value in PINNED.items():
        monkeypatch.setenv(name, value)
    code, out, err = run("sandbox", *options, *python(program, "--json", "--", "-x")[1:])

    assert ("", 7) == (err, code)
    arguments, variables = json.loads(out)
    assert ["--json", "--", "-x"] == arguments
    assert variables["API_URL"] == variables["BASE_URL"] == variables["PAYMENTSDK_BASE_URL"]
    assert "TEST-option" == variables["ACCESS_TOKEN"] == variables["PAYMENTSDK_ACCESS_TOKEN"]
    seller = variables["PAYMENTSDK_CLIENT_ID"], variables["PAYMENTSDK_CLIENT_SECRET"], variables["TILL"]
    assert ("ci", "s", "TILL-1") == seller


def test_a_command_that_a_signal_ends_has_the_code_of_a_shell(run):
    """128 and the number of the signal."""
    assert 0 == run("sandbox", *python(""))[0]
    assert 137 == run("sandbox", *python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))[0]


def test_signals_are_forwarded(signaled, monkeypatch, tmp_path: Path):
    """The command gets the signal, and says itself how all ends."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGINT)
    ended = signaled(Path("ready").exists, "sandbox", *python(COUNTS, "1"), number=signal.SIGTERM)

    assert (3, "ready\ngot 15\n", "") == ended
    assert before == signal.getsignal(signal.SIGINT)


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # The child only starts a program.
def test_ctrl_c_in_a_terminal_reaches_the_command_once(monkeypatch, tmp_path: Path):
    """The terminal sends it to both; a second one would cut the clean-up of a test runner short."""
    monkeypatch.chdir(tmp_path)
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
