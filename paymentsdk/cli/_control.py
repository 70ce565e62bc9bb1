"""``paymentsdk sandbox pay``, ``policies``, ``faults`` and ``advance``: what a person does to a sandbox that runs."""

from __future__ import annotations

import asyncio
import os
import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import TypeVar, get_args
from urllib.parse import quote

import msgspec
from msgspec import Struct

from paymentsdk._call.settings import check_base_url
from paymentsdk.cli._output import Output, counted, print_output, say
from paymentsdk.cli._parsing import Commands, add_parser, count, pair, pairs
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.orders import Order
from paymentsdk.sandbox import FaultRule, Policy, describe_policies
from paymentsdk.sandbox._buyer import PaymentMethod
from paymentsdk.sandbox._faults import COMMON, EFFECTS, FaultState
from paymentsdk.transports.aiohttp import AiohttpTransport
from paymentsdk.transports.base import Request, SendFailed

T = TypeVar("T")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
_VARIABLE = "PAYMENTSDK_BASE_URL"
#: Seconds to be let in: everything is on this machine.
_TO_CONNECT = 10.0
#: Seconds to wait for what was asked for: ten years of invoices take their time.
_TO_RESPOND = 600.0
_OK = 200
_PREFERENCE = re.compile(r"[0-9]+-[0-9a-f-]{36}\Z")
#: The details of a fault, with their defaults.
_DETAILS = {field.name: field.default for field in msgspec.structs.fields(FaultRule)}


class NoSandboxError(OSError):
    """Nobody is there to ask."""


class _Rejection(Struct):
    """What the control API says when it rejects."""

    code: str
    message: str


class Running(Struct, frozen=True):
    """A sandbox that runs on this machine."""

    url: str
    """Where it is."""
    named: bool = True
    """Whether somebody said where."""

    def ask(self, form: type[T], method: str, path: str, body: object = None) -> T:
        """Ask the control API, and return the response as *form*.

        Raises:
            NoSandboxError: Nobody is there.
            OSError: It has not responded, or it rejected.
        """
        content = b"" if body is None else msgspec.json.encode(body)
        try:
            status, told = asyncio.run(_sent(method, f"{self.url}/_sandbox/{path}", content))
        except SendFailed as error:
            if error.sent:
                words = f"the sandbox at {self.url} has not responded ({error}), and may have done what was asked"
                raise OSError(words) from None
            hint = f"start one with: paymentsdk sandbox, or say where it is with --url or {_VARIABLE}"
            raise NoSandboxError(f"no sandbox at {self.url} ({error}); {hint}") from None
        try:
            if status == _OK:
                return msgspec.json.decode(told, type=form)
            rejection = msgspec.json.decode(told, type=_Rejection)
        except ValueError:
            raise OSError(f"what responds at {self.url} is not a sandbox (status {status})") from None
        raise OSError(f"{status} {rejection.code}: {rejection.message}")


async def _sent(method: str, url: str, content: bytes) -> tuple[int, bytes]:
    transport, headers = AiohttpTransport(), {"Content-Type": "application/json"}
    try:
        async with asyncio.timeout(_TO_RESPOND):
            response = await transport.send(Request(method, url, headers, content, connect_timeout=_TO_CONNECT))
    except TimeoutError:
        raise SendFailed(f"within {_TO_RESPOND:.0f} s") from None
    finally:
        await transport.aclose()
    return response.status, response.body


# --- the commands ------------------------------------------------------------------------------------------------


def add_control(commands: Commands) -> None:
    """Add the commands that ask a sandbox that runs."""
    pay = _add(commands, "pay", _pay, "have the buyer pay an order or a preference")
    what = "the id of an order or a preference, its code, its checkout address, or a point of sale"
    pay.add_argument("what", type=_order_name, metavar="ORDER", help=what)
    how, methods = "pay with one of %(choices)s (default: %(default)s)", get_args(PaymentMethod)
    pay.add_argument("--method", metavar="METHOD", choices=methods, default="account_money", help=how)
    pay.add_argument("--reject", action="store_true", help="have the payment rejected")

    policies = _add(commands, "policies", _policies, "list the points that the contract leaves open, or decide them")
    policies.add_argument("changes", nargs="*", type=pair, metavar="NAME=VALUE", help="decide a point")

    faults = _add(commands, "faults", _list_faults, "list, add and clear what goes wrong")
    actions = faults.add_subparsers(title="commands", metavar="[COMMAND]")
    _add(actions, "list", _list_faults, "list the faults in force, as `faults` does by itself")
    added = _add(actions, "add", _add_fault, "put a fault in force")
    added.epilog = faults.epilog = _describe_effects()
    added.add_argument("effect", metavar="EFFECT", choices=EFFECTS, help="what happens")
    details = "where, how often and how, such as operation=orders.* times=2"
    added.add_argument("details", nargs="*", default=[], type=pair, metavar="NAME=VALUE", help=details)
    cleared = _add(actions, "clear", _clear_faults, "take one fault out of force, or all")
    cleared.add_argument("number", nargs="?", type=count, metavar="NUMBER", help="the number of one fault")

    advance = _add(commands, "advance", _advance, "move the clock, and say what happened meanwhile")
    duration = "an ISO 8601 duration of weeks to seconds, such as PT20M or P30D"
    advance.add_argument("duration", metavar="DURATION", help=duration)


def _add(
    commands: Commands, name: str, command: Callable[[Running, Namespace], Output], summary: str
) -> ArgumentParser:
    parser = add_parser(commands, name, summary, _run)
    # Without defaults: a command within a command would set what was said before it back to them.
    where = f"the sandbox (default: {_VARIABLE}, or port {DEFAULT_PORT} here)"
    parser.add_argument("--url", type=_address, default=SUPPRESS, help=where)
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print the response as JSON")
    parser.set_defaults(command=command)
    return parser


def _run(options: Namespace) -> int:
    """Do the command in *options* to the sandbox that they name, print what it came to, and return the exit code."""
    _reject_settings(options)
    named = "url" in options or _VARIABLE in os.environ
    url = options.url if "url" in options else _default_address()
    output: Output = options.command(Running(url, named), options)
    return print_output(output, as_json="json" in options)


def _reject_settings(options: Namespace) -> None:
    for one in options.settings:
        if getattr(options, one.dest) != one.default:
            asked = f"`{options.parser.prog}` asks one that runs: its own options stand behind it"
            raise ArgumentTypeError(f"{one.option_strings[0]} is for starting a sandbox, and {asked}")


def _default_address() -> str:
    try:
        return _address(os.environ.get(_VARIABLE) or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}")
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{_VARIABLE}: {error}") from None


def _address(text: str) -> str:
    try:
        return check_base_url(text, allow_http=True)
    except RequestInvalid:
        words = f"{text!r} is not an http or https address such as http://127.0.0.1:8787"
        raise ArgumentTypeError(words) from None


# --- pay ---------------------------------------------------------------------------------------------------------


def _order_name(text: str) -> str:
    """Read the name of an order or a preference: as it is, or the last part of an address, without its query."""
    # A page that was paid at says in its address how that came out.
    name = text.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not name:
        raise ArgumentTypeError(f"{text!r} names no order")
    return name


def _pay(running: Running, options: Namespace) -> Output:
    name, path = options.what, f"{quote(options.what, safe='')}/pay"
    body = {"payment_method": options.method, "outcome": "rejected" if options.reject else "approved"}
    sale: Order | MerchantOrder
    if _PREFERENCE.match(name):
        sale = running.ask(MerchantOrder, "POST", f"preferences/{path}", body)
        what, paid = f"preference {name}, merchant order {sale.id}", sale.paid_amount or 0
        currency = next((item.currency_id for item in sale.items or () if item.currency_id), "")
        # What is sent costs more than what is sold.
        due = (sale.total_amount or 0) + (sale.shipping_cost or 0)
    else:
        sale = running.ask(Order, "POST", f"orders/{path}", body)
        what, paid = sale.id, (sale.payment and sale.payment.paid_amount) or 0
        currency, due = sale.currency or "", sale.total_amount or 0
    amounts = {"total_amount": f"{sale.total_amount or 0:.2f}", "paid_amount": f"{paid:.2f}", "currency": currency}
    rejected = f"the payment was rejected, {due:.2f} {currency} to pay"
    said = rejected if options.reject else f"{paid:.2f} {currency} paid"
    return Output({"id": sale.id, "status": sale.status, **amounts}, [f"{what}: {sale.status}, {said}"])


# --- policies ----------------------------------------------------------------------------------------------------


def _policies(running: Running, options: Namespace) -> Output:
    if changes := pairs(options.changes):
        running.ask(dict[str, object], "PATCH", "policies", changes)
    try:
        listed = [one for one in running.ask(list[Policy], "GET", "policies") if not changes or one.name in changes]
    except NoSandboxError:
        if running.named:
            raise
        # Before one is started is when people ask.
        say(f"no sandbox runs on {running.url}; these are the defaults")
        listed = list(describe_policies())
    lines = []
    for one in listed:
        others = ", ".join(str(value) for value in one.allowed if value != one.value)
        lines += [f"{one.name}={one.value}{others and f'  (or {others})'}", f"    {one.description}"]
    return Output(listed, lines)


# --- faults ------------------------------------------------------------------------------------------------------


def _describe_effects() -> str:
    width = max(map(len, EFFECTS))
    lines = ["effects, and the details that only they take, with their defaults:"]
    for name, effect in EFFECTS.items():
        details = ", ".join(one if _DETAILS[one] is None else f"{one}={_DETAILS[one]:g}" for one in effect.members)
        lines.append(f"  {name:<{width}}  {effect.words}{details and f' ({details})'}")
    lines += ["", "details of every effect:", *(f"  {name:<{width}}  {words}" for name, words in COMMON.items())]
    return "\n".join(lines)


def _told(fault: FaultState) -> str:
    usual = {**_DETAILS, "effect": fault.rule.effect, "operation": None}
    rule = msgspec.structs.asdict(fault.rule)
    details = "".join(f" {name}={value}" for name, value in rule.items() if usual[name] != value)
    return f"{fault.id}: {fault.rule.effect}{details}  (hit {fault.hits} of {counted(fault.seen, 'request')})"


def _list_faults(running: Running, _: Namespace) -> Output:
    listed = running.ask(list[FaultState], "GET", "faults")
    return Output(listed, list(map(_told, listed)) or ["no faults"])


def _add_fault(running: Running, options: Namespace) -> Output:
    try:
        # What makes no sense is found here, before anybody is asked; from text, so that `times=3` is a number.
        rule = msgspec.convert(pairs([("effect", options.effect), *options.details]), FaultRule, strict=False)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    added = running.ask(FaultState, "POST", "faults", rule)
    return Output(added, [_told(added)])


def _clear_faults(running: Running, options: Namespace) -> Output:
    if options.number is None:
        return Output(running.ask(list[FaultState], "DELETE", "faults"), ["no faults"])
    gone = running.ask(FaultState, "DELETE", f"faults/{options.number}")
    return Output(gone, [f"gone: {_told(gone)}"])


# --- advance -----------------------------------------------------------------------------------------------------


class _Clock(Struct):
    """What time it is, and what fell due while the clock moved."""

    now: str
    frozen: bool
    happened: list[dict[str, object]]


def _advance(running: Running, options: Namespace) -> Output:
    clock = running.ask(_Clock, "POST", "clock/advance", {"duration": options.duration})
    lines = [f"{one['at']}  {one['kind']}  {one['id']}" for one in clock.happened]
    return Output(clock, [*lines, f"it is {clock.now}{', and the clock stands still' if clock.frozen else ''}"])
