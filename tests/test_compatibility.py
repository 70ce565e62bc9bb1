"""The comparison of a version with the one before finds every break, and nothing else."""

from __future__ import annotations

import pytest

from tests import compatibility

BEFORE = """\
paymentsdk.PaymentsError [class of Exception]
paymentsdk.PaymentsError.account: str
paymentsdk.NotSent [class of PaymentsError]
paymentsdk.NotSent.account: str
paymentsdk.Clock [class of Protocol]
paymentsdk.Clock.sleep(self, seconds: float) -> None [async]
paymentsdk.Clock.key: str = <factory>
paymentsdk.replay(*answers: bytes, times: int = 1) -> list[bytes]
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seconds: float", "seconds: float, *, early: bool = False", {}),
        ("paymentsdk.NotSent.account: str\n", "", {}),
        ("*answers", "*replies", {}),
        ("seconds: float", "time: float", {("paymentsdk.Clock.sleep", "seconds"): "Parameter was removed: seconds"}),
        ("times: int = 1", "times: int", {("paymentsdk.replay", "times"): "Parameter is now required: times"}),
        ("paymentsdk.Clock.key: str = <factory>\n", "", {("paymentsdk.Clock.key", ""): "Public object was removed"}),
    ],
    ids=["an-option-more", "inherited-now", "the-name-of-the-rest", "another-name", "required-now", "removed"],
)
def test_a_break_is_what_a_caller_notices(old: str, new: str, expected: dict[tuple[str, str], str]) -> None:
    """New optional arguments, inherited members and the name of `*rest` are no breaks."""
    now = BEFORE.replace(old, new)

    found = compatibility.breaks(BEFORE.splitlines(), now.splitlines())

    assert expected.items() <= found.items()
    assert bool(expected) == bool(found)


def test_the_page_names_every_break() -> None:
    """The page about the upgrade names each break since the last version."""
    assert {} == compatibility.untold()
