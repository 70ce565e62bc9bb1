"""The pages of docs/reference and docs/api are what the declarations say."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import msgspec
import pytest

from docs import generate
from paymentsdk import PaymentsClient, Response, errors
from paymentsdk.sandbox import Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.identity.writes import WRITES, write

DOCS = Path(__file__).parents[2] / "docs"
CONTROL = DOCS.joinpath("reference/control-api.md").read_text(encoding="utf-8")
OPERATIONS = DOCS.joinpath("reference/operations.md").read_text(encoding="utf-8")
ERRORS = DOCS.joinpath("reference/errors.md").read_text(encoding="utf-8")
RESPONSES = DOCS.joinpath("reference/responses.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def written() -> dict[Path, str]:
    """Each page as the declarations have it."""
    return dict(generate.written())


def test_the_pages_are_up_to_date(written: dict[Path, str]):
    """Nobody has changed a declaration, or a page, without writing the pages anew."""
    assert [] == [page.name for page, text in written.items() if page.read_text(encoding="utf-8") != text]
    assert {*DOCS.glob("api/*.md")} <= written.keys()


def test_a_page_that_is_not_is_found(tmp_path: Path, written: dict[Path, str], monkeypatch: pytest.MonkeyPatch):
    """A block with another text, and a page too few or too many, fail the check. Writing the pages repairs them."""
    copies = {tmp_path / page.relative_to(DOCS): text for page, text in written.items()}
    monkeypatch.setattr(generate, "DOCS", tmp_path)
    monkeypatch.setattr(generate, "written", copies.items)
    for folder in ("api", "reference"):
        tmp_path.joinpath(folder).mkdir()
    generate.main([])
    page = tmp_path.joinpath("reference/operations.md")
    page.write_text(page.read_text(encoding="utf-8").replace("| `POST ", "| `PUT ", 1), encoding="utf-8")
    tmp_path.joinpath("api/errors.md").unlink()
    tmp_path.joinpath("api/more.md").touch()

    with pytest.raises(SystemExit, match=r"reference/operations\.md, api/errors\.md, api/more\.md$"):
        generate.main(["--check"])
    generate.main([])

    assert {page: page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.md")} == copies


def test_every_block_is_on_a_page(written: dict[Path, str]):
    """Each function for a block writes exactly one."""
    text = "".join(written.values())

    assert dict.fromkeys(generate.BLOCKS, 1) == {name: text.count(f"<!-- {name}: ") for name in generate.BLOCKS}


LISTS = re.findall(r"^\| `GET ((?!events)\w+)(?:\?([\w=&]+))?`", CONTROL, re.MULTILINE)


async def test_a_list_takes_the_parameters_that_stand_there():
    """The page of the control API shows `tenant` and `limit` where they are taken, and nowhere else."""
    async with Sandbox() as sandbox, aiohttp.ClientSession(sandbox.base_url) as session:
        for path, parameters in LISTS:
            accepted = []
            for name in ("tenant", "limit"):
                async with session.get(f"/_sandbox/{path}", params={name: 1}) as response:
                    accepted += [f"{name}="] if response.status == 200 else []

            assert parameters == "&".join(accepted), path


def meanings(page: str, section: str, rows: str) -> dict[str, str]:
    """Return the members in *section* of *page*, each with its meaning; *rows* is what their names look like."""
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return dict(re.findall(rf"^\| `({rows})` \|.*\| ?(.*?) \|$", text, re.MULTILINE))


def test_every_member_has_a_meaning():
    """Whoever has only the page knows what goes into a body or a search, and what a response says.

    A preference repeats what its request says.
    """
    known = meanings(OPERATIONS, "preferences.create", r"\w+")
    for page, texts in {OPERATIONS: {}, RESPONSES: known}.items():
        for section in re.findall(r"^## ([\w.]+)$", page, re.MULTILINE):
            members = meanings(page, section, r"\w+")
            assert [] == [name for name, meaning in members.items() if not (meaning or texts.get(name))], section


#: The rows of the table of codes: status, code, operations and classes.
CODES = re.findall(r"^\| (\d{3}) \| `([^`]+)` \| [^|]* \| ([^|]*) \| ([^|]*) \|", ERRORS, re.MULTILINE)


async def test_a_code_is_raised_as_the_page_says():
    """By every write that has it, also where no attempt before was in doubt."""
    for status, code, operations, classes in CODES:
        response = Response(int(status), {}, msgspec.json.encode({"errors": [{"code": code, "message": "no"}]}))
        for name in set(re.findall(r"`([^`]+)`", operations)) & {*WRITES}:
            options = {"transport": MemoryTransport(lambda _, response=response: response), "clock": FakeClock()}
            async with PaymentsClient("TEST-1", base_url="http://127.0.0.1", **options) as client:
                with pytest.raises(errors.PaymentsError) as raised:
                    await write(name)(client)

            assert f"`{type(raised.value).__name__}`" in classes, (code, name)
