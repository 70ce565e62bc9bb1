"""The platform that the pages talk to."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """A page may set up logging, as a program would; the tests after it find it as it was."""
    root, ours = logging.getLogger(), logging.getLogger("paymentsdk")
    handlers, level = list(root.handlers), ours.level
    yield
    root.handlers[:] = handlers
    ours.setLevel(level)


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A sandbox of the page's own, named in the environment as a reader would name it.

    It runs in a thread with its own loop: blocks may start loops of their own, and commands are other processes.
    """
    from paymentsdk.sandbox import Sandbox

    started: Future[tuple[Sandbox, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        over = asyncio.Event()
        async with Sandbox() as sandbox:
            started.set_result((sandbox, asyncio.get_running_loop(), over))
            await over.wait()

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run, name="sandbox of a page")
    thread.start()
    sandbox, loop, over = started.result(timeout=10)
    monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
    monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", sandbox.access_token)
    yield
    loop.call_soon_threadsafe(over.set)
    thread.join(timeout=10)
    assert not thread.is_alive()
