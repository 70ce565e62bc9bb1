"""What holds for every test: reproducible examples, nothing left behind, waiting, and the controls of its defences.

A test marked ``@pytest.mark.control("package.module.name", replacement)`` runs twice: as it stands, and once more with
that name replaced. The second run has to end in a failed assertion, or else the test proves nothing about the defence.
A replacement that does not take what the name takes would fail for that alone: it is an error.

Names are looked up when the control runs: one that has been renamed fails its control, and no other test. A
replacement that needs the original, or another private name, is made then too:
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

# Where the environment forbids to cache bytecode, as that of a container may, each worker would compile all tests anew,
# and each of the processes that tests start the whole package.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Memory that is used as a disk, and the bytes that have to be free there. Each commit that a database forces to a disk
#: takes its time, and no file of a test outlives the machine.
MEMORY, ROOM = Path("/dev/shm"), 2**32
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None  # Whoever has asked before asks again.

#: The open descriptors of this process, on Linux and on macOS. Elsewhere sockets are not watched.
DESCRIPTORS = Path("/dev/fd")
#: A cancelled task needs one turn of the loop to end, and one for each task that it awaits.
TURNS = 5
#: Seconds that the other end of a connection, in a thread of its own, has to see that it was closed.
GRACE = 1.0
#: How the reasons of skips begin that are about what is not installed.
MISSING = ("needs ", "could not import ")
#: Seconds after which `until` takes what it waits for as lost: many times what the slowest machine needs.
PATIENCE = 30.0
#: Turns of the loop in which whatever can go on within this process has gone on, and the seconds of a moment.
MANY_TURNS, MOMENT = 500, 0.001


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Take Ctrl-C as a terminal would give it, and load the package's own plugin, now that coverage looks.

    A shell has what it starts in the background ignore Ctrl-C, and what that starts too.

    As an entry point it is imported before, and the package with it: no line that runs at import would be counted.
    So pyproject.toml keeps the entry point out, and the plugin's own tests start pytest anew to see it work.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if find_spec("paymentsdk.pytest_plugin"):
        session.config.pluginmanager.import_plugin("paymentsdk.pytest_plugin")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the garbage collector what collection makes: it stays, however often somebody looks."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module", autouse=True)
def old_objects() -> None:
    """Spare it what the tests of other files have left, too: those that call it would pay for all of that."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Give all of it back: at the end an extension may look for what it has left."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that is skipped for what is not installed, where PAYMENTSDK_TESTS_NEED_ALL is set.

    Its reason is `needs ...`, or what `pytest.importorskip` says. The gate sets the variable: there, a browser that
    could not be installed must not pass for tests that passed.
    """
    report = yield
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    if os.environ.get("PAYMENTSDK_TESTS_NEED_ALL") and reason.removeprefix("Skipped: ").startswith(MISSING):
        report.outcome, report.longrepr = "failed", f"not to be skipped here: {reason}"
    return report


@pytest.fixture(autouse=True)
async def nothing_left_behind() -> AsyncIterator[None]:
    """Fail a test that leaves asyncio tasks or network sockets behind.

    It is set up before the fixtures of the test and looks after they are gone. What fixtures of a wider scope hold
    open is there before and after, and is no leak.
    """
    tasks, sockets = asyncio.all_tasks(), network_sockets()
    yield
    if remaining := await new_tasks(tasks):
        pytest.fail("tasks left behind:\n" + "\n".join(map(repr, remaining)), pytrace=False)
    if ends := await new_sockets(sockets):
        pytest.fail("sockets left open:\n" + "\n".join(ends), pytrace=False)


async def new_tasks(before: set[asyncio.Task[object]]) -> set[asyncio.Task[object]]:
    """Return the tasks that run now and are not in *before*."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return asyncio.all_tasks() - before - {asyncio.current_task()}


async def new_sockets(before: dict[int, str]) -> list[str]:
    """Return the ends of the sockets that are open now, stay open, and are not in *before*."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + GRACE
    while opened := [ends for inode, ends in network_sockets().items() if inode not in before]:
        if loop.time() > deadline:
            break
        await asyncio.sleep(0.01)
    return opened


def network_sockets() -> dict[int, str]:
    """Return the network sockets that this process has open: the inode of each, and its two ends."""
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
    """Return both ends of *connection*, as far as it has them."""
    here = connection.getsockname()[:2]
    try:
        return f"{here} <-> {connection.getpeername()[:2]}"
    except OSError:
        return f"{here}, listening or not connected"


# --- what the machine may lack ----------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL server that all tests of this process share; they are skipped on a machine without one."""
    from tests import postgres

    if postgres.BIN is None or find_spec("psycopg") is None:
        pytest.skip("needs PostgreSQL and psycopg, which this machine does not have")
    # Nothing here outlives the machine; a server that is killed loses nothing either way.
    with postgres.running(fsync="off") as server:
        yield server


@pytest.fixture
async def dsn(postgres: Server) -> AsyncIterator[str]:
    """The address of an empty schema on that server; the connections that nobody has to close are closed in the end."""
    from paymentsdk._database import close_shared

    yield await postgres.new()
    await close_shared()


# --- waiting ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Let the others go on until something is true.

    That is looked at in every turn of the loop; where many do not do, another process has to go on: it gets a moment.
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

        # A failure must be the same for everybody, and a loaded machine is no reason to fail; controls fail each time,
        # and to explain that would take longer than all the rest. To search further, and be told which lines matter:
        # `pytest --hypothesis-profile=search`.
        phases = [phase for phase in Phase if phase is not Phase.explain]
        settings.register_profile("ci", derandomize=True, deadline=None, phases=phases)
        settings.register_profile("search", max_examples=5_000, deadline=None)
        settings.load_profile(config.getoption("--hypothesis-profile") or "ci")
    config.addinivalue_line(
        "markers", "control(name, replacement, *, around, raises=AssertionError): the test fails without name"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test as it stands, and once without each of its defences."""
    marks = list(metafunc.definition.iter_markers("control"))
    if marks:
        ids = ["as-it-stands", *("without-" + mark.args[0].removeprefix("paymentsdk.") for mark in marks)]
        metafunc.parametrize("defence", [None, *marks], ids=ids, indirect=True)


@pytest.fixture(autouse=True)
def defence(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Take a defence away, if this run is a control, and say whether it is."""
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


def misfit(original: object, replacement: object) -> str:
    """Return why *replacement* cannot be called as *original* is; nothing, unless both are plain functions."""
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
    """Seconds to wait for what has to happen: as the test stands it does, on the slowest machine; in a control not."""
    return 0.3 if request.getfixturevalue("defence") else PATIENCE


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Turn the result of a control around."""
    mark = getattr(pyfuncitem, "callspec", None) and pyfuncitem.callspec.params.get("defence")
    if mark is None:
        return (yield)
    with pytest.raises(mark.kwargs.get("raises", (AssertionError, pytest.fail.Exception))):
        yield
    return True
