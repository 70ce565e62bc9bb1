"""The pages of docs/reference and docs/api are what the declarations say."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import aiohttp
import msgspec
import pytest

from docs.generate import BLOCKS
from paymentsdk import PaymentsClient, Response, errors
from paymentsdk.sandbox import Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.identity.writes import WRITES, write

ROOT = Path(__file__).parents[2]
CONTROL = ROOT.joinpath("docs/reference/control-api.md").read_text(encoding="utf-8")
OPERATIONS = ROOT.joinpath("docs/reference/operations.md").read_text(encoding="utf-8")
ERRORS = ROOT.joinpath("docs/reference/errors.md").read_text(encoding="utf-8")
RESPONSES = ROOT.joinpath("docs/reference/responses.md").read_text(encoding="utf-8")


def generate(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command that writes the pages, with *root* as the repository."""
    command = [sys.executable, "-m", "docs.generate", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=50, check=False)


def test_the_pages_are_up_to_date():
    """Nobody has changed a declaration, or a page, without writing the pages anew."""
    process = generate(ROOT, "--check")

    assert (0, "") == (process.returncode, process.stderr)


def test_a_page_that_is_not_is_found(tmp_path: Path):
    """A block with another text, and a page too few or too many, fail the check. Writing the pages repairs them."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    page = tmp_path.joinpath("docs/reference/operations.md")
    page.write_text(page.read_text(encoding="utf-8").replace("| `POST ", "| `PUT ", 1), encoding="utf-8")
    tmp_path.joinpath("docs/api/errors.md").unlink()
    tmp_path.joinpath("docs/api/more.md").touch()

    process = generate(tmp_path, "--check")
    generate(tmp_path)

    assert 1 == process.returncode
    assert process.stderr.endswith("reference/operations.md, api/errors.md, api/more.md\n")
    assert pages_in(ROOT / "docs") == pages_in(tmp_path / "docs")


def test_every_block_is_on_a_page():
    """Each function for a block writes exactly one."""
    text = "".join(pages_in(ROOT / "docs" / "reference").values())

    assert dict.fromkeys(BLOCKS, 1) == {name: text.count(f"<!-- {name}: ") for name in BLOCKS}


def pages_in(directory: Path) -> dict[Path, str]:
    """Return the text of each page in *directory*."""
    pages = directory.rglob("*.md")
    return {page.relative_to(directory): page.read_text(encoding="utf-8") for page in pages}


LISTS = re.findall(r"^\| `GET (\w+)(?:\?([\w=&]+))?`", CONTROL, re.MULTILINE)


@pytest.mark.parametrize(("path", "parameters"), [row for row in LISTS if row[0] != "events"])
async def test_a_list_takes_the_parameters_that_stand_there(path: str, parameters: str):
    """The page of the control API shows `tenant` and `limit` where they are taken, and nowhere else."""
    async with Sandbox() as sandbox, aiohttp.ClientSession(sandbox.base_url) as session:
        accepted = []
        for name in ("tenant", "limit"):
            async with session.get(f"/_sandbox/{path}", params={name: 1}) as response:
                accepted += [f"{name}="] if response.status == 200 else []

    assert parameters == "&".join(accepted)


def meanings(page: str, section: str, rows: str) -> dict[str, str]:
    """Return the members in *section* of *page*, each with its meaning; *rows* is what their names look like."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return dict(re.findall(rf"^\| `({rows})` \|.*\| ?(.*?) \|$", text, re.MULTILINE))


def headings(page: str) -> list[str]:
    """Return the names of the sections of *page*."""
    return re.findall(r"^## ([\w.]+)$", page, re.MULTILINE)


@pytest.mark.parametrize("operation", headings(OPERATIONS))
def test_every_member_that_goes_out_has_a_meaning(operation: str):
    """Whoever has only the page knows what to put into a body, or into a search."""
    texts = meanings(OPERATIONS, operation, r"\w+")

    assert [] == [name for name, meaning in texts.items() if not meaning]


@pytest.mark.parametrize("response", headings(RESPONSES))
def test_every_member_that_comes_back_has_a_meaning(response: str):
    """Whoever has only the page knows what a response says; a preference repeats what its request says."""
    texts = meanings(RESPONSES, response, r"\w+")
    request_texts = meanings(OPERATIONS, "preferences.create", r"\w+") if response == "Preference" else {}

    assert texts
    assert [] == [name for name, meaning in texts.items() if not (meaning or request_texts.get(name))]


#: The rows of the table of codes: status, code, operations and classes.
CODES = re.findall(r"^\| (\d{3}) \| `([^`]+)` \| [^|]* \| ([^|]*) \| ([^|]*) \|", ERRORS, re.MULTILINE)


@pytest.mark.parametrize(("status", "code", "operations", "classes"), CODES, ids=[" ".join(row[:2]) for row in CODES])
async def test_a_code_is_raised_as_the_page_says(status: str, code: str, operations: str, classes: str):
    """By every write that has it, also where no attempt before was in doubt."""
    response = Response(int(status), {}, msgspec.json.encode({"errors": [{"code": code, "message": "no"}]}))
    for name in set(re.findall(r"`([^`]+)`", operations)) & {*WRITES}:
        transport = MemoryTransport(lambda _: response)
        async with PaymentsClient(
            "TEST-1", base_url="http://127.0.0.1", transport=transport, clock=FakeClock()
        ) as client:
            with pytest.raises(errors.PaymentsError) as raised:
                await write(name)(client)

        assert f"`{type(raised.value).__name__}`" in classes, name
