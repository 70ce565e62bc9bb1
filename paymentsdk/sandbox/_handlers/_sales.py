"""Costs, currencies, ways to pay and shipments of a sale, for the API, the ledger and the pages."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import TypeAlias

from paymentsdk import money
from paymentsdk.resources import merchant_orders, preferences
from paymentsdk.resources.common import Id
from paymentsdk.resources.merchant_orders import City, Country, MerchantOrderItem, ReceiverAddress, Speed, State
from paymentsdk.resources.orders import OrderItem
from paymentsdk.resources.preferences import Payer, Preference, PreferenceItem, PreferenceItemRequest
from paymentsdk.sandbox._noun import SellerContext
from paymentsdk.sandbox._records import TENANTS, Tenant
from paymentsdk.sandbox._wire import Rejected, echo

#: The ``status_detail`` for the status of a payment. Invoices use other details.
DETAILS: Mapping[str, str] = {
    "approved": "accredited",
    "authorized": "pending_capture",
    "in_process": "pending_contingency",
    "pending": "pending_contingency",
    "refunded": "refunded",
    "rejected": "cc_rejected_other_reason",
}
#: The kinds of payment methods in discounts, each with a method of its kind.
METHODS = {"account_money": "account_money", "debit_card": "debvisa", "credit_card": "visa", "prepaid_card": "prepaid"}
#: The duration of a shipment, and its parts in hours.
_DELIVERY, _SPEED = timedelta(days=3), Speed(handling=24, shipping=48)
#: A line of a sale that may have a currency.
Valued: TypeAlias = PreferenceItem | PreferenceItemRequest | MerchantOrderItem


def total(items: Iterable[Valued | OrderItem]) -> Decimal:
    """Return the total of all lines of a sale."""
    return money.total((item.quantity or 1, item.unit_price or money.ZERO) for item in items)


def shipping_cost(preference: Preference) -> Decimal:
    """Return the shipping cost that the buyer of *preference* pays."""
    shipments = preference.shipments
    if shipments is None or shipments.free_shipping:
        return money.ZERO
    return shipments.cost or money.ZERO


def currency_of(items: Iterable[Valued], otherwise: str) -> str:
    """Return the first currency that an item names, or *otherwise*."""
    return next((item.currency_id for item in items if item.currency_id), otherwise)


def counted_installments(method: str, installments: int) -> int:
    """Return the number of installments. Only a credit card can have more than one."""
    return installments if method == "credit_card" else 1


def check_way(method: str, installments: int, *, kinds: Collection[str] = METHODS, most: int) -> None:
    """Reject a way to pay that is not offered.

    Raises:
        Rejected: *method* is not one of *kinds*, or there are more than *most* installments.
    """
    if method not in kinds:
        raise Rejected(400, "bad_request", f"it can be paid with {', '.join(kinds) or 'nothing at all'}")
    if not 1 <= counted_installments(method, installments) <= most:
        raise Rejected(400, "bad_request", f"installments must be 1 to {most}")


def find_sponsor(context: SellerContext, sponsor_id: Id | None, *, code: str, place: str) -> Tenant | None:
    """Return the sponsor of a sale; ``None`` without a sponsor, or for an unknown sponsor that the policy allows.

    Raises:
        Rejected: The id is not a number above zero, or the sponsor is unknown and the policy rejects it.
    """
    if sponsor_id is None:
        return None
    text = str(sponsor_id)
    # As text, since Python limits the digits of numbers that it converts.
    number = text.lstrip("0") if text.isascii() and text.isdigit() else ""
    # Looked up in the whole store: a sponsor is another seller.
    sponsor = context.store.get(TENANTS, number)
    if not number or (sponsor is None and context.policies.sponsors == "known"):
        raise Rejected(400, code, details=(place,))
    return sponsor


def shipments_of(
    context: SellerContext, preference: Preference, items: Iterable[MerchantOrderItem]
) -> tuple[merchant_orders.Shipment, ...]:
    """Return the shipment of a preference that has an address. It is not yet sent."""
    shipments = preference.shipments
    address = shipments.receiver_address if shipments else None
    if shipments is None or address is None:
        return ()
    cost = shipping_cost(preference)
    contents = (
        merchant_orders.ShipmentItem(
            id=item.id,
            description=item.title or item.description,
            quantity=item.quantity or 1,
            dimensions=shipments.dimensions,
        )
        for item in items
    )
    option = merchant_orders.ShippingOption(
        id=context.ids.number(9),
        cost=cost,
        currency_id=currency_of(preference.items or (), context.tenant.currency),
        shipping_method_id=shipments.default_shipping_method or context.ids.number(6),
        estimated_delivery=merchant_orders.EstimatedDelivery(date=context.now + _DELIVERY),
        name="Express" if shipments.express_shipment else "Standard",
        list_cost=shipments.cost or cost,
        speed=_SPEED,
    )
    shipment = merchant_orders.Shipment(
        id=context.ids.number(11),
        shipment_type="shipping",
        shipping_mode=shipments.mode,
        status="pending",
        items=tuple(contents),
        date_created=context.now,
        last_modified=context.now,
        date_first_printed=context.now,
        service_id=context.ids.number(6),
        sender_id=context.tenant.user_id,
        receiver_id=context.ids.number(9),
        receiver_address=_receiver_address(context, preference, address),
        shipping_option=option,
    )
    return (shipment,)


def _receiver_address(
    context: SellerContext, preference: Preference, address: preferences.PreferenceReceiverAddress
) -> ReceiverAddress:
    """Return *address* as merchant orders write it. Missing data, such as the coordinates, is made up."""
    payer, street = preference.payer or Payer(), address.street_name
    line = " ".join(str(part) for part in (street, address.street_number) if part is not None)
    # The street has the same name in every language.
    languages = street and context.policies.street_names == "languages"
    return echo(
        address,
        ReceiverAddress,
        id=context.ids.number(10),
        address_line=line or None,
        city=City(id=_code(address.city_name), name=address.city_name) if address.city_name else None,
        state=State(id=_code(address.state_name), name=address.state_name) if address.state_name else None,
        country=Country(id=context.tenant.country, name=address.country_name) if address.country_name else None,
        latitude=-34.6,
        longitude=-58.4,
        comment=preference.additional_info,
        contact=full_name(payer) or None,
        phone=payer.phone and payer.phone.number,
        street_name=merchant_orders.StreetName(en=street, pt=street, es=street) if languages else street,
    )


def full_name(payer: Payer) -> str:
    """Return the name of a buyer."""
    return " ".join(filter(None, (payer.first_name or payer.name, payer.last_name or payer.surname)))


def _code(name: str) -> str:
    """Return an id that depends only on the *name* of a place."""
    return "".join(filter(str.isalnum, name)).upper()[:8]
