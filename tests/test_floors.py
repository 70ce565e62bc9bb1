"""The layers of the package: a file imports only from layers below it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PACKAGE = Path(find_spec("paymentsdk").origin).parent


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A copy of the package and the rules, for changes."""
    shutil.copytree(PACKAGE, tmp_path / "paymentsdk", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(PYPROJECT, tmp_path)
    return tmp_path


def lint(house: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in *house*."""
    # Its command puts the working directory first on the path, so that it reads the copy.
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    return subprocess.run(command, cwd=house, capture_output=True, text=True, check=False)


def test_every_file_keeps_to_its_floor(house: Path) -> None:
    """No file imports from a higher layer, no resource imports another, and other libraries stay in their files."""
    result = lint(house)

    assert 0 == result.returncode, result.stdout


#: Forbidden imports, by the contract that each breaks.
FORBIDDEN = {
    "the floors below it": ("money.py", "import paymentsdk.errors"),
    "knows no other resource": ("resources/plans.py", "import paymentsdk.resources.orders"),
    "aiohttp stays at the edge": ("_call/call.py", "import aiohttp"),
    "tenacity is entered in one place": ("client.py", "from tenacity import AsyncRetrying"),
}


def test_an_import_out_of_place_is_found(house: Path) -> None:
    """A forbidden import, even inside a function, breaks the contract that forbids it."""
    for path, line in FORBIDDEN.values():
        with (house / "paymentsdk" / path).open("a", encoding="utf-8") as file:
            file.write(f"\n\ndef late():\n    {line}\n")

    result = lint(house)

    assert 1 == result.returncode
    broken = [row for row in result.stdout.splitlines() if "BROKEN" in row]
    assert [] == [contract for contract in FORBIDDEN if not any(contract in row for row in broken)], result.stdout


def test_every_module_has_a_floor() -> None:
    """Every file belongs to a layer; no file is exempt."""
    contracts = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    [floors] = [contract["layers"] for contract in contracts if contract["id"] == "floors"]
    placed = {name.strip() + "." for layer in floors for name in layer.replace("|", ":").split(":")}
    files = [path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.py")]
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__") + "." for path in files}

    homeless = {module for module in modules if not any(map(module.startswith, placed))}

    # The package itself is the top layer.
    assert {"paymentsdk."} == homeless
