"""The comparison of signatures with the last version: what counts as a break."""

from __future__ import annotations

import griffe
import pytest

from tests import compatibility
from tests.compatibility import is_name_of_rest


def test_the_name_of_the_rest_is_no_break() -> None:
    """`*rest` may have another name, since nobody can pass it by name; that it is gone is a break."""
    before = griffe.visit("api", None, "def renamed(*answers): ...\ndef removed(*answers): ...\n")
    now = griffe.visit("api", None, "def renamed(*replies): ...\ndef removed(): ...\n")
    verdicts = {breakage.obj.path: is_name_of_rest(breakage) for breakage in griffe.find_breaking_changes(before, now)}
    assert verdicts == {"api.renamed": True, "api.removed": False}


def test_a_copy_without_the_history_says_what_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the last version is not in the history, as in a shallow clone, one line says what to do."""
    monkeypatch.setattr(compatibility, "LAST", "0123456789ab")

    with pytest.raises(SystemExit, match=r"commit 0123456789ab, is not in this copy: .*`git fetch --unshallow`\.$"):
        compatibility.breaks()
