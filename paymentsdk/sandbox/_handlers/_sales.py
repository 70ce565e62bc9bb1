"""What is sold: what it costs, in which currency, how it is paid, and where it is sent; for API, ledger and pages."""

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

#: The ``status_detail`` that goes with the status of a payment; invoices have words of their own.
DETAILS: Mapping[str, str] = {
    "approved": "accredited",
    "authorized": "pending_capture",
    "in_process": "pending_contingency",
    "pending": "pending_contingency",
    "refunded": "refunded",
    "rejected": "cc_rejected_other_reason",
}
#: The kinds of payment methods that discounts know, each with a method of its kind.
METHODS = {"account_money": "account_money", "debit_card": "debvisa", "credit_card": "visa", "prepaid_card": "prepaid"}
#: How long a shipment takes in the sandbox, of which the seller has a day.
_DELIVERY, _SPEED = timedelta(days=3), Speed(handling=24, shipping=48)
#: A line of a sale that may say what it is paid in.
Valued: TypeAlias = PreferenceItem | PreferenceItemRequest | MerchantOrderItem


def total(items: Iterable[Valued | OrderItem]) -> Decimal:
    """Return what all lines of a sale cost."""
    return money.total((item.quantity or 1, item.unit_price or money.ZERO) for item in items)


def shipping_cost(preference: Preference) -> Decimal:
    """Return what the buyer of *preference* pays for its shipment."""
    shipments = preference.shipments
    if shipments is None or shipments.free_shipping:
        return money.ZERO
    return shipments.cost or money.ZERO


def currency_of(items: Iterable[Valued], otherwise: str) -> str:
    """Return the currency of a sale: the one that an item names, or else *otherwise*."""
    return next((item.currency_id for item in items if item.currency_id), otherwise)


def counted_installments(method: str, installments: int) -> int:
    """Return in how many parts *method* is paid: only a credit card has more than one."""
    return installments if method == "credit_card" else 1


def check_way(method: str, installments: int, *, kinds: Collection[str] = METHODS, most: int) -> None:
    """Reject a way to pay that a buyer is not offered.

    Raises:
        Rejected: The method is none of those *kinds*, or there are more than the *most* installments.
    """
    if method not in kinds:
        raise Rejected(400, "bad_request", f"it can be paid with {', '.join(kinds) or 'nothing at all'}")
    if not 1 <= counted_installments(method, installments) <= most:
        raise Rejected(400, "bad_request", f"it can be paid in 1 to {most} installments")


def find_sponsor(context: SellerContext, sponsor_id: Id | None, *, code: str, place: str) -> Tenant | None:
    """Return the sponsor of a sale; ``None`` for none, and for one whom the policy lets be nobody of this sandbox.

    Raises:
        Rejected: The id is no number above zero, or nobody's whom the policy wants to be somebody.
    """
    if sponsor_id is None:
        return None
    text = str(sponsor_id)
    # As text, since Python makes no number of some thousand digits.
    number = text.lstrip("0") if text.isascii() and text.isdigit() else ""
    # A sponsor is another seller, beyond the own context.
    sponsor = context.store.get(TENANTS, number)
    if not number or (sponsor is None and context.policies.sponsors == "known"):
        raise Rejected(400, code, details=(place,))
    return sponsor


def shipments_of(
    context: SellerContext, preference: Preference, items: Iterable[MerchantOrderItem]
) -> tuple[merchant_orders.Shipment, ...]:
    """Return the one shipment of a preference that says where to; nobody has sent it yet."""
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
    """Return *address* in the words of merchant orders; what nobody said, such as where on earth it is, is made up."""
    payer, street = preference.payer or Payer(), address.street_name
    line = " ".join(str(part) for part in (street, address.street_number) if part is not None)
    # A street is called the same in every language.
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
    """Return what a buyer is called."""
    return " ".join(filter(None, (payer.first_name or payer.name, payer.last_name or payer.surname)))


def _code(name: str) -> str:
    """Return an id that a place of this *name* always has."""
    return "".join(filter(str.isalnum, name)).upper()[:8]
