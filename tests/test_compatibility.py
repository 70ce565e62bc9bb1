"""The comparison of signatures with the last version finds breaks."""

from __future__ import annotations

import griffe
import pytest

from tests import compatibility
from tests.compatibility import is_name_of_rest


def test_the_name_of_the_rest_is_no_break() -> None:
    """A new name of `*rest` is no break, since callers cannot pass it by name. Removing it is a break."""
    before = griffe.visit("api", None, "def renamed(*answers): ...\ndef removed(*answers): ...\n")
    now = griffe.visit("api", None, "def renamed(*replies): ...\ndef removed(): ...\n")
    verdicts = {breakage.obj.path: is_name_of_rest(breakage) for breakage in griffe.find_breaking_changes(before, now)}
    assert verdicts == {"api.renamed": True, "api.removed": False}


def test_a_copy_without_the_history_says_what_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the last version is missing, as in a shallow clone, one line says how to fetch it."""
    monkeypatch.setattr(compatibility, "LAST", "0123456789ab")

    with pytest.raises(SystemExit, match=r"commit 0123456789ab, is not in this copy: .*`git fetch --unshallow`\.$"):
        compatibility.breaks()
