"""Searches that drift, that end early, and that filter coarsely: what a walk has to bear."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from paymentsdk.sandbox import FaultRule, Sandbox

BEGIN = datetime(2026, 5, 4, 10, tzinfo=UTC)
PATH = "/merchant_orders/search"
WALK = "merchant_orders.search"


@pytest.fixture
def sell(order, connect):
    """Make merchant orders, one each at a number of moments after the beginning."""

    async def sell(sandbox: Sandbox, *milliseconds: float) -> list[str]:
        async with connect(sandbox) as client:
            for number, moment in enumerate(milliseconds):
                sandbox.clock.freeze(BEGIN + timedelta(milliseconds=moment))
                sandbox.buyer.pay(await client.orders.create(order(external_reference=f"sale-{number}")))
        return [f"sale-{number}" for number in range(len(milliseconds))]

    return sell


async def names(plain, query: str = "") -> list[str]:
    """Return the references on a page."""
    rows = (await plain("GET", PATH + query)).json["elements"]
    assert all(11 == len(str(row["id"])) for row in rows)
    return [row["external_reference"] for row in rows]


@pytest.mark.parametrize(("policy", "rows"), [("refuse", None), ("empty", []), ("clamp", ["sale-2", "sale-1"])])
async def test_a_search_may_end_at_an_offset(start, plain_to, sell, policy, rows):
    """Beyond it the platform rejects, shows nothing, or shows the same page for ever; below it nothing changes."""
    sandbox = await start(policies={"max_offset": 2, "beyond_max_offset": policy})
    plain = plain_to(sandbox)
    await sell(sandbox, 0, 1, 2, 3, 4)

    at = await plain("GET", f"{PATH}?offset=2&limit=2")
    beyond = await plain("GET", f"{PATH}?offset=3&limit=2")

    assert ["sale-2", "sale-1"] == [row["external_reference"] for row in at.json["elements"]]
    assert (400 if rows is None else 200) == beyond.status
    if rows is not None:
        assert rows == [row["external_reference"] for row in beyond.json["elements"]]
        assert 5 == beyond.json["total"]


@pytest.mark.parametrize(("most", "total"), [(2, 2), (3, 3)])
async def test_a_total_may_be_clamped(start, plain_to, sell, most, total):
    """Also exactly at the number of rows, where nobody can see it; the rows are all there."""
    sandbox = await start(policies={"max_total": most})
    await sell(sandbox, 0, 1, 2)
    response = await plain_to(sandbox)("GET", PATH)

    assert (total, 3) == (response.json["total"], len(response.json["elements"]))


#: Rows at these milliseconds, and bounds in the middle of two seconds.
ROWS = (200, 500, 900, 1000, 1500, 1700, 2000)
LOW, HIGH = "10:00:00.500", "10:00:01.500"


@pytest.mark.parametrize(
    ("policies", "numbers"),
    [
        ({}, "1234"),
        ({"window_edge": "half_open"}, "123"),
        ({"date_filter_grain": "second"}, "012345"),
        ({"date_filter_grain": "second", "window_edge": "half_open"}, "012"),
        ({"date_filter_grain": "second", "date_filter_compares": "bounds"}, "0123"),
        ({"date_filter_grain": "second", "date_filter_compares": "bounds", "window_edge": "exclusive"}, "012"),
        ({"date_filter_grain": "minute"}, "0123456"),
        ({"date_filter_grain": "hour"}, "0123456"),
    ],
    ids=str,
)
async def test_date_filters_have_edges_and_a_grain(start, plain_to, sell, policies, numbers):
    """A coarse filter compares whole grains, or drops the rest of its bounds and with it a part of the last grain."""
    sandbox = await start(policies={"search_order": "oldest", **policies})
    await sell(sandbox, *ROWS)
    query = f"?date_created_from=2026-05-04T{LOW}Z&date_created_to=2026-05-04T{HIGH}Z"

    assert [f"sale-{number}" for number in numbers] == await names(plain_to(sandbox), query)


@pytest.mark.parametrize("grain", ["millisecond", "hour"])
@pytest.mark.parametrize("edge", ["inclusive", "half_open"])
async def test_the_calendar_ends_with_a_whole_grain(start, plain_to, sell, grain, edge):
    """A bound in the last grain of all is a bound like others, in every zone: a program that wants no end sends it."""
    sandbox = await start(policies={"search_order": "oldest", "date_filter_grain": grain, "window_edge": edge})
    sold = await sell(sandbox, 0, 1)

    for end in ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999%2B05:30"):
        assert [*sold] == await names(plain_to(sandbox), f"?date_created_to={end}")
        assert [] == await names(plain_to(sandbox), f"?date_created_from={end}")


async def test_equal_moments_may_come_in_any_order(start, plain_to, sell):
    """Shuffled, two looks at one moment differ, and each has all rows; rows of other moments stay in place."""
    for policy, orders in (("stable", 1), ("shuffled", 2)):
        sandbox = await start(policies={"equal_moments": policy, "search_order": "oldest"}, seed=5)
        plain = plain_to(sandbox)
        sold = await sell(sandbox, 0, *[1] * 8, 2)
        sequences = {tuple(await names(plain)) for _ in range(4)}

        assert orders <= len(sequences) <= (1 if orders == 1 else 4)
        for row in sequences:
            assert sorted(sold) == sorted(row)
            assert ("sale-0", "sale-9") == (row[0], row[-1])


@pytest.mark.parametrize(("effect", "change"), [("row_inserted", 1), ("row_deleted", -1), ("row_changed", 0)])
async def test_rows_drift_while_they_are_walked(start, plain_to, sell, effect, change):
    """A row is made, vanishes, or is touched and moves, before each page that a rule hits; no other request sees it."""
    sandbox = await start(policies={"search_sort": "last_updated"}, seed=4)
    plain = plain_to(sandbox)
    await sell(sandbox, *range(6))
    sandbox.clock.advance("PT1H")
    before = await names(plain)

    with sandbox.faults.add(FaultRule(effect=effect, operation=WALK, nth=2)) as fault:
        same, after = await names(plain), await names(plain)

    assert before == same != after
    assert (change, 1) == (len(after) - len(before), fault.hits)
    assert after == await names(plain), "what happened stays"
