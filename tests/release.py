"""Checks whether this version can be released, and whether an index can show what was built.

::

    python -m tests.release            check version, changelog, recorded names and upgrade page
    python -m tests.release FOLDER     check also the wheel and the archive in FOLDER

`nox -s release` builds twice, and runs it.
"""

from __future__ import annotations

import email
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path

from paymentsdk._version import __version__
from tests.compatibility import SURFACE, SURFACES, untold, upgrade_page

ROOT = Path(__file__).parents[1]
#: The sections of a version in the changelog, in this order: what breaks comes first.
SECTIONS = ["Removed", "Changed", "Deprecated", "Added", "Fixed", "Security"]
#: The addresses that an index shows beside the description.
URLS = {"Changelog", "Documentation", "Source"}
HEADING = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>.+))?$", re.MULTILINE)


def problems(version: str, changelog: str, today: date) -> Iterator[str]:
    """Yield why *version* cannot be released, in sentences."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield f"paymentsdk/_version.py: {version} is no version to release; write one such as 0.3.0"
    newest, last = list(HEADING.finditer(changelog))[:2]
    if newest["version"] != version:
        yield f"CHANGELOG.md: the first heading is [{newest['version']}]; write `## [{version}] - {today}`"
    elif not (date.fromisoformat(last["date"]) <= date.fromisoformat(newest["date"] or "9999-12-31") <= today):
        yield f"CHANGELOG.md: {newest['date']} is not a day from {last['date']} to {today}"
    entries = changelog[newest.end() : last.start()]
    sections = re.findall(r"^### (.+)$", entries, re.MULTILINE)
    if sections != sorted(set(sections), key=SECTIONS.index):
        yield f"CHANGELOG.md: the sections are {', '.join(sections)}; the order is {', '.join(SECTIONS)}"
    items = Counter(" ".join(item.split()) for item in re.split(r"^(?:- |#.*$)", entries, flags=re.MULTILINE)[1:])
    yield from (f"CHANGELOG.md: an item stands twice: {item}" for item, number in items.items() if item and number > 1)


def surface_problems(version: str) -> Iterator[str]:
    """Yield what the recorded names lack, and the breaks that the page about the upgrade does not name."""
    recorded = SURFACES / f"{version}.txt"
    if not recorded.exists() or recorded.read_bytes() != SURFACE.read_bytes():
        kept, names = recorded.relative_to(ROOT), SURFACE.relative_to(ROOT)
        yield f"{kept} does not have the public names of this version; run `cp {names} {kept}`"
    page = upgrade_page().relative_to(ROOT)
    yield from (f"{page} does not name {path}: {text}" for path, text in untold().items())


def build_problems(wheel: Path) -> Iterator[str]:
    """Yield what an index would show wrongly of *wheel*: it shows the README without the repository."""
    with zipfile.ZipFile(wheel) as archive:
        [name] = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    description = metadata.get_payload() or metadata["Description"] or ""
    yield from (f"README.md: {link} is not absolute" for link in relative_links(description))
    if "![" not in description:
        yield "README.md has no picture"
    labels = {url.partition(",")[0] for url in metadata.get_all("Project-URL", [])}
    yield from (f"pyproject.toml: the URL of {label} is missing" for label in sorted(URLS - labels))


def relative_links(markdown: str) -> list[str]:
    """Return the links and pictures in *markdown* that need the repository."""
    prose = re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"\]\((?!https://|#)([^)]+)\)", prose)


def main(folders: Iterable[str]) -> None:
    """Print the problems, and exit with 1 if there is one."""
    changelog = ROOT.joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    found = [*problems(__version__, changelog, datetime.now(UTC).date()), *surface_problems(__version__)]
    for folder in folders:
        found += [problem for wheel in Path(folder).glob("*.whl") for problem in build_problems(wheel)]
    if found:
        sys.exit("\n".join(found))
    sys.stdout.write(f"{__version__} can be released.\n")


if __name__ == "__main__":
    main(sys.argv[1:])
