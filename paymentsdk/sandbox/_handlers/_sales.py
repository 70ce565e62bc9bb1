"""What is sold: what it costs, in which currency, and where it is sent; for the API, the ledger and the pages alike."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Protocol

from paymentsdk import money
from paymentsdk.resources.merchant_orders import (
    City,
    Country,
    MerchantOrderItem,
    ReceiverAddress,
    Shipment,
    ShipmentItem,
    State,
)
from paymentsdk.resources.preferences import Preference, PreferenceReceiverAddress
from paymentsdk.sandbox._context import SellerContext


class Priced(Protocol):
    """A line of a sale, of whatever resource."""

    @property
    def quantity(self) -> int | None:
        """How many; 1 where it is not said."""

    @property
    def unit_price(self) -> Decimal | None:
        """What one costs; nothing where it is not said."""


class Valued(Protocol):
    """A line of a sale that may say what it is paid in."""

    @property
    def currency_id(self) -> str | None:
        """The currency of its price; the sale's where it is not said."""


def line_total(item: Priced) -> Decimal:
    """Return what a line of a sale costs."""
    return total((item,))


def total(items: Iterable[Priced]) -> Decimal:
    """Return what all lines of a sale cost."""
    return money.total((item.quantity or 1, item.unit_price or money.ZERO) for item in items)


def shipping_cost(preference: Preference) -> Decimal:
    """Return what the buyer of *preference* pays for its shipment."""
    shipments = preference.shipments
    if shipments is None or shipments.free_shipping:
        return money.ZERO
    return shipments.cost or money.ZERO


def asked(preference: Preference) -> Decimal:
    """Return what the buyer of *preference* is asked for."""
    return money.total([(1, total(preference.items or ())), (1, shipping_cost(preference))])


def currency_of(items: Iterable[Valued], otherwise: str) -> str:
    """Return the currency of a sale: the one that an item names, or else *otherwise*."""
    return next((item.currency_id for item in items if item.currency_id), otherwise)


def shipments_of(
    context: SellerContext, preference: Preference, items: Iterable[MerchantOrderItem]
) -> tuple[Shipment, ...]:
    """Return the one shipment of a preference that says where to; nobody has sent it yet."""
    shipments = preference.shipments
    address = shipments.receiver_address if shipments else None
    if shipments is None or address is None:
        return ()
    shipment = Shipment(
        id=context.ids.number(11),
        shipping_mode=shipments.mode,
        status="pending",
        items=tuple(
            ShipmentItem(id=item.id, description=item.title or item.description, quantity=item.quantity or 1)
            for item in items
        ),
        date_created=context.now,
        last_modified=context.now,
        receiver_address=_receiver_address(address),
    )
    return (shipment,)


def _receiver_address(address: PreferenceReceiverAddress) -> ReceiverAddress:
    """Return *address* in the words of merchant orders."""
    return ReceiverAddress(
        zip_code=address.zip_code,
        street_name=address.street_name,
        street_number=address.street_number,
        city=None if address.city_name is None else City(name=address.city_name),
        state=None if address.state_name is None else State(name=address.state_name),
        country=None if address.country_name is None else Country(name=address.country_name),
    )
