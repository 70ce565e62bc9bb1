"""Tests of the conftest of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

#: The tested conftest, with a shorter wait for a socket that another thread still closes.
CONFTEST = (
    Path(__file__).parents[1].joinpath("conftest.py").read_text(encoding="utf-8").replace("GRACE = 1.0", "GRACE = 0.3")
)

LEAVES_A_TASK = """
import asyncio

async def test_leaves_a_task():
    test_leaves_a_task.task = asyncio.create_task(asyncio.Event().wait())
"""

LEAVES_A_CONNECTION = """
import socket

def test_leaves_a_connection():
    with socket.create_server(("127.0.0.1", 0)) as server:
        test_leaves_a_connection.client = socket.create_connection(server.getsockname())
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


@pytest.mark.parametrize(
    ("source", "words"), [(LEAVES_A_TASK, "tasks left behind"), (LEAVES_A_CONNECTION, "sockets left open")]
)
def test_a_leak_is_an_error(run, source: str, words: str) -> None:
    """A test that leaves a task or a connection behind passes without the fixture, and fails with it."""
    run(source, watched=False).assert_outcomes(passed=1)
    result = run(source)

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"*{words}:*"])


# --- skips ------------------------------------------------------------------------------------------------------------

SKIPS = """
import pytest

def test_looks_at_a_page():
    pytest.skip("needs a browser")

def test_is_of_no_use_here():
    pytest.skip("this system has no such thing")
"""


def test_where_all_is_needed_a_skip_for_what_is_missing_fails(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test with a missing installation fails under the variable of the gate, and is skipped without it."""
    monkeypatch.delenv("PAYMENTSDK_TESTS_NEED_ALL", raising=False)
    run(SKIPS).assert_outcomes(skipped=2)

    monkeypatch.setenv("PAYMENTSDK_TESTS_NEED_ALL", "1")
    run(SKIPS).assert_outcomes(failed=1, skipped=1)


# --- controls ---------------------------------------------------------------------------------------------------------

CONTROLLED = """
import asyncio, json

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
    async def test():
        task = asyncio.create_task(asyncio.Event().wait())
        assert "[1, 2]" == json.dumps([1, 2], indent=None)
        task.cancel()
    return test

globals().update({f"test_{name}": controlled(replacement) for name, replacement in REPLACEMENTS.items()})
"""


def test_a_control_has_to_fail_for_want_of_its_defence(run) -> None:
    """A control fails if the test passes, and is an error if the replacement has the wrong parameters.

    The tasks of a control are cancelled, since it fails somewhere in the middle.
    """
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
