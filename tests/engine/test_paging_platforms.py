"""Walks over what platforms say of their rows: where the end is, what cannot be true, and what would go on for ever."""

from __future__ import annotations

import pytest

from paymentsdk import NoAnswer, PaginationStalled
from paymentsdk.testing import MemoryTransport
from tests.engine.walks import ids, over

# --- where the end is -------------------------------------------------------------------------------------------------


def last(value: object):
    """Say *value* as the next offset of the last page."""

    def change(response: dict[str, object], request) -> None:
        if response.get("next_offset") == 0:
            response["next_offset"] = response["total"] if value == "total" else value

    return change


def last_stands(response: dict[str, object], request) -> None:
    """Say where the last page stands as its next offset."""
    if response["elements"] and response["next_offset"] == 0:
        response["next_offset"] = response["elements"][0]["id"] - 1


def without(*names: str):
    """Leave members out of every response."""
    return lambda response, request: {name: value for name, value in response.items() if name not in names}


def no_rows_is_null(response: dict[str, object], request) -> None:
    """Send null for an empty list."""
    response["elements"] = response["elements"] or None


def as_text(response: dict[str, object], request) -> None:
    """Send the numbers of the position as texts."""
    response["paging"] = {name: str(value) for name, value in response["paging"].items()}


ENDINGS = {
    "next_offset is 0": (True, last(0)),
    "next_offset is the total": (True, last("total")),
    "next_offset is where it stands": (True, last_stands),
    "next_offset stands still, and no total": (
        True,
        lambda response, request: {**response, "next_offset": 30, "total": None},
    ),
    "neither of them": (True, without("total", "next_offset")),
    "elements is null": (True, no_rows_is_null),
    "numbers are texts": (False, as_text),
    "paging is never there": (False, without("paging")),
}


@pytest.mark.parametrize("rows", [0, 60, 75])
@pytest.mark.parametrize("ending", ENDINGS)
async def test_every_way_to_say_where_the_end_is(tables, ending: str, rows: int) -> None:
    """However a platform tells its position, or does not, the walk ends with the last row and not before."""
    elements, changes = ENDINGS[ending]
    table = tables(rows, elements=elements, changes=changes)

    assert table.ids == await ids(table.search(over(table), prefetch=1 + rows % 2))
    assert len(table.offsets) <= rows // 30 + 2


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_more_rows_than_the_total(tables, prefetch: int) -> None:
    """A page that goes beyond the total shows that nobody has counted: what comes behind it is asked for as well."""

    def too_few(response: dict[str, object], request) -> None:
        response.get("paging", response)["total"] = 45

    table = tables(100, changes=too_few)

    assert table.ids == await ids(table.search(over(table), prefetch=prefetch))


# --- platforms that cannot count --------------------------------------------------------------------------------------


async def stalls(table, **options: int) -> PaginationStalled:
    """Walk *table*, which goes in a circle."""
    with pytest.raises(PaginationStalled) as stalled:
        await ids(table.search(over(table), **options))
    return stalled.value


@pytest.mark.control("paymentsdk._paging.cursor.Cursor._guard", lambda *_: None)
@pytest.mark.parametrize("totals", [(1_000, 1_000), (1_000, None)])
async def test_the_same_page_again_and_again(tables, totals: tuple[int | None, ...]) -> None:
    """A platform that ignores the offset is found out at the second page, whatever total it gives."""
    rows = [{"id": row} for row in range(30)]

    def same(response: dict[str, object], request) -> dict[str, object]:
        return circle(table, {"elements": rows, "total": totals[len(table.offsets) > 1]})

    table = tables(0, changes=same, elements=True)

    stalled = await stalls(table)

    assert "same page twice" in str(stalled)
    assert (30, "merchant_orders.search") == (stalled.resume_point, stalled.operation)


def circle(table, response: dict[str, object]) -> dict[str, object]:
    """Give up after some turns, so that a walk without its guards ends as well."""
    if len(table.offsets) > 10:
        pytest.fail("the walk goes on for ever")
    return response


async def test_a_next_offset_that_does_not_grow(tables) -> None:
    """A platform that sends the walk back to where it is, or to where it was, is found out."""
    table = tables(90, elements=True, changes=lambda response, request: {**response, "next_offset": 30})

    stalled = await stalls(table)

    assert "next_offset is 30" in str(stalled)
    assert 30 == stalled.resume_point


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_a_next_offset_behind_a_gap_is_not_followed(tables, prefetch: int) -> None:
    """A platform that goes on by what was asked for, though it gave fewer rows, must not cost the rows in between."""
    table = tables(
        100, elements=True, changes=lambda response, request: {**response, "next_offset": table.offsets[-1] + 50}
    )

    assert table.ids == await ids(table.search(over(table), page_size=50, prefetch=prefetch))


async def test_pages_with_nothing_new(tables) -> None:
    """Page after page of rows that were seen before comes to an end."""
    wheel = tables(0, elements=True, changes=lambda response, request: {"elements": turned(wheel), "total": 10**6})

    assert "102 pages, and no end" in str(await stalls(wheel))


def turned(table) -> list[dict[str, object]]:
    """The same ten rows, in another order each time."""
    turn = len(table.offsets) % 10
    return [{"id": (row + turn) % 10 + 1} for row in range(10)]


async def test_an_unrequested_page_is_rejected(tables, make_client) -> None:
    """A response with another offset belongs to another request: it is asked for again, and then is no response."""

    def shift(response: dict[str, object], request) -> None:
        if response["paging"]["offset"] == 30:
            response["paging"]["offset"] = 0

    table = tables(90, changes=shift)
    client = make_client(transport=MemoryTransport(table))

    with pytest.raises(NoAnswer, match="the page at offset 0") as lost:
        await ids(table.search(client))

    assert [0, 30, 30, 30, 30] == table.offsets
    assert 30 == lost.value.resume_point


async def test_rows_without_an_id_are_never_left_out(tables) -> None:
    """A row that cannot be told from another is new: losing it would be worse than giving it twice."""

    def nameless(response: dict[str, object], request) -> None:
        response["results"] = [{"id": ""} for _ in response["results"]]

    table = tables(60, changes=nameless)

    assert [""] * 60 == await ids(table.search(over(table)))
