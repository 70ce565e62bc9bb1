"""A shop in Node, PHP and Go, each with nothing but the language, beside a sandbox that `exec` starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs/how-to/other-languages.md"
#: The program of each shop, the Debian package that it comes with, and how it is run.
SHOPS = {"node": ("nodejs", "node shop.mjs"), "php": ("php-cli", "php shop.php"), "go": ("golang-go", "go run shop.go")}
#: Seconds; the first `go run` on a machine compiles the standard library.
LONGEST = 150
pytestmark = pytest.mark.timeout(2 * LONGEST)


@pytest.mark.parametrize("language", SHOPS)
def test_a_shop_sells_and_hears_of_it(language: str):
    """It creates an order, has it paid, reads and refunds it, and verifies a notification of each.

    With wrong signatures the same program fails, and `exec` ends with its code.
    """
    package, words = SHOPS[language]
    if shutil.which(language) is None:
        pytest.skip(f"needs {language}, which this machine does not have: apt-get install {package}")
    fault = f"{sys.executable} -m paymentsdk sandbox faults add wrong_signature >&2"
    line = f"{words} && {fault} && {words}"
    command = [sys.executable, "-m", "paymentsdk", "sandbox", "exec", "--", "sh", "-c", line]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    options = {"cwd": HERE / language, "env": {**os.environ, "PATH": path}, "capture_output": True, "text": True}
    ended = subprocess.run(command, timeout=LONGEST, check=False, **options)

    lines = ["processed refunded orders.created orders.paid orders.refunded", "processed refunded forged forged forged"]
    assert lines == ended.stdout.splitlines(), ended.stderr
    assert 1 == ended.returncode


def test_the_page_has_the_program_that_is_tested():
    """What a reader copies is what runs here."""
    shop = HERE.joinpath("node/shop.mjs").read_text(encoding="utf-8")

    assert f"```javascript\n{shop}```\n" in PAGE.read_text(encoding="utf-8")
