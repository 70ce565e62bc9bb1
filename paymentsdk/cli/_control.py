"""``paymentsdk sandbox pay``, ``policies`` and ``advance``: what a person does to a sandbox that runs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from typing import get_args
from urllib.parse import quote

import msgspec
from msgspec import Struct

from paymentsdk.cli._arguments import Choices, duration, order_name, pair, pairs
from paymentsdk.cli._command import add_command
from paymentsdk.cli._output import Output
from paymentsdk.cli._parser import Commands
from paymentsdk.cli._running import NoResponseError, Running, SandboxError

_PREFERENCE = re.compile(r"[0-9]+-[0-9a-f-]{36}\Z")


def add_pay(commands: Commands) -> None:
    """Add ``pay``."""
    pay = add_command(commands, "pay", _pay, "have the buyer pay an order or a preference")
    what = "the id of an order or a preference, its code, its checkout address, or a point of sale"
    pay.add_argument("what", type=order_name, metavar="ORDER", help=what)
    pay.add_argument(
        "--method",
        metavar="METHOD",
        choices=Choices(_payment_methods),
        help="pay with one of %(choices)s (default: account_money)",
    )
    pay.add_argument("--reject", action="store_true", help="have the payment rejected")


def add_policies(commands: Commands) -> None:
    """Add ``policies``."""
    policies = add_command(
        commands, "policies", _policies, "list the points that the contract leaves open, or decide them"
    )
    policies.add_argument("changes", nargs="*", type=pair, metavar="NAME=VALUE", help="decide a point")


def add_advance(commands: Commands) -> None:
    """Add ``advance``."""
    advance = add_command(commands, "advance", _advance, "move the clock, and say what happened meanwhile")
    advance.add_argument(
        "duration",
        type=duration,
        metavar="DURATION",
        help="an ISO 8601 duration of weeks to seconds, such as PT20M or P30D",
    )


# --- pay ---------------------------------------------------------------------------------------------------------


def _payment_methods() -> Iterable[str]:
    from paymentsdk.sandbox._buyer import PaymentMethod

    return get_args(PaymentMethod)


def _pay(running: Running, options: argparse.Namespace) -> Output:
    from paymentsdk.resources.merchant_orders import MerchantOrder
    from paymentsdk.resources.orders import Order

    name, how = options.what, {"payment_method": options.method} if options.method else {}
    path, body = f"{quote(name, safe='')}/pay", {**how, "reject": options.reject}
    sale: Order | MerchantOrder
    if _PREFERENCE.match(name):
        sale = running.ask(MerchantOrder, "POST", f"preferences/{path}", body)
        what, paid = f"preference {name}, merchant order {sale.id}", sale.paid_amount
        currency = next((item.currency_id for item in sale.items or () if item.currency_id), "")
        # What is sent costs more than what is sold.
        due = (sale.total_amount or 0) + (sale.shipping_cost or 0)
    else:
        sale = running.ask(Order, "POST", f"orders/{path}", body)
        what, paid = sale.id, sale.payment.paid_amount if sale.payment else None
        currency, due = sale.currency or "", sale.total_amount or 0
    data = {
        "id": sale.id,
        "status": sale.status,
        "total_amount": f"{sale.total_amount or 0:.2f}",
        "paid_amount": f"{paid or 0:.2f}",
        "currency": currency,
    }
    rejected = f"the payment was rejected, {due:.2f} {currency} to pay"
    amount = rejected if options.reject else f"{data['paid_amount']} {currency} paid"
    return Output(data, [f"{what}: {sale.status}, {amount}"])


# --- policies ----------------------------------------------------------------------------------------------------


class _Policy(Struct):
    """A point that the contract leaves open, and how it is decided."""

    name: str
    value: object
    allowed: list[object]
    description: str


def _policies(running: Running, options: argparse.Namespace) -> Output:
    changes = pairs(options.changes)
    listed = _changed(running, changes) if changes else _listed(running)
    return Output(listed, [line for one in listed for line in _described(one)])


def _changed(running: Running, changes: dict[str, str]) -> list[_Policy]:
    from paymentsdk.sandbox import Policies

    try:
        # What makes no sense is found here, before anybody is asked.
        Policies().merged(changes)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    running.ask(dict[str, object], "PATCH", "policies", changes)
    return [one for one in running.ask(list[_Policy], "GET", "policies") if one.name in changes]


def _listed(running: Running) -> list[_Policy]:
    """Ask a sandbox; where none is named and none runs, list what a new one begins with: then is when people ask."""
    try:
        return running.ask(list[_Policy], "GET", "policies")
    except SandboxError as error:
        if running.named or isinstance(error, NoResponseError):
            raise
    from paymentsdk.sandbox import describe_policies

    print(f"no sandbox runs on {running.url}; these are the defaults", file=sys.stderr)
    return msgspec.convert(describe_policies(), list[_Policy], from_attributes=True)


def _described(policy: _Policy) -> Iterable[str]:
    others = ", ".join(str(value) for value in policy.allowed if value != policy.value)
    yield f"{policy.name}={policy.value}" + (f"  (or {others})" if others else "")
    yield f"    {policy.description}"


# --- advance -----------------------------------------------------------------------------------------------------


class _Happened(Struct):
    """What fell due while the clock moved."""

    at: str
    kind: str
    id: str


class _Clock(Struct):
    """What time it is."""

    now: str
    frozen: bool
    happened: list[_Happened]


def _advance(running: Running, options: argparse.Namespace) -> Output:
    clock = running.ask(_Clock, "POST", "clock/advance", {"duration": options.duration})
    happened = [f"{one.at}  {one.kind}  {one.id}" for one in clock.happened]
    return Output(clock, [*happened, f"it is {clock.now}{', and the clock stands still' if clock.frozen else ''}"])
