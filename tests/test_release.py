"""What is released has a version, a dated changelog in order, and a description that an index can show."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.release import ROOT, build_problems, problems

#: Extras without bounds: all of the others, and one that is empty.
UNBOUND = {"all", "fast"}
TODAY = date(2026, 3, 1)
CHANGELOG = """\
# Changelog

## [1.2.0] - 2026-02-28

### Removed

- A name.

### Added

- A filter.

## [1.1.0] - 2026-01-31
"""
METADATA = """\
Metadata-Version: 2.4
Name: shop
Project-URL: Changelog, https://git.example.com/changes
Project-URL: Documentation, https://git.example.com/docs
Project-URL: Source, https://git.example.com

![The dashboard](https://git.example.com/dashboard.png) of [the sandbox](https://git.example.com/docs)

```python
orders = pages[0](walk)
```
"""


def test_a_version_in_order_has_no_problems() -> None:
    """The changelog begins with the version and a day that is over or today."""
    assert [] == list(problems("1.2.0", CHANGELOG, TODAY))


@pytest.mark.parametrize(
    ("version", "old", "new", "expected"),
    [
        ("1.2.0.dev0", "", "", "1.2.0.dev0 is no version to release"),
        ("1.2.0", "[1.2.0] - 2026-02-28", "[Unreleased]", "the first heading is [Unreleased]"),
        ("1.2.0", "2026-02-28", "2026-03-02", "2026-03-02 is not a day from 2026-01-31 to 2026-03-01"),
        ("1.2.0", "2026-02-28", "2026-01-30", "2026-01-30 is not a day from"),
        ("1.2.0", "### Removed", "### Fixed", "the sections are Fixed, Added"),
        ("1.2.0", "- A filter.", "- A\n  name.", "an item stands twice: A name."),
    ],
)
def test_a_version_out_of_order_has_a_problem(version: str, old: str, new: str, expected: str) -> None:
    """The sentence names the file and the rule."""
    [problem, *_] = problems(version, CHANGELOG.replace(old, new), TODAY)

    assert expected in problem


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        ("(https://git.example.com/docs)", "(docs/README.md)", ["README.md: docs/README.md is not absolute"]),
        ("![The dashboard](https://git.example.com/dashboard.png)", "A", ["README.md has no picture"]),
        ("Project-URL: Source,", "X-Source:", ["pyproject.toml: the URL of Source is missing"]),
    ],
)
def test_an_index_can_show_the_wheel(tmp_path: Path, old: str, new: str, expected: list[str]) -> None:
    """Links and pictures are absolute, and the addresses are there."""
    wheel = tmp_path / "shop-1.2.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr("shop-1.2.0.dist-info/METADATA", METADATA.replace(old, new))

    assert expected == list(build_problems(wheel))


def test_a_user_reads_the_lowest_versions() -> None:
    """The page names each extra, and the bounds that pyproject.toml has."""
    page = ROOT.joinpath("docs/explanation/versions.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| (\S+).*? \| (.*) \|$", page, re.MULTILINE)
    rows = {name: re.findall(r"`([^`]+)`", bounds) for name, bounds in table}
    project = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {f"`{name}`": bounds for name, bounds in project["optional-dependencies"].items() if name not in UNBOUND}

    for name, bounds in {"none:": project["dependencies"], **extras}.items():
        assert [bound.partition(";")[0] for bound in bounds if ">=" in bound] == [
            row for row in rows[name] if ">=" in row
        ]
