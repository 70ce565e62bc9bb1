"""Clients that public tools generate from the two documents compile, and work, beside a sandbox."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from paymentsdk.sandbox import Sandbox

HERE = Path(__file__).parent
#: The two documents, by the name of a file.
DOCUMENTS = {"api": "/openapi.json", "control": "/_sandbox/openapi.json"}
#: Seconds for the slowest tool.
LONGEST = 150
pytestmark = pytest.mark.timeout(4 * LONGEST)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with both documents."""
    with Sandbox().in_thread() as sandbox:
        for name, path in DOCUMENTS.items():
            with urllib.request.urlopen(sandbox.base_url + path) as response:
                (tmp_path / f"{name}.json").write_bytes(response.read())
    return tmp_path


def run(folder: Path, *words: str) -> str:
    """Run a command in *folder*, and return what it prints."""
    ended = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert 0 == ended.returncode, ended.stdout + ended.stderr
    return ended.stdout


def beside_a_sandbox(folder: Path, *words: str) -> str:
    """Run a command by `paymentsdk sandbox exec`."""
    return run(folder, sys.executable, "-m", "paymentsdk", "sandbox", "exec", "--", *words)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_valid(folder: Path, name: str):
    """By the validator of the standard's own community."""
    document = json.loads(folder.joinpath(f"{name}.json").read_text(encoding="utf-8"))

    assert [] == [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()]


def test_typescript(folder: Path):
    """openapi-typescript makes types of which none is too wide for `--strict`, and no call needs a cast of its own."""
    if shutil.which("npm") is None:
        pytest.skip("needs npm, which this machine does not have: apt-get install npm")
    shutil.copytree(HERE / "typescript", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules"))
    run(folder, "npm", "install", "--no-audit", "--no-fund")
    for name in DOCUMENTS:
        run(folder, "npx", "openapi-typescript", f"{name}.json", "-o", f"{name}.ts")
    run(folder, "npx", "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "shop.ts")

    assert "true processed object object\n" == beside_a_sandbox(folder, "node", "shop.js")


def test_python(folder: Path):
    """openapi-python-client makes two clients that send requests and read responses."""
    shutil.copy(HERE / "python/shop.py", folder)
    generate = sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"
    for name in DOCUMENTS:
        run(folder, *generate, "--path", f"{name}.json", "--output-path", name)

    assert "True processed []\n" == beside_a_sandbox(folder, sys.executable, "shop.py")
