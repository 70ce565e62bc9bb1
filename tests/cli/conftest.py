"""Commands, run in this process."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paymentsdk._database import close_shared
from paymentsdk.cli import main
from paymentsdk.sandbox import Sandbox


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command, and return its exit code and its stdout and stderr, with those of its child processes."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        printed = capfd.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def signaled(run: Callable[..., tuple[int, str, str]]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """Run a command, and send it a signal once a condition is true in another thread."""

    def signaled(
        condition: Callable[[], object], *arguments: str, number: signal.Signals = signal.SIGINT
    ) -> tuple[int, str, str]:
        deadline, ended = time.monotonic() + 30, threading.Event()

        def send() -> None:
            try:
                while not condition():
                    assert time.monotonic() < deadline
                    assert not ended.wait(0.01)
            finally:
                if not ended.is_set():
                    signal.pthread_kill(threading.main_thread().ident, number)

        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(send)
            try:
                result = run(*arguments)
            finally:
                ended.set()
        sent.result()
        return result

    before = signal.getsignal(signal.SIGTERM)
    yield signaled
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def settings() -> dict[str, object]:
    """Settings of the sandbox, which a file may replace."""
    return {"seed": 7}


@pytest.fixture
def sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]) -> Iterator[Sandbox]:
    """A sandbox in a thread, which the environment names with the token of its seller. The test has a folder."""
    monkeypatch.chdir(tmp_path)
    with Sandbox(**settings).in_thread() as sandbox:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", sandbox.access_token)
        yield sandbox


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the databases that a test has opened, as the end of the process does."""
    yield
    with asyncio.Runner() as runner:  # A test may have replaced `asyncio.run`.
        runner.run(close_shared())
