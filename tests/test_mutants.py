"""What `nox -s mutants` mutates, and when it fails."""

from __future__ import annotations

import pytest

from tests.mutants import ACCEPTED, Mutant, accepted, changed_lines, differences, functions, mutant

SOURCE = """
def one():
    return 1

class Two:
    limit = 2

    @property
    def two(self):
        return self.limit

    async def three(self):
        return 3
"""
ADVANCE = Mutant("m.xǁCursorǁadvance", "if a < b:", "if a <= b:")
STEP = Mutant("m.x_step", "return a", "return None")
LISTED = f"# Accepted.\n\n{ADVANCE}\nThe bound is looked at before.\n\n{STEP}\nIt is\nnot used.\n"


def test_changed_lines_are_those_of_the_new_file() -> None:
    """Several hunks of several files, with and without counts; a deletion touches the line where it was."""
    first = "--- a/p/a.py\n+++ b/p/a.py\n@@ -1 +1,2 @@ def\n+x\n+y\n@@ -9,2 +9,0 @@\n-z\n"
    second = "--- a/p/b.py\n+++ b/p/b.py\n@@ -3 +3 @@\n"

    assert {"p/a.py": {1, 2, 9}, "p/b.py": {3}} == changed_lines(first + second)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (3, ["m.x_one__mutmut_*"]),
        (6, []),
        (8, ["m.xǁTwoǁtwo__mutmut_*"]),
        (13, ["m.xǁTwoǁthree__mutmut_*"]),
    ],
)
def test_the_functions_of_changed_lines_are_mutated(line: int, found: list[str]) -> None:
    """Functions and methods, with their decorators, by the names that mutmut gives them."""
    assert found == [*functions(SOURCE, "m", {line})]


def test_a_mutant_is_known_by_its_lines() -> None:
    """Neither its number nor the line where it stands counts: both change with what is above."""
    head = "# m.x_step__mutmut_7: survived\n--- a.py\n+++ a.py\n@@ -3,3 +3,3 @@\n def step():\n"
    diff = f"{head}-    return a\n+    return None\n"

    assert STEP == mutant("m.x_step__mutmut_7", diff)


def test_the_list_says_why() -> None:
    """An entry is a function, a line before and after, and a reason; without one it is an error."""
    assert {ADVANCE, STEP} == accepted(LISTED)
    assert set() == accepted("# Nothing.\n")
    with pytest.raises(ValueError, match="and a reason"):
        accepted(f"{ADVANCE}\n")


def test_what_is_accepted_can_be_read() -> None:
    """Every entry of the list of the project has its reason."""
    assert all(one.function.startswith("paymentsdk.") for one in accepted(ACCEPTED.read_text(encoding="utf-8")))


def test_a_survivor_has_to_be_listed_and_a_listed_one_to_survive() -> None:
    """Of functions that were not mutated nothing is known, and nothing is said."""
    assert [] == differences({ADVANCE}, {ADVANCE, STEP}, ["m.xǁCursorǁadvance__mutmut_*"])
    assert [f"a mutant survives:\n{ADVANCE}"] == differences({ADVANCE}, set(), ["m.*"])
    assert [f"it is listed, and does not survive any more:\n{STEP}"] == differences({ADVANCE}, {ADVANCE, STEP}, ["m.*"])
