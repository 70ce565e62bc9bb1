"""Rules for every test: reproducible examples, no leaks, waiting with a deadline, and controls.

A test marked ``@pytest.mark.control("package.module.name", replacement)`` runs twice: unchanged, and with the name
replaced. An assertion must fail in the second run, or else the test proves nothing about the replaced code. A
replacement with other parameters would fail for this reason alone: it is an error.

Names are looked up when the control runs, so a renamed name fails only its control. A replacement that needs the
original or another private name is created at the same time:
``@pytest.mark.control("package.module.name", around=lambda original: ...)``.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import shutil
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.postgres import Server

# A container may forbid cached bytecode. Each worker would then compile all tests, and each process that a test starts
# would compile the whole package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: A disk in memory, and the bytes that must be free there. Forced commits to a real disk are slow, and no test needs
#: its files later.
MEMORY, ROOM = Path("/dev/shm"), 2**32
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None  # Forget the folder of earlier calls.

#: The open descriptors of this process, on Linux and on macOS. Elsewhere sockets are not watched.
DESCRIPTORS = Path("/dev/fd")
#: A cancelled task needs one turn of the loop to end, and one for each task that it awaits.
TURNS = 5
#: Seconds for the other end of a connection, in another thread, to see that it was closed.
GRACE = 1.0
#: The beginnings of reasons for skips because of missing installations.
MISSING = ("needs ", "could not import ")
#: Seconds after which `until` fails: many times the need of the slowest machine.
PATIENCE = 30.0
#: Turns of the loop after which this process has no more work, and the seconds of the following pauses.
MANY_TURNS, MOMENT = 500, 0.001


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Restore Ctrl-C, and load the package's plugin after coverage has started.

    A shell makes its background processes, and their child processes, ignore Ctrl-C.

    pytest imports an entry point, and so the package, before coverage starts: coverage would miss all lines that run at
    import. So pyproject.toml disables the entry point here, and the tests of the plugin start a new pytest.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_spec("paymentsdk.pytest_plugin"):
        session.config.pluginmanager.import_plugin("paymentsdk.pytest_plugin")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Hide the objects of the collection of tests from the garbage collector: they are never freed."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def old_objects() -> None:
    """Hide the leftovers of other test files, too: they would slow down tests that call the garbage collector."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Undo this: an extension may check for leaks at the end."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped because of a missing installation, if PAYMENTSDK_TESTS_NEED_ALL is set.

    The reason of the skip is `needs ...`, or the text of `pytest.importorskip`. The gate sets the variable: a browser
    that could not be installed there must not look like passed tests.
    """
    report = yield
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("PAYMENTSDK_TESTS_NEED_ALL") and reason.removeprefix("Skipped: ").startswith(MISSING):
        report.outcome, report.longrepr = "failed", f"not to be skipped here: {reason}"
    return report


@pytest.fixture(autouse=True)
async def nothing_left_behind(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """Fail a test that leaves asyncio tasks or network sockets behind.

    It starts before the fixtures of the test, and checks after they have ended. Fixtures of a wider scope are open
    before and after, so they do not count as leaks. A control ends where it fails, so its tasks are cancelled here.
    """
    tasks, sockets = asyncio.all_tasks(), network_sockets()
    yield
    if (remaining := await new_tasks(tasks)) and control(request.node):
        for task in remaining:
            task.cancel()
        await asyncio.wait(remaining)
    elif remaining:
        pytest.fail("tasks left behind:\n" + "\n".join(map(repr, remaining)), pytrace=False)
    if ends := await new_sockets(sockets):
        pytest.fail("sockets left open:\n" + "\n".join(ends), pytrace=False)


async def new_tasks(before: set[asyncio.Task[object]]) -> set[asyncio.Task[object]]:
    """Return the running tasks that are not in *before*."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return asyncio.all_tasks() - before - {asyncio.current_task()}


async def new_sockets(before: dict[int, str]) -> list[str]:
    """Return the ends of sockets that are not in *before* and stay open."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GRACE
    while opened := [ends for inode, ends in network_sockets().items() if inode not in before]:
        if loop.time() > deadline:
            break
        await asyncio.sleep(0.01)
    return opened


def network_sockets() -> dict[int, str]:
    """Return the open network sockets of this process: the inode of each, and its two ends."""
    sockets = {}
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.is_dir() else ():
        try:
            status = os.fstat(int(entry.name))
            if stat.S_ISSOCK(status.st_mode):
                with socket.socket(fileno=os.dup(int(entry.name))) as twin:
                    if twin.family in (socket.AF_INET, socket.AF_INET6):
                        sockets[status.st_ino] = ends_of(twin)
        except OSError:  # Closed since it was listed.
            continue
    return sockets


def ends_of(connection: socket.socket) -> str:
    """Return the ends of *connection*, as far as they exist."""
    here = connection.getsockname()[:2]
    try:
        return f"{here} <-> {connection.getpeername()[:2]}"
    except OSError:
        return f"{here}, listening or not connected"


# --- what the machine may lack ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server for all tests of this process, which are skipped on a machine without PostgreSQL."""
    from tests import postgres

    if postgres.BIN is None or find_spec("psycopg") is None:
        pytest.skip("needs PostgreSQL and psycopg, which this machine does not have")
    # A crash of the machine would lose data, but a killed server loses none.
    with postgres.running(fsync="off") as server:
        yield server


@pytest.fixture
async def dsn(postgres: Server) -> AsyncIterator[str]:
    """The address of an empty schema on the server. Connections that tests need not close are closed at the end."""
    from paymentsdk._database import close_shared

    yield await postgres.new()
    await close_shared()


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Wait until a condition is true, or fail after `PATIENCE` seconds.

    It checks the condition in every turn of the loop. After many turns it pauses, so that other processes can run.
    """

    async def until(condition: Callable[[], object]) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE
        turns = itertools.count()
        while not condition():
            if loop.time() > deadline:
                pytest.fail(f"after {PATIENCE:g} s this is not true: {shown(condition)}")
            await asyncio.sleep(0 if next(turns) < MANY_TURNS else MOMENT)

    return until


def shown(condition: Callable[[], object]) -> str:
    """Return the source of *condition*, if it is a function of a test."""
    return inspect.getsource(condition).strip() if inspect.isfunction(condition) else repr(condition)


# --- controls ---------------------------------------------------------------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and the profiles of hypothesis."""
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import Phase, settings

        # Failures must be reproducible, and must not depend on the load. Explanations are off: controls always fail,
        # and explaining them takes longer than all tests. `pytest --hypothesis-profile=search` searches further, and
        # explains.
        phases = [phase for phase in Phase if phase is not Phase.explain]
        settings.register_profile("ci", derandomize=True, deadline=None, phases=phases)
        settings.register_profile("search", max_examples=5_000, deadline=None)
        settings.load_profile(config.getoption("--hypothesis-profile") or "ci")
    config.addinivalue_line(
        "markers", "control(name, replacement, *, around, raises=AssertionError): the test fails without name"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test unchanged, and once for each of its controls."""
    marks = list(metafunc.definition.iter_markers("control"))
    if marks:
        ids = ["as-it-stands", *("without-" + mark.args[0].removeprefix("paymentsdk.") for mark in marks)]
        metafunc.parametrize("defence", [None, *marks], ids=ids, indirect=True)


@pytest.fixture(autouse=True)
def defence(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Replace the name if this run is a control, and return whether it is."""
    mark = getattr(request, "param", None)
    if mark is not None:
        name, *replacements = mark.args
        original = resolve_name(name)
        [replacement] = replacements or [mark.kwargs["around"](original)]
        if problem := misfit(original, replacement):
            pytest.fail(
                f"the control of {name} is stale, as its replacement cannot be called alike: {problem}", pytrace=False
            )
        monkeypatch.setattr(name, replacement)
    return mark is not None


def control(test: pytest.Function) -> pytest.Mark | None:
    """Return the mark of the control that *test* is, or `None`."""
    return test.callspec.params.get("defence") if hasattr(test, "callspec") else None


def misfit(original: object, replacement: object) -> str:
    """Return why *replacement* cannot be called like *original*; empty if it can, or if one is not a plain function."""
    if not (inspect.isfunction(original) and inspect.isfunction(replacement)):
        return ""
    parameters = inspect.signature(original).parameters.values()
    needed = [parameter for parameter in parameters if parameter.default is parameter.empty]
    try:
        for arguments in (parameters, needed):
            inspect.signature(replacement).bind(
                *[parameter for parameter in arguments if parameter.kind <= parameter.VAR_POSITIONAL],
                **{parameter.name: parameter for parameter in arguments if parameter.kind >= parameter.KEYWORD_ONLY},
            )
    except TypeError as error:
        return str(error)
    return ""


@pytest.fixture
def patience(request: pytest.FixtureRequest) -> float:
    """Seconds to wait for an event: enough for the slowest machine, but short in a control, where it is missing."""
    return 0.3 if request.getfixturevalue("defence") else PATIENCE


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Invert the result of a control."""
    if (mark := control(pyfuncitem)) is None:
        return (yield)
    with pytest.raises(mark.kwargs.get("raises", (AssertionError, pytest.fail.Exception))):
        yield
    return True
