"""Tests of the conftest of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

#: The tested conftest, with a shorter wait for a socket that another thread still closes.
CONFTEST = Path(__file__).with_name("conftest.py").read_text(encoding="utf-8").replace("GRACE = 1.0", "GRACE = 0.3")

LEAVES_A_TASK = """
import asyncio

async def test_leaves_a_task():
    test_leaves_a_task.task = asyncio.create_task(asyncio.Event().wait())
"""

LEAVES_A_SERVER = """
import asyncio

async def test_leaves_a_server():
    test_leaves_a_server.server = await asyncio.start_server(print, "127.0.0.1")
"""

LEAVES_A_CONNECTION = """
import socket

def test_leaves_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        test_leaves_a_connection.client = socket.create_connection(server.getsockname())
"""

LEAVES_NOTHING = """
import asyncio
import socket
import threading

import pytest

@pytest.fixture(scope="session")
def platform():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server

@pytest.fixture
async def worker():
    task = asyncio.create_task(asyncio.Event().wait())
    yield task
    task.cancel()

def accept_and_linger(platform):
    connection, _ = platform.accept()
    with connection:
        connection.recv(1)
        threading.Event().wait(0.1)

async def test_leaves_nothing(worker, platform):
    thread = threading.Thread(target=accept_and_linger, args=(platform,))
    thread.start()
    _, writer = await asyncio.open_connection(*platform.getsockname())
    writer.close()
    await writer.wait_closed()
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    """Run a test file with or without this directory's conftest."""

    def run(source: str, *, watched: bool = True) -> pytest.RunResult:
        pytester.makeini("[pytest]")  # This file makes the directory the root of the project.
        if watched:
            pytester.makeconftest(CONFTEST)
        pytester.makepyfile(source)
        options = ["--asyncio-mode=auto", "-p", "no:cacheprovider", "-p", "no:paymentsdk", "-p", "no:hypothesispytest"]
        return pytester.runpytest_subprocess(*options, "-W", "ignore")

    return run


# --- leaks ------------------------------------------------------------------------------------------------------------

LEAKS = {"task": LEAVES_A_TASK, "server": LEAVES_A_SERVER, "connection": LEAVES_A_CONNECTION}


@pytest.mark.parametrize("leak", LEAKS)
def test_a_leak_is_an_error(run, leak: str) -> None:
    """A test that leaves a task, a server or a connection behind fails."""
    result = run(LEAKS[leak])

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*tasks left behind:*" if leak == "task" else "*sockets left open:*"])


@pytest.mark.parametrize("leak", LEAKS)
def test_without_the_fixture_the_leaks_pass(run, leak: str) -> None:
    """The same tests pass without the fixture, so the fixture finds the leaks."""
    run(LEAKS[leak], watched=False).assert_outcomes(passed=1)


def test_what_is_closed_or_wider_is_no_leak(run) -> None:
    """A task that its fixture cancels, a server of the session and a peer that closes slightly later are no leaks."""
    run(LEAVES_NOTHING).assert_outcomes(passed=1)


# --- skips ------------------------------------------------------------------------------------------------------------

SKIPS = """
import pytest

def test_looks_at_a_page():
    pytest.skip("needs a browser")

def test_uses_a_package():
    pytest.importorskip("no_such_package")

def test_is_of_no_use_here():
    pytest.skip("this system has no such thing")
"""


def test_where_all_is_needed_a_skip_for_what_is_missing_fails(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test with a missing installation fails under the variable of the gate, and is skipped without it."""
    monkeypatch.delenv("PAYMENTSDK_TESTS_NEED_ALL", raising=False)
    run(SKIPS).assert_outcomes(skipped=3)

    monkeypatch.setenv("PAYMENTSDK_TESTS_NEED_ALL", "1")
    run(SKIPS).assert_outcomes(failed=2, skipped=1)


# --- waiting ----------------------------------------------------------------------------------------------------------

WAITS_IN_VAIN = """
import asyncio

import conftest

conftest.PATIENCE = 0.0

async def test_waits_in_vain(until):
    await until(lambda: "what never comes" == "what came")

async def test_waits_for_an_event(until):
    await until(asyncio.Event().is_set)
"""


def test_what_was_waited_for_is_named(run) -> None:
    """A failed wait shows its condition."""
    result = run(WAITS_IN_VAIN)

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(['*this is not true: await until(lambda: "what never comes" == "what came")*'])
    result.stdout.fnmatch_lines(["*this is not true: <bound method Event.is_set of *"])


# --- controls ---------------------------------------------------------------------------------------------------------

CONTROLLED = """
import json

import pytest

REPLACEMENTS = {
    "fails_without": lambda obj, **options: "",
    "passes_without": lambda *given, **options: "[1, 2]",
    "takes_too_little": lambda obj: "",
    "takes_too_much": lambda obj, request, **options: "",
    "is_no_plain_function": str,
}

def controlled(replacement):
    @pytest.mark.control("json.dumps", replacement)
    def test():
        assert "[1, 2]" == json.dumps([1, 2], indent=None)
    return test

globals().update({f"test_{name}": controlled(replacement) for name, replacement in REPLACEMENTS.items()})
"""


def test_a_control_has_to_fail_for_want_of_its_defence(run) -> None:
    """A control fails if the test passes, and is an error if the replacement has the wrong parameters."""
    result = run(CONTROLLED)

    result.assert_outcomes(passed=5 + 1, failed=2, errors=2)
    result.stdout.fnmatch_lines_random(
        [
            "FAILED *::test_passes_without*without-json.dumps*",
            "FAILED *::test_is_no_plain_function*without-json.dumps*",
            "ERROR *::test_takes_too_little*without-json.dumps*",
            "ERROR *::test_takes_too_much*without-json.dumps*",
            "the control of json.dumps is stale, as its replacement cannot be called alike: *",
        ]
    )


RENAMED = """
import json

import pytest

@pytest.mark.control("json.dumps", around=lambda dumps: lambda obj, **options: dumps([obj], **options))
def test_around():
    assert "[1, 2]" == json.dumps([1, 2], indent=None)

@pytest.mark.control("json.renamed", str)
@pytest.mark.control("json.gone.dumps", around=lambda dumps: dumps)
def test_renamed():
    assert "1" == json.dumps(1)
"""


def test_a_name_that_is_gone_fails_its_control_alone(run) -> None:
    """Names and replacements are looked up when the control runs, so the file can be collected."""
    result = run(RENAMED)

    result.assert_outcomes(passed=2 + 1, errors=2)
    result.stdout.fnmatch_lines(["ERROR *::test_renamed?without-json.*"])
