"""Two books about the same money: where they differ, and that nothing else is called a difference."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from paymentsdk.cli._demo import Comparison, Entry, compare

ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from(["payment", "refund"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([Decimal(1), Decimal("2.00")]),
    )
)
PAYMENT = Entry("payment", "PAY1", Decimal("10.00"))


def test_equal_books_agree():
    """Books that say the same are clean, in whatever order and with whatever number of zeros they say it."""
    result = compare(
        [PAYMENT, Entry("refund", "REF1", Decimal(-5))], [Entry("refund", "REF1", Decimal("-5.00")), PAYMENT]
    )

    assert Comparison(2, [], []) == result


def test_a_row_that_was_recorded_twice_is_double():
    """What the platform did once more than the client knows of is double."""
    result = compare([PAYMENT], [PAYMENT, PAYMENT])

    assert Comparison(1, [PAYMENT], []) == result


def test_a_row_that_was_not_recorded_is_lost():
    """What the client believes and the platform did not do is lost."""
    result = compare([PAYMENT, PAYMENT], [PAYMENT])

    assert Comparison(1, [], [PAYMENT]) == result


def test_another_amount_is_both():
    """An entry with another amount is lost as the one, and double as the other."""
    less = Entry("payment", "PAY1", Decimal("9.99"))

    result = compare([PAYMENT], [less])

    assert Comparison(0, [less], [PAYMENT]) == result


@given(ENTRIES, ENTRIES)
def test_every_row_is_accounted_for(believed: list[Entry], recorded: list[Entry]):
    """Each row of either book is agreed on or is a difference, never both and never neither."""
    result = compare(believed, recorded)

    assert len(recorded) == result.agreed + len(result.double)
    assert len(believed) == result.agreed + len(result.lost)
    assert Counter(recorded) - Counter(result.double) == Counter(believed) - Counter(result.lost)


@given(ENTRIES, ENTRIES)
def test_what_one_book_lost_the_other_has_double(believed: list[Entry], recorded: list[Entry]):
    """Compared the other way round, the differences change places."""
    one, other = compare(believed, recorded), compare(recorded, believed)

    assert (one.double, one.lost) == (other.lost, other.double)
