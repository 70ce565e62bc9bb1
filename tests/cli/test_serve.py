"""`paymentsdk sandbox`: what it prints, how it ends, what survives."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from paymentsdk.sandbox import Sandbox

MEMBERS = "base_url access_token client_id client_secret authorization_code refresh_token external_pos_id plan_id"


@pytest.fixture
def serve(signaled: Callable[..., tuple[int, str, str]], tmp_path: Path) -> Callable[..., Any]:
    """Run `paymentsdk sandbox`, look at it once its ready file is there, and end it.

    It returns what was seen, the exit code, stdout and stderr.
    """
    file, seen = tmp_path / "ready.env", []

    def serve(look: Callable[[Mapping[str, str]], object], *arguments: str, number: int = signal.SIGTERM) -> Any:
        def looked() -> bool:
            if file.exists() and (text := file.read_text()) != before:
                seen.append(look(dict(line.split("=", 1) for line in text.splitlines())))
            return bool(seen)

        before = file.read_text() if file.exists() else None
        ended = signaled(looked, "sandbox", "--port", "0", "--ready-file", str(file), *arguments, number=number)
        assert not file.exists()
        return seen.pop(), *ended

    return serve


def ask(variables: Mapping[str, str], path: str) -> Any:
    """Return what the sandbox says at *path* to its first seller."""
    headers = {"Authorization": f"Bearer {variables['ACCESS_TOKEN']}"}
    with urlopen(Request(variables["BASE_URL"] + path, headers=headers), timeout=20) as response:
        return json.load(response)


def test_json_is_one_line_and_nothing_more(serve):
    """With --json, stdout is one line with eight members, and SIGTERM ends it with 0.

    --seed makes credentials repeatable, --policy decides, --frozen stops the clock.
    """
    options = ("--json", "--seed", "7", "--frozen", "--policy", "page_size=3")
    state, code, out, err = serve(lambda variables: ask(variables, "/_sandbox/state"), *options)

    info = json.loads(out)
    assert {*MEMBERS.split()} == info.keys()
    assert all(info.values())
    with Sandbox(seed=7).in_thread() as twin:
        assert twin.client_id == info["client_id"]
    assert (True, 3) == (state["clock"]["frozen"], state["policies"]["page_size"])
    assert (0, 1, "") == (code, out.count("\n"), err)


def test_people_are_told_what_to_copy(signaled, unused_tcp_port: int):
    """Without --json, the first line says where it is, and the lines to paste into a shell follow."""

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", unused_tcp_port)):
            return True
        return False

    code, out, _ = signaled(listens, "sandbox", "--port", str(unused_tcp_port))

    url = f"http://127.0.0.1:{unused_tcp_port}"
    assert (0, f"The sandbox listens on {url}. Ctrl-C ends it.") == (code, out.splitlines()[0])
    # As `grep ^export` finds them.
    exports = [line for line in out.splitlines() if line.startswith("export ")]
    assert f"export PAYMENTSDK_BASE_URL={url}" == exports[0]
    assert exports[1].startswith("export PAYMENTSDK_ACCESS_TOKEN=TEST-")
    assert 4 == len(exports)
    # A credential is copied from one line, also in a narrow terminal; an export stays whole, whatever its length.
    assert 80 >= max(len(line) for line in out.splitlines() if line not in exports)
    assert "clock" not in out


def test_credentials_survive_a_restart(serve, tmp_path: Path):
    """With --db, the same seller comes back with the same credentials; a clock that stands still is not kept quiet."""
    database = ("--db", str(tmp_path / "sandbox.db"))
    before, _, out, _ = serve(lambda variables: (variables, ask(variables, "/_sandbox/state")), *database, "--frozen")
    after, _, _, _ = serve(dict, *database)

    changing = {"BASE_URL", "PAYMENTSDK_BASE_URL"}
    assert {name for name in after if before[0][name] != after[name]} <= changing
    assert " UTC, and it stands still\n" in out


def test_a_ready_file_says_when_and_where(serve, run, monkeypatch, *, tmp_path: Path, unused_tcp_port: int):
    """It is there once requests are handled, for its owner alone. That of a sandbox that was killed is replaced."""
    file = tmp_path / "ready.env"
    file.write_text(f"BASE_URL=http://127.0.0.1:{unused_tcp_port}\n")
    monkeypatch.setenv("PAYMENTSDK_SANDBOX_TOKEN", "TEST-ci")

    def look(variables: Mapping[str, str]) -> tuple[str, int]:
        assert ask(variables, "/preapproval_plan/search")["results"]
        return variables["ACCESS_TOKEN"], file.stat().st_mode & 0o777

    assert (("TEST-ci", 0o600), 0) == serve(look)[:2]
    file.write_text("BASE_URL=http://[\n")  # as a full disk may leave it
    assert 1 == run("sandbox", "--public", "--host", "192.0.2.1", "--ready-file", str(file))[0]
    assert not file.exists()


@pytest.mark.parametrize(("content", "complaint"), [
    ("BASE_URL={}\n", "belongs to the running sandbox at {}; end it, or name another file"),
    ("KEY=1", "is not a ready file; name a file that does not exist yet"),
])  # fmt: skip
def test_a_file_of_somebody_else_is_kept(run, sandbox: Sandbox, tmp_path: Path, content: str, complaint: str):
    """Another sandbox still needs its ready file, and nobody else's file is one."""
    file = tmp_path / "file"
    file.write_text(content.format(sandbox.base_url))
    code, _, err = run("sandbox", "--port", "0", "--ready-file", str(file))

    assert 2 == code
    assert err.endswith(f"error: --ready-file: {file} {complaint.format(sandbox.base_url)}\n")
    assert content.format(sandbox.base_url) == file.read_text()


def test_a_port_in_use_is_one_line(run, unused_tcp_port: int):
    """A port that somebody else has is said in words, with what to do."""
    with socket.create_server(("127.0.0.1", unused_tcp_port)):
        ended = run("sandbox", "--port", str(unused_tcp_port))

    advice = "choose another with --port, or 0 for any that is free"
    assert (1, "", f"paymentsdk: port {unused_tcp_port} is in use; {advice}\n") == ended


@pytest.mark.parametrize(("arguments", "code", "complaint"), [
    (["--policy", "cancel_from=never"], 2, "Invalid enum value 'never' - at `$.cancel_from`; "),
    (["--host", "0.0.0.0"], 2, "0.0.0.0 can be reached by other machines: set --public to allow that"),
    (["--host", "", "--public"], 2, "the host is '', which is not an address"),
    (["--public-url", "shop"], 2, "--public-url is an address such as https://"),
    (["--db", ""], 2, "argument --db: the name of the file is empty"),
    (["--seed-file", __file__], 2, f"{__file__}: "),
    (["--db", "/no/such/folder/sandbox.db"], 1, "cannot use '/no/such/folder/sandbox.db'"),
    (["--public", "--host", "192.0.2.1"], 1, ""),
    (["exec", "--", "no-such-command"], 127, "there is no command no-such-command; name a program on the PATH, or"),
    (["exec", "--env", "A=b", "--", "true"], 2, "'b' is not one of access_token, client_id, "),
    (["--ready-file", "f", "exec", "--", "true"], 2, "--json and --ready-file cannot be combined with exec"),
    (["--client-id", "ci", "exec", "--", "true"], 2, "no seller has the application ci; give --client-secret"),
    (["--ready-file", "/no/such/folder/ready"], 1, "cannot write /no/such/folder/ready"),
])  # fmt: skip
def test_what_cannot_be_is_one_sentence(run, arguments: list[str], code: int, complaint: str):
    """It names the option or the command, and the way out."""
    ended = run("sandbox", "--port", "0", *arguments)

    assert (code, "") == ended[:2]
    assert complaint in ended[2].splitlines()[-1]
    assert code == 2 or ended[2].count("\n") == 1
