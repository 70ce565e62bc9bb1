"""Commands, run in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from paymentsdk._database import close_shared
from paymentsdk.cli import main


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command, and return its exit code, what it printed and what it said on stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close the databases that a test has opened, as the end of the process does."""
    yield
    with asyncio.Runner() as runner:  # A test may have replaced `asyncio.run`.
        runner.run(close_shared())
