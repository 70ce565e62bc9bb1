"""Merchant orders: filters, pages, and the 90 days."""

from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from paymentsdk.sandbox import Rejected
from tests.sandbox.orders import members


@pytest.fixture
def paid(client, sandbox, order):
    """Makes orders, and pays them: each is a merchant order."""

    async def pay(*references: str, **members: object) -> None:
        for reference in references:
            sandbox.buyer.pay(await client.orders.create(order(external_reference=reference, **members)))

    return pay


async def references(client, **filters: object) -> list[str]:
    """Return the references of what is found."""
    return [row.external_reference async for row in client.merchant_orders.search(**filters)]


async def test_a_paid_order_is_a_merchant_order(client, sandbox, paid):
    """Closed / paid, with the order's lines, its payer and its payment; none before it was paid."""
    assert [] == await references(client)
    items = [{"title": "Coffee", "unit_price": "25.00", "quantity": 2, "unit_measure": "u", "external_code": "c-1"}]
    await paid("one", items=items, description="d")
    [merchant_order] = await client.merchant_orders.search().collect()

    assert ("closed", "paid", "one", "d", 50, 50, 0, 0, sandbox.client_id, "AR", "MARKET") == members(
        merchant_order,
        "status order_status external_reference additional_info total_amount paid_amount refunded_amount shipping_cost"
        " application_id site_id marketplace",
    )
    assert (sandbox.tenant.user_id, sandbox.buyer.payer_id) == members(merchant_order, "collector.id payer.id")
    [item], [payment] = merchant_order.items, merchant_order.payments
    assert ("c-1", "Coffee", 2, 25, "ARS") == members(item, "id title quantity unit_price currency_id")
    assert ("approved", "accredited", 50, 0) == members(
        payment, "status status_detail total_paid_amount amount_refunded"
    )
    assert merchant_order.date_created == merchant_order.last_updated == sandbox.clock.now()


async def test_what_an_order_came_to_is_refunded_through_the_order(client, sandbox, paid):
    """Else the money would be back in one place, and could be given back once more in the other."""
    await paid("one")
    [merchant_order] = await client.merchant_orders.search().collect()

    with pytest.raises(Rejected, match="through the Orders API"):
        sandbox.buyer.refund_merchant_order(merchant_order.id)

    assert 50 == sum(entry.amount for entry in sandbox.ledger())


async def test_every_filter_filters(client, sandbox, paid):
    """Each of the twelve, with a value that is there; values that are not there are in test_filters.py."""
    item = {"title": "t", "unit_price": "1", "quantity": 1, "unit_measure": "u"}
    items = [{**item, "external_code": "a"}, {**item, "external_code": "b"}]
    await paid("one", items=items, integration_data={"sponsor": {"id": "77"}})
    [merchant_order] = await client.merchant_orders.search().collect()
    now, payer = sandbox.clock.now(), merchant_order.payer.id
    hits = {"status": "closed", "payer_id": payer, "sponsor_id": 77, "external_reference": "one", "site_id": "AR"}
    hits |= {"marketplace": "MARKET", "application_id": sandbox.client_id, "items": "b"}
    hits |= dict.fromkeys(("date_created_from", "date_created_to", "last_updated_from", "last_updated_to"), now)

    assert ["one"] == await references(client, **hits)
    for name, value in {"external_reference": "on", "items": "ab", "sponsor_id": 7}.items():
        assert [] == await references(client, **{name: value}), name


@pytest.mark.parametrize(("column", "hours"), [("date_created", -12), ("last_updated", 5.75)])
async def test_a_moment_is_the_same_in_every_zone(client, sandbox, paid, column, hours):
    """The offset that a filter is written with decides nothing: not to the east, not to the west."""
    await paid("one")
    now, zone = sandbox.clock.now(), timezone(timedelta(hours=hours))
    before, after = ((now + timedelta(hours=shift)).astimezone(zone) for shift in (-1, 1))

    assert ["one"] == await references(client, **{f"{column}_from": before, f"{column}_to": after})
    assert [] == await references(client, **{f"{column}_from": after})
    assert [] == await references(client, **{f"{column}_to": before})


@pytest.mark.parametrize(
    ("edge", "milliseconds", "is_found"),
    [("inclusive", 0, True), ("inclusive", 1, False), ("exclusive", 0, False), ("exclusive", -1, True)],
)
async def test_a_search_sees_90_days(start, connect, order, edge, milliseconds, is_found):  # noqa: PLR0917 - fixtures
    """To the millisecond, and the edge is a policy."""
    sandbox = await start(frozen=True, policies={"window_edge": edge})
    async with connect(sandbox) as client:
        sandbox.buyer.pay(await client.orders.create(order()))
        sandbox.clock.advance(timedelta(days=90, milliseconds=milliseconds))

        assert is_found == bool(await references(client))
        assert 0 == len(await references(client, date_created_from=sandbox.clock.now()))


async def test_a_late_refund_is_in_no_search(client, sandbox, order):
    """The 90 days are counted from the making, also where a window of `last_updated` has the change in it."""
    new_order = await client.orders.create(order())
    sandbox.buyer.pay(new_order)
    sandbox.clock.advance("P91D")
    await client.orders.refund(new_order.id)

    assert [] == await references(client, last_updated_from=sandbox.clock.now())
    assert "refunded" == (await client.orders.get(new_order.id)).status
    assert [50, -50] == [entry.amount for entry in sandbox.ledger() if entry.amount]


@pytest.mark.parametrize("sort", ["newest", "oldest"])
async def test_the_order_of_rows_is_a_policy_and_never_by_chance(start, connect, order, sort):
    """Rows are sorted by creation, also rows of the same moment."""
    sandbox = await start(frozen=True, policies={"search_order": sort})
    async with connect(sandbox) as client:
        for number in range(4):
            sandbox.buyer.pay(await client.orders.create(order(external_reference=str(number))))
            sandbox.clock.advance(timedelta(seconds=number // 2))
        rows = await references(client)

    assert ["0", "1", "2", "3"] == (rows if sort == "oldest" else rows[::-1])


@pytest.mark.parametrize(("last", "expected"), [("total", 5), ("zero", 0), ("null", None)])
async def test_pages_say_where_the_next_begins(start, plain_to, connect, order, last, expected):  # noqa: PLR0917 - fixtures
    """next_offset grows page by page; on the last page it is what the policy says; past the end a page is empty."""
    sandbox = await start(frozen=True, policies={"last_next_offset": last, "page_size": 1, "max_page_size": 2})
    plain = plain_to(sandbox)
    async with connect(sandbox) as client:
        for number in range(5):
            sandbox.buyer.pay(await client.orders.create(order(external_reference=str(number))))
        walked = await references(client)
    pages = [(await plain("GET", f"/merchant_orders/search?limit=50&offset={offset}")).json for offset in (0, 2, 4, 6)]
    default = (await plain("GET", "/merchant_orders/search")).json["elements"]

    assert 1 == len(default)
    assert [2, 2, 1, 0] == [len(page["elements"]) for page in pages]
    assert [2, 4, expected, expected] == [page["next_offset"] for page in pages]
    assert {5} == {page["total"] for page in pages}
    assert ["4", "3", "2", "1", "0"] == walked


async def test_an_empty_page_may_be_null(start, plain_to):
    """`empty_elements=null`: the member is there, and null, as some responses of real traffic have it."""
    plain = plain_to(await start(policies={"empty_elements": "null"}))

    assert {"elements": None, "next_offset": 0, "total": 0} == (await plain("GET", "/merchant_orders/search")).json


async def test_a_bad_search_is_rejected(plain):
    """400 `ds_search_query`, with the name of the filter."""
    numbers, texts = {"limit": "0", "offset": "99999999999999999999"}, {"status": "%00", "date_created_to": "yesterday"}
    moments = ("2026-01-01T00:00:00", "0001-01-01T00:00:00%2B05:00")
    filters = [*{**numbers, **texts}.items(), *(("date_created_from", moment) for moment in moments)]
    for name, value in filters:
        response = await plain("GET", f"/merchant_orders/search?{name}={value}")

        assert (400, "ds_search_query") == (response.status, response.code)
        assert response.json["cause"][0]["data"].startswith(f"{name}: ")


async def test_an_unusual_query_is_taken(plain, paid):
    """Empty values, unknown names, a name twice (the first counts)."""
    await paid("one")
    for query in ("?status=", "?colour=red", "?status=closed&status=opened"):
        response = await plain("GET", f"/merchant_orders/search{query}")

        assert (200, 1) == (response.status, response.json["total"])


async def test_a_seller_sees_their_own(client, connect, sandbox, paid):
    """A seller does not see another seller's merchant orders."""
    await paid("one")
    async with connect(sandbox, sandbox.create_tenant()) as second_client:
        assert [] == await references(second_client)
