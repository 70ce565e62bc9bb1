"""Commands, run in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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
