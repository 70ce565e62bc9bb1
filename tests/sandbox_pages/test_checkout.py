"""Where a buyer pays: plain pages with a form, for an order and for a preference."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Context, Decimal

import pytest

#: Spaces and signs as a keyboard has them.
PLAIN = str.maketrans("\N{NO-BREAK SPACE}\N{MULTIPLICATION SIGN}", " x")


def path_of(preference) -> str:
    """The path of the checkout of *preference*."""
    return re.sub(r"\Ahttp://[^/]+", "", preference.init_point)


def words_of(page: str) -> str:
    """What *page* says, in one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", page.replace("<wbr>", "")).translate(PLAIN).split())


async def merchant_order(shop):
    """What the one preference of *shop* has come to."""
    return await shop.client.merchant_orders.search().first()


# --- orders ------------------------------------------------------------------------------------------------------


async def test_an_order_is_paid_by_a_form(shop, visitor, sandbox) -> None:
    """The page says what is sold and what it costs; sending its form pays the order, once."""
    order = await shop.order(
        "12.50",
        description="Breakfast",
        items=[
            {"title": "Coffee", "unit_price": "4.50", "quantity": 2, "unit_measure": "unit"},
            {"title": "Cheese", "unit_price": "3.50", "quantity": 1, "unit_measure": "kg"},
        ],
    )
    words = words_of(await visitor.get(f"/qr/{order.id}"))
    for text in ("Breakfast", "ARS 12.50", "2 x ARS 4.50 ARS 9.00", "1 kg x ARS 3.50", "ticket-1", "POS001"):
        assert text in words

    words = words_of(await visitor.send_form(payment_method="credit_card", installments="3"))

    assert "Paid" in words
    assert "Credit card, 3 installments" in words
    paid = await shop.client.orders.get(order.id)
    assert "processed" == paid.status
    assert ("credit_card", 3) == (
        paid.transactions.payments[0].payment_method.type,
        paid.transactions.payments[0].payment_method.installments,
    )
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("payment")


async def test_a_discount_belongs_to_its_method(shop, visitor) -> None:
    """The form says what each method costs, and the buyer pays that."""
    discounts = {"payment_methods": [{"type": "debit_card", "new_total_amount": "45.00"}]}
    order = await shop.order("50.00", discounts=discounts)
    assert "Debit card ARS 45.00 , ARS 5.00 less" in words_of(await visitor.get(f"/qr/{order.id}"))

    words = words_of(await visitor.send_form(payment_method="debit_card"))

    assert "Paid ARS 45.00" in words
    assert "45.00" == str((await shop.client.orders.get(order.id)).transactions.payments[0].paid_amount)


@pytest.mark.control("paymentsdk.money.EXACTLY", Context(prec=4))
async def test_what_a_discount_saves_is_not_rounded(shop, visitor) -> None:
    """To the cent, however few digits a program keeps of its own amounts."""
    discounts = {"payment_methods": [{"type": "debit_card", "new_total_amount": "12000.01"}]}
    order = await shop.order("12345.67", discounts=discounts)

    assert "ARS 12,000.01 , ARS 345.66 less" in words_of(await visitor.get(f"/qr/{order.id}"))


@pytest.mark.parametrize(("outcome", "words"), [("rejected", "Declined"), ("in_review", "In review")])
async def test_an_order_that_is_not_paid_at_first_can_be_paid_after_all(shop, visitor, outcome, words) -> None:
    """The page says that the payment was declined or is in review, and leads back to the form."""
    order = await shop.order()
    await visitor.get(f"/qr/{order.id}")

    page = await visitor.send_form(outcome=outcome)

    assert words in words_of(page)
    assert "created" == (await shop.client.orders.get(order.id)).status
    await visitor.get(re.search(r'href="(/qr/[^"]*)"', page)[1])
    assert "Paid" in words_of(await visitor.send_form())


@pytest.mark.parametrize("end", ["canceled", "expired", "refunded", "partly refunded"])
async def test_a_settled_order_has_no_form(shop, visitor, sandbox, end: str) -> None:
    """The page says what it has come to, and a form that was opened before pays nothing."""
    order = await shop.order()
    await visitor.get(f"/qr/{order.id}")
    form = visitor.page
    match end:
        case "canceled":
            await shop.client.orders.cancel(order.id)
        case "expired":
            sandbox.clock.advance("PT15M")
        case _:
            sandbox.buyer.pay(order)
            payment = order.transactions.payments[0].id
            part = {"payment_id": payment, "amount": Decimal("1.00")} if end.startswith("partly") else {}
            await shop.client.orders.refund(order.id, **part)

    page = await visitor.get(f"/qr/{order.id}")
    assert end.capitalize() in words_of(page)
    assert "<form" not in page
    visitor.page = form
    await visitor.send_form()

    assert 409 == visitor.status
    assert "It cannot be paid" in words_of(visitor.page)
    assert f"It is {end} already" in words_of(visitor.page)


# --- preferences -------------------------------------------------------------------------------------------------


async def test_a_preference_is_paid_at_its_init_point(shop, visitor) -> None:
    """Items, shipping, buyer and reference are there; the form pays all of it and leads back to the shop."""
    preference = await shop.preference(
        payer={"first_name": "Ana", "last_name": "Souza", "email": "ana@example.com"},
        shipments={"cost": "10"},
        external_reference="basket-42",
        additional_info="Ring twice",
        statement_descriptor="LAMPS",
        back_urls={"success": "https://shop.example.com/thanks?a=1&b=2"},
    )
    words = words_of(await visitor.get(path_of(preference)))
    for text in ("LAMPS", "Lamp 2 x ARS 60.25 ARS 120.50", "Shipping ARS 10.00", "ARS 130.50", "Ana Souza"):
        assert text in words
    for text in ("ana@example.com", "basket-42", "Ring twice"):
        assert text in words

    page = await visitor.send_form()

    assert "Paid" in words_of(page)
    assert 'href="https://shop.example.com/thanks?a=1&amp;b=2"' in page
    assert "paid" == (await merchant_order(shop)).order_status


async def test_a_sale_is_shown_in_the_currency_of_its_items(shop, visitor) -> None:
    """Also where only the second of them names it: the buyer is asked for one sum."""
    items = [{"title": "Lamp", "unit_price": "5"}, {"title": "Bulb", "unit_price": "1", "currency_id": "USD"}]
    preference = await shop.preference(items=items)

    words = words_of(await visitor.get(path_of(preference)))

    assert "USD 6.00" in words
    assert "ARS" not in words


@pytest.mark.parametrize(
    ("outcome", "name", "words"), [("rejected", "failure", "Try again"), ("in_review", "pending", "Decide it")]
)
async def test_every_outcome_has_its_way_back(shop, visitor, outcome: str, name: str, words: str) -> None:
    """A buyer who was declined goes where the shop wants them then, or tries again; what is in review is decided."""
    preference = await shop.preference(back_urls={name: f"https://shop.example.com/{name}"})
    await visitor.get(path_of(preference))

    page = await visitor.send_form(outcome=outcome)

    assert f'href="https://shop.example.com/{name}"' in page
    assert f'href="{path_of(preference)}?attempt=again">{words}<' in page
    assert "payment_required" == (await merchant_order(shop)).order_status


async def test_a_purchase_in_review_says_so_to_every_visitor(shop, visitor, sandbox) -> None:
    """Wherever it was paid, and whatever the address claims; what the address claims alone is shown to nobody."""
    preference = await shop.preference()
    for claimed in ("in_review", "rejected"):
        await visitor.get(f"{path_of(preference)}?attempt={claimed}")
        assert "<form" in visitor.page
    sandbox.buyer.pay_preference(preference, outcome="in_review")

    for attempt in ("", "?attempt=rejected", "?attempt=approved"):
        assert "In review" in words_of(await visitor.get(path_of(preference) + attempt))
    await visitor.get(re.search(r'href="(/checkout/[^"]*)"', visitor.page)[1])
    assert "Paid" in words_of(await visitor.send_form())
    assert 1 == len((await merchant_order(shop)).payments)


async def test_a_buyer_is_taken_back_only_where_the_shop_asked(shop, visitor) -> None:
    """`auto_return` goes on by itself once it is paid; a later visit to the page stays."""
    urls = {"success": "https://shop.example.com/thanks"}
    for members, refreshes in (({"auto_return": "approved"}, 1), ({}, 0)):
        preference = await shop.preference(back_urls=urls, **members)
        await visitor.get(path_of(preference))
        assert refreshes == (await visitor.send_form()).count('http-equiv="refresh"')
        assert 0 == (await visitor.get(path_of(preference))).count('http-equiv="refresh"')


async def test_the_shop_decides_how_to_pay(shop, visitor) -> None:
    """Excluded methods are not offered, nor taken; installments end where the shop says."""
    preference = await shop.preference(
        payment_methods={
            "excluded_payment_types": [{"id": "prepaid_card"}],
            "excluded_payment_methods": [{"id": "debvisa"}],
            "default_payment_method_id": "visa",
            "installments": 4,
            "default_installments": 2,
        }
    )
    page = await visitor.get(path_of(preference))
    assert ["account_money", "credit_card"] == re.findall(r'name="payment_method" value="([^"]*)"', page)
    assert 'value="credit_card" checked' in page
    assert ["1", "2", "3", "4"] == re.findall(r'<option value="(\d+)"', page)
    assert '<option value="2" selected>' in page

    await visitor.send_form(payment_method="debit_card")

    assert 400 == visitor.status
    assert "payment_required" == (await merchant_order(shop)).order_status


async def test_money_that_went_back_is_shown(shop, visitor, sandbox) -> None:
    """A part of it, and then all of it."""
    preference = await shop.preference()
    paid = sandbox.buyer.pay_preference(preference)
    sandbox.buyer.refund_merchant_order(paid.id, Decimal("20.00"))

    words = words_of(await visitor.get(path_of(preference)))
    assert "Partly refunded" in words
    assert "Refunded ARS 20.00" in words

    sandbox.buyer.refund_merchant_order(paid.id)
    assert "The seller has refunded the payment." in words_of(await visitor.get(path_of(preference)))


async def test_a_preference_that_has_expired_says_so(shop, visitor, sandbox) -> None:
    """It is shown until when it can be paid, and after that cannot be."""
    end = sandbox.clock.now() + timedelta(hours=1)
    preference = await shop.preference(expires=True, expiration_date_to=end.isoformat())
    assert f"before {end:%H:%M:%S} UTC" in words_of(await visitor.get(path_of(preference)))

    sandbox.clock.advance("PT61M")
    await visitor.get(path_of(preference))

    assert 409 == visitor.status


async def test_a_preference_is_paid_once(shop, visitor, sandbox) -> None:
    """The form leads to a page of its own, which a browser can load again; sending it twice pays once, and says so."""
    preference = await shop.preference()
    form = await visitor.get(path_of(preference))
    await visitor.send_form()
    assert visitor.url.endswith("?attempt=approved")
    assert "Paid" in words_of(await visitor.get(visitor.url.removeprefix(sandbox.base_url)))
    visitor.page = form

    await visitor.send_form()

    assert 409 == visitor.status
    assert "It is paid already, and nothing was paid this time." in words_of(visitor.page)
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("payment")


@pytest.mark.parametrize("path", ["/qr/ORD01J67CQQH5904WDBVZEM4JMEP3", "/checkout/1-2", "/qr/%ff"])
async def test_what_does_not_exist_is_a_page(visitor, path: str) -> None:
    """Whatever the address says, the response is a page with status 404, and shows none of it."""
    await visitor.get(path)

    assert 404 == visitor.status
    assert "Nothing here" in visitor.page
