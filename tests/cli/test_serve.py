"""`paymentsdk sandbox`: what it prints, how it ends, what survives."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from paymentsdk.cli import main
from paymentsdk.sandbox import Sandbox

PROGRAM = "import sys; from paymentsdk.cli import main; sys.exit(main())"
MEMBERS = {
    "base_url",
    "access_token",
    "client_id",
    "client_secret",
    "authorization_code",
    "refresh_token",
    "external_pos_id",
    "plan_id",
}


@contextmanager
def sandbox(*arguments: str, program: str = PROGRAM) -> Iterator[subprocess.Popen[str]]:
    """Run `paymentsdk sandbox` in a process of its own, and kill it if it does not end by itself."""
    command = [sys.executable, "-c", program, "sandbox", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    """Send *number*, and return the rest of stdout and stderr."""
    process.send_signal(number)
    # Not `communicate`, which would lose what `readline` has read ahead.
    output = process.stdout.read(), process.stderr.read()
    process.wait(timeout=20)
    return output


def ask(info: dict[str, str], path: str) -> Any:
    """Return what the control API says at *path*."""
    with urlopen(f"{info['base_url']}/_sandbox/{path}", timeout=20) as response:
        return json.load(response)


def test_json_is_one_line_and_nothing_more():
    """With --json, stdout is one line with eight members; after that it is silent, until a signal ends it with 0.

    --seed makes credentials repeatable, --policy decides, --frozen stops the clock.
    """
    with sandbox("--json", "--seed", "7", "--frozen", "--policy", "page_size=3") as process:
        info = json.loads(process.stdout.readline())
        state = ask(info, "state")
        out, err = end(process, signal.SIGTERM)

    assert MEMBERS == set(info)
    assert all(info.values())
    with Sandbox(seed=7).in_thread() as twin:
        assert twin.client_id == info["client_id"]
    assert (True, 3) == (state["clock"]["frozen"], state["policies"]["page_size"])
    assert ("", "", 0) == (out, err, process.returncode)


def test_people_are_told_what_to_copy():
    """Without --json, the first line says where it is, and the lines to paste into a shell follow."""
    with sandbox() as process:
        first = process.stdout.readline()
        out, _ = end(process, signal.SIGINT)

    assert first.startswith("The sandbox listens on http://127.0.0.1:")
    # As `grep ^export` finds them.
    exports = [line for line in out.splitlines() if line.startswith("export ")]
    assert exports[0].startswith("export PAYMENTSDK_BASE_URL=http://127.0.0.1:")
    assert exports[1].startswith("export PAYMENTSDK_ACCESS_TOKEN=TEST-")
    assert 4 == len(exports)
    # A credential is copied from one line, also in a narrow terminal; an export stays whole, whatever its length.
    assert 80 >= max(len(line) for line in out.splitlines() if line not in exports)


def test_credentials_survive_a_restart(tmp_path: Path):
    """With --db, the same seller comes back with the same credentials, even after SIGKILL."""
    credentials = []
    for number in (signal.SIGKILL, signal.SIGTERM):
        with sandbox("--json", "--db", str(tmp_path / "sandbox.db")) as process:
            info = json.loads(process.stdout.readline())
            end(process, number)
        credentials.append({name: value for name, value in info.items() if name != "base_url"})

    assert credentials[0] == credentials[1]


def test_a_port_in_use_is_one_line(capsys):
    """A port that somebody else has is said in words, with what to do."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        code = main(["sandbox", "--port", str(port)])

    assert 1 == code
    assert (
        f"paymentsdk: port {port} is in use; choose another with --port, or 0 for any that is free\n"
        == capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--policy", "cancel_from=never"], "Invalid enum value 'never' - at `$.cancel_from`; "),
        (["--host", "0.0.0.0"], "0.0.0.0 can be reached by other machines: set --public to allow that"),
        (["--host", "", "--public"], "the host is '', which is not an address"),
        (["--public-url", "shop"], "--public-url is an address such as https://"),
        (["--db", ""], "argument --db: the name of the file is empty"),
    ],
)
def test_a_setting_that_makes_no_sense_is_2(capsys, arguments: list[str], complaint: str):
    """It is rejected before anything is begun, in words that say what to give instead."""
    with pytest.raises(SystemExit) as ended:
        main(["sandbox", "--port", "0", *arguments])

    printed = capsys.readouterr()
    assert (2, "") == (ended.value.code, printed.out)
    assert printed.err.splitlines()[-1].startswith(f"paymentsdk sandbox: error: {complaint}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--db", "/no/such/folder/sandbox.db"], "cannot use '/no/such/folder/sandbox.db'"),
        (["--public", "--host", "192.0.2.1"], ""),
    ],
)
def test_what_cannot_be_is_one_line(capsys, arguments: list[str], complaint: str):
    """A file or an address that cannot be used ends the command with 1 and one line on stderr."""
    code = main(["sandbox", "--port", "0", *arguments])

    printed = capsys.readouterr()
    assert (1, "") == (code, printed.out)
    assert printed.err.startswith(f"paymentsdk: {complaint}")
    assert 1 == printed.err.count("\n")
