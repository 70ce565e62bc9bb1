"""The runner of the pages, run on pages that are good and on pages that are broken."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = """
import pytest

@pytest.fixture
def platform():
    '''No page here talks to a platform.'''
"""


@pytest.fixture
def read(pytester: pytest.Pytester):
    """Run the page tests over a README.md with *text*, and a page beside it."""

    def read(text: str) -> pytest.RunResult:
        pytester.path.joinpath("README.md").write_text(text, encoding="utf-8")
        pytester.path.joinpath("docs").mkdir()
        pytester.path.joinpath("docs/guide.md").write_text("# A guide\n\n## Two *words*, one dash\n", encoding="utf-8")
        pytester.makeini("[pytest]")  # The project ends here, wherever this directory is.
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(
            test_pages=Path(__file__).parents[1].joinpath("docs/test_pages.py").read_text(encoding="utf-8")
        )
        return pytester.runpytest_inprocess(
            "-p", "no:cacheprovider", "-p", "no:asyncio", "--assert=plain", "-k", "README"
        )

    return read


def page(language: str, *lines: str, above: str = "") -> str:
    """Return a page with one block."""
    return "\n".join([above, f"```{language}", *lines, "```", ""])


GOOD = {
    "await": page("python", "import asyncio", "await asyncio.sleep(0)"),
    "shared names": page("python", "x = 1") + page("python", "assert x == 1"),
    "a test": page("python", "async def test_sum():", "    assert 2 == 1 + 1"),
    "an excuse": page("python", "1 / 0", above="<!-- not run: it needs an account -->"),
    "what is printed": page("python", "print('a', 1)  # a ...", "print(2)  # No output, but a sentence."),
    "a file": (
        page("json", '{"a": 1}', above="<!-- file: a.json -->")
        + page("python", "from pathlib import Path", "assert Path('a.json').read_text()")
    ),
    "a link to a heading": "[a](docs/guide.md#two-words-one-dash)",
}

#: What is wrong, and what the report then holds.
BROKEN = {
    "an error in the second block": (page("python", "x = 0") + page("python", "1 / x"), "*README.md:7:*"),
    "what is not printed": (page("python", "print(1)  # 2"), "*['2']*"),
    "what a command does not print": (page("console", "$ paymentsdk --version", "none"), "*['none']*"),
    "an excuse without a reason": (page("python", "1 / 0", above="<!-- not run -->"), "*ZeroDivisionError*"),
    "a test": (page("python", "def test_sum():", "    assert 3 == 1 + 1"), "*assert 3 ==*"),
    "a language": (page("py", "1"), "*not 'py'*"),
    "a foreign command": (page("console", "$ make coffee"), "*neither run here*"),
    "json": (page("json", "{"), "*JSONDecodeError*"),
}


@pytest.mark.parametrize("case", GOOD)
def test_a_good_page_passes(read, case: str) -> None:
    """Top-level await, shared names, tests, excuses with a reason, commands run elsewhere and links that lead."""
    read(GOOD[case]).assert_outcomes(passed=2, deselected=2)


def test_a_server_may_be_preceded_by_warnings(read, monkeypatch) -> None:
    """What Python itself prints at the start of a server, with whatever settings of the reader, is no failure."""
    monkeypatch.setenv("PYTHONWARNINGS", "nonsense")

    read(page("console", "$ paymentsdk sandbox")).assert_outcomes(passed=2, deselected=2)


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_page_fails(read, case: str) -> None:
    """Whatever is wrong with a page, its test fails and says what."""
    text, complaint = BROKEN[case]

    result = read(text)

    assert result.parseoutcomes().get("failed", 0) >= 1
    result.stdout.fnmatch_lines([complaint])


def test_the_transport_on_a_page_keeps_every_rule(pytester: pytest.Pytester) -> None:
    """The suite that the page shows, whole: tests/docs runs a part of it."""
    page = Path(__file__).parents[2].joinpath("docs/how-to/transport-over-httpx.md").read_text(encoding="utf-8")
    pytester.makeini("[pytest]\nasyncio_mode = auto")
    pytester.makepyfile(page.partition("```python\n")[2].partition("```")[0])

    result = pytester.runpytest_subprocess("-q", "-p", "no:cacheprovider", "-p", "no:paymentsdk")

    assert result.parseoutcomes().keys() == {"passed"}
