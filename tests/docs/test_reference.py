"""The pages of docs/reference and docs/api are what the declarations say."""

from __future__ import annotations

import importlib
import inspect
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import msgspec
import pytest

from docs.describe import attributes
from docs.generate import BLOCKS
from paymentsdk import PaymentsClient, Response, ResumePoint, errors
from paymentsdk.sandbox import Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.identity.writes import WRITES, write

ROOT = Path(__file__).parents[2]
CONTROL = ROOT.joinpath("docs/reference/control-api.md").read_text(encoding="utf-8")
OPERATIONS = ROOT.joinpath("docs/reference/operations.md").read_text(encoding="utf-8")
ERRORS = ROOT.joinpath("docs/reference/errors.md").read_text(encoding="utf-8")
RESPONSES = ROOT.joinpath("docs/reference/responses.md").read_text(encoding="utf-8")
CONTRACT = ROOT.joinpath("docs/reference/contract.md").read_text(encoding="utf-8")


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


def test_every_member_of_the_control_api_has_a_meaning():
    """Whoever has only the page knows what to send; what an entry of a list of methods holds is free."""
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (?:yes)? \| (.*) \|$", CONTROL, re.MULTILINE)

    assert 30 < len(rows)
    assert [] == [name for name, meaning in rows if not meaning and "payment_methods_allowed." not in name]


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


def test_every_class_of_a_body_can_be_imported():
    """Whoever has only the page can make the request: the class of each part is where the page says."""
    for name in headings(OPERATIONS):
        text = OPERATIONS.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        if body := re.search(r"^Body: `([\w.]+)\.(\w+)`", text, re.MULTILINE):
            parts = re.findall(r"\| (?:object|list of) `(\w+)`", text)
            home = vars(importlib.import_module(body[1]))
            assert {body[1]} == {home[class_name].__module__ for class_name in [body[2], *parts]}


@pytest.mark.parametrize("operation", headings(OPERATIONS))
def test_every_operation_says_how_it_is_called(operation: str):
    """The page shows each method of the client, with its arguments, below the operation that it calls."""
    text = OPERATIONS.partition(f"\n## {operation}\n")[2].partition("\n## ")[0]
    client = PaymentsClient(base_url="http://127.0.0.1")

    calls = re.findall(r"^- Method: `(?:await )?client\.(\w+)\.(\w+)\((.*)\)`$", text, re.MULTILINE)

    assert calls
    for noun, method, arguments in calls:
        parameters = inspect.signature(getattr(getattr(client, noun), method)).parameters
        names = [] if arguments == "..." else re.findall(r"(\w+)(?:=None)?(?:, |$)", arguments)
        assert names == ([] if arguments == "..." else list(parameters))


def test_every_filter_has_a_row_with_a_meaning():
    """A search is told what it can look for: each filter of each search has a row with three cells."""
    sections = {name: OPERATIONS.partition(f"\n## {name}\n")[2].partition("\n## ")[0] for name in headings(OPERATIONS)}
    searches = {name: text for name, text in sections.items() if "\nFilters, " in text}

    assert searches.keys() == {name for name in sections if name.endswith(".search")}
    for name, text in searches.items():
        assert 0 < text.count("\n| `") == len(meanings(OPERATIONS, name, r"\w+"))


@pytest.mark.parametrize("response", headings(RESPONSES))
def test_every_member_that_comes_back_has_a_meaning(response: str):
    """Whoever has only the page knows what a response says; a preference repeats what its request says."""
    texts = meanings(RESPONSES, response, r"\w+")
    request_texts = meanings(OPERATIONS, "preferences.create", r"\w+") if response == "Preference" else {}

    assert texts
    assert [] == [name for name, meaning in texts.items() if not (meaning or request_texts.get(name))]


@pytest.mark.parametrize("response", headings(RESPONSES))
def test_every_amount_has_a_meaning(response: str):
    """However deep it stands, an amount says what it is of; a preference repeats what its request says."""
    place = r"[\w.\[\]]+"
    amounts = {name for name, kind in re.findall(rf"^\| `({place})` \| (amount)[^|]*\|", RESPONSES, re.MULTILINE)}
    texts = meanings(RESPONSES, response, place)
    request_texts = meanings(OPERATIONS, "preferences.create", place) if response == "Preference" else {}

    assert [] == [name for name in sorted(amounts & texts.keys()) if not (texts[name] or request_texts.get(name))]


def test_the_contract_has_every_amount_of_a_request():
    """What may be paid is looked for there first: each amount that goes out, with its bound and its meaning."""
    operation_rows = re.findall(r"^\| `([^`]+)` \| amount *(.*?) \|.*\| (.+) \|$", OPERATIONS, re.MULTILINE)
    section = CONTRACT.partition("\n### Amounts\n")[2].partition("\n### ")[0]
    contract_rows = re.findall(r"^\| `\w+\.\w+` \| `([^`]+)` \| (.+?) \| (.+) \|$", section, re.MULTILINE)

    assert {"total_amount", "transactions[].amount"} < {name for name, *_ in contract_rows}
    assert sorted((name, bound or "0 or more", about) for name, bound, about in operation_rows) == sorted(contract_rows)


def test_a_list_of_a_request_that_is_bounded_is_in_the_contract():
    """A bound on how many there may be is a limit, as that of a length is."""
    lists = re.findall(r"^\| (`[^`]+` \| list of [^|]*, [^|]*) \|", OPERATIONS, re.MULTILINE)

    assert any("at most 4 entries" in row for row in lists)
    assert [] == [row for row in lists if row not in CONTRACT]


@pytest.mark.parametrize(("page", "section"), [(OPERATIONS, "orders.create"), (RESPONSES, "Order")])
def test_every_part_of_an_order_has_a_meaning(page: str, section: str):
    """What most come for is told to the last member."""
    texts = meanings(page, section, r"[\w.\[\]]+")

    assert 25 < len(texts)
    assert [] == [name for name, meaning in texts.items() if not meaning]


MADE = [
    errors.RequestInvalid("$.items", "is empty"),
    errors.NotSent("no connection"),
    errors.NoAnswer("a reset"),
    errors.OutcomeUnknown("a reset"),
    errors.APIError(400),
    errors.PaginationStalled("the same page twice"),
    errors.Incomplete(1, 2, ResumePoint(1, 2)),
    errors.NotWhole((datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)), 1, 2),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_every_attribute_of_an_error_is_documented(error: errors.PaymentsError):
    """Whatever an error holds is told below the field, in its class or one above it: there editors and the API look."""
    documented = {name for cls in type(error).__mro__ if cls is not object for name in attributes(cls)}

    assert set() == vars(error).keys() - documented


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
