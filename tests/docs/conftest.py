"""The platform that the pages talk to."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from paymentsdk._database import close_shared


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

    with Sandbox().in_thread() as sandbox:
        monkeypatch.setenv("PAYMENTSDK_BASE_URL", sandbox.base_url)
        monkeypatch.setenv("PAYMENTSDK_ACCESS_TOKEN", sandbox.access_token)
        yield


@pytest.fixture
async def closed() -> AsyncIterator[None]:
    """Close the databases that a test has opened, as the end of the process does."""
    yield
    await close_shared()
