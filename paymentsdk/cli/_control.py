"""The commands for a running sandbox: ``pay``, ``faults``, ``listen`` and so on, and ``control`` for any request."""

from __future__ import annotations

import os
import re
import signal
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import TypeVar, get_args
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

import msgspec
from msgspec import Struct

from paymentsdk._call.settings import check_base_url
from paymentsdk._files import whole
from paymentsdk._texts import texts
from paymentsdk.cli._output import Output, counted, print_output, spoken
from paymentsdk.cli._parsing import Commands, add_parser, count, file, pair, pairs
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources.merchant_orders import MerchantOrder
from paymentsdk.resources.orders import Order
from paymentsdk.sandbox import Delivery, FaultRule, Policy, Tenant, Webhook
from paymentsdk.sandbox._buyer import PaymentMethod
from paymentsdk.sandbox._commands import COMMANDS
from paymentsdk.sandbox._control_forms import MovedClock, Rejection
from paymentsdk.sandbox._faults import DETAILS, EFFECTS, FaultState
from paymentsdk.sandbox._wire import encode

T = TypeVar("T")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
_VARIABLE = "PAYMENTSDK_BASE_URL"
#: Seconds to wait for a response. Moving the clock by ten years takes this long, because of the invoices.
_TIMEOUT = 600.0
_PREFERENCE = re.compile(r"[0-9]+-[0-9a-f-]{36}\Z")
#: The details of a fault, with their defaults.
_DETAILS = {field.name: field.default for field in msgspec.structs.fields(FaultRule)}
#: Requests to this machine do not go through a proxy.
_opener = build_opener(ProxyHandler({}))


class Running(Struct, frozen=True):
    """A running sandbox."""

    url: str
    """The address of the sandbox."""

    def ask(self, form: type[T], method: str, path: str, body: object = None) -> T:
        """Send a request to the control API, and return the response as *form*.

        Raises:
            OSError: No sandbox is there, it has not responded, or it rejected the request.
        """
        content = self.send(method, path, None if body is None else msgspec.json.encode(body))
        try:
            return msgspec.json.decode(content, type=form)
        except ValueError:
            raise OSError(f"the server at {self.url} is not a sandbox") from None

    def send(self, method: str, path: str, content: bytes | None = None) -> bytes:
        """Send bytes to the control API, and return the bytes of the response.

        Raises:
            OSError: No sandbox is there, it has not responded, or it rejected the request.
        """
        request = Request(f"{self.url}/_sandbox/{path}", content, {"Content-Type": "application/json"}, method=method)  # noqa: S310 - http or https
        try:
            with _opener.open(request, timeout=_TIMEOUT) as response:
                body: bytes = response.read()
                return body
        except HTTPError as error:
            with error:
                raise self._rejection(error) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ConnectionRefusedError):
                hint = f"start one with: paymentsdk sandbox, or give its address with --url or {_VARIABLE}"
                raise OSError(f"no sandbox at {self.url} ({reason}); {hint}") from None
            words = f"the sandbox at {self.url} has not responded ({reason}); it may have done the request"
            raise OSError(words) from None

    def _rejection(self, error: HTTPError) -> OSError:
        try:
            rejection = msgspec.json.decode(error.read(), type=Rejection)
        except ValueError:
            return OSError(f"the server at {self.url} is not a sandbox (status {error.code})")
        return OSError(f"{error.code} {rejection.code}: {rejection.message}")


# --- the commands ------------------------------------------------------------------------------------------------


def add_control(commands: Commands) -> None:
    """Add the commands for a running sandbox."""
    pay = _add(commands, "pay", _pay, "pay an order or a preference as the buyer")
    name = "the id of an order or a preference, its code, its checkout address, or a point of sale"
    pay.add_argument("name", type=_order_name, metavar="ORDER", help=name)
    pay.add_argument("--method", choices=get_args(PaymentMethod), default="account_money", help="default: %(default)s")
    pay.add_argument("--reject", action="store_true", help="make the payment be rejected")

    policies = _add(commands, "policies", _policies, "list or change the choices that the contract leaves open")
    policies.add_argument("changes", nargs="*", type=pair, metavar="NAME=VALUE", help="a policy and its new value")

    _add_faults(commands)
    _add_deliveries(commands)
    snapshot = add_parser(commands, "snapshot", "save everything to a file, or load it")
    actions = snapshot.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command, summary in (
        ("save", _save, "save the whole state of the sandbox, with all credentials, to a file"),
        ("load", _load, "restore the state from a file"),
    ):
        _add(actions, name, command, summary).add_argument("file", type=file, metavar="FILE", help="the file")

    advance = _add(commands, "advance", _advance, "move the clock, and list the events that fell due")
    advance.add_argument("duration", metavar="DURATION", help="an ISO 8601 duration, such as PT20M or P30D")

    control = _add(commands, "control", _control, "send any request of the control API, and print the response")
    control.epilog = "requests:\n" + "\n".join(
        f"  {_usage(name)}\n      {_REQUESTS[name][2].summary}" for name in _REQUESTS
    )
    control.add_argument("request", metavar="REQUEST", choices=_REQUESTS, help="one of the requests below")
    words = "the ids in capitals below, then NAME=VALUE; write lists and objects as JSON"
    control.add_argument("words", nargs="*", metavar="VALUE", help=words)


def _add_faults(commands: Commands) -> None:
    faults = _add(commands, "faults", _list_faults, "list, add and clear faults")
    actions = faults.add_subparsers(title="commands", metavar="[COMMAND]")
    _add(actions, "list", _list_faults, "list the active faults, as `faults` without a command does")
    add = _add(actions, "add", _add_fault, "add a fault")
    add.epilog = faults.epilog = "\n".join(_effects())
    add.add_argument("effect", metavar="EFFECT", choices=EFFECTS, help="the effect of the fault")
    add.add_argument("details", nargs="*", default=[], type=pair, metavar="NAME=VALUE", help="details, such as times=2")
    clear = _add(actions, "clear", _clear_faults, "remove one fault, or all")
    clear.add_argument("number", nargs="?", type=count, metavar="NUMBER", help="the number of the fault (default: all)")


def _add_deliveries(commands: Commands) -> None:
    deliveries = _add(commands, "deliveries", _list_deliveries, "list the deliveries of notifications, or repeat one")
    actions = deliveries.add_subparsers(title="commands", metavar="[COMMAND]")
    redeliver = _add(actions, "redeliver", _redeliver, "send a notification again")
    redeliver.add_argument("delivery", metavar="ID", help="the id of the delivery")

    listen = _add(commands, "listen", _listen, "send notifications to your program, and print each, until Ctrl-C")
    listen.add_argument("--forward-to", required=True, metavar="URL", help="the address of your program")
    listen.add_argument("--topics", default="orders", help="such as orders,payments,merchant_orders (default: orders)")
    form = "the secret: whsec_ and the base64 of 24 to 64 bytes (default: a new secret)"
    listen.add_argument("--secret", default="", help=form)


def _add(
    commands: Commands, name: str, command: Callable[[Running, Namespace], Output], summary: str
) -> ArgumentParser:
    parser = add_parser(commands, name, summary, _run)
    # The options have no defaults: those of a nested command would overwrite values that were given before it.
    url_help = f"the address of the sandbox (default: {_VARIABLE}, or http://{DEFAULT_HOST}:{DEFAULT_PORT})"
    parser.add_argument("--url", type=_address, default=SUPPRESS, help=url_help)
    parser.add_argument("--json", action="store_true", default=SUPPRESS, help="print the response as JSON")
    parser.set_defaults(command=command)
    return parser


def _run(options: Namespace) -> int:
    """Run the command in *options* on the sandbox that they name, print its result, and return the exit code."""
    _reject_settings(options)
    output: Output = options.command(Running(options.url if "url" in options else _default_address()), options)
    return print_output(output, as_json="json" in options)


def _reject_settings(options: Namespace) -> None:
    for setting in options.settings:
        if getattr(options, setting.dest) != setting.default:
            hint = f"`{options.parser.prog}` needs a running one; write its own options after it"
            raise ArgumentTypeError(f"{setting.option_strings[0]} is for starting a sandbox, but {hint}")


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


def _order_name(text: str) -> str:
    """Return the name of an order or a preference: *text* itself, or the last part of an address."""
    # After a payment, the address of the page has the result in its query.
    name = text.partition("?")[0].rstrip("/").rpartition("/")[2]
    if not name:
        raise ArgumentTypeError(f"{text!r} does not name an order")
    return name


def _pay(running: Running, options: Namespace) -> Output:
    name, path = options.name, f"{quote(options.name, safe='')}/pay"
    body = {"payment_method": options.method, "outcome": "rejected" if options.reject else "approved"}
    sale: Order | MerchantOrder
    if _PREFERENCE.match(name):
        sale = running.ask(MerchantOrder, "POST", f"preferences/{path}", body)
        title, paid = f"preference {name}, merchant order {sale.id}", sale.paid_amount or 0
        currency = next((item.currency_id for item in sale.items or () if item.currency_id), "")
    else:
        sale = running.ask(Order, "POST", f"orders/{path}", body)
        title, currency = sale.id, sale.currency or ""
        paid = (sale.payment and sale.payment.paid_amount) or 0
    result = "the payment was rejected" if options.reject else f"{paid:.2f} {currency} paid"
    return Output(msgspec.json.decode(encode(sale, decimal_strings=True)), [f"{title}: {sale.status}, {result}"])


def _policies(running: Running, options: Namespace) -> Output:
    if changes := pairs(options.changes):
        running.ask(dict[str, object], "PATCH", "policies", changes)
    policies = running.ask(list[Policy], "GET", "policies")
    policies = [policy for policy in policies if not changes or policy.name in changes]
    lines = []
    for policy in policies:
        alternatives = ", ".join(str(value) for value in policy.allowed if value != policy.value)
        lines.append(f"{policy.name}={policy.value}{alternatives and f'  (or {alternatives})'}")
        lines.append(f"    {policy.description}")
    return Output(policies, lines)


# --- faults ------------------------------------------------------------------------------------------------------


def _effects() -> Iterator[str]:
    """Yield the lines of the help about effects and their details."""
    width = max(map(len, EFFECTS))
    yield "effects, with their own details and defaults:"
    for name, effect in EFFECTS.items():
        members = {member: _DETAILS[member] for member in effect.members}
        details = ", ".join(member if value is None else f"{member}={value:g}" for member, value in members.items())
        yield f"  {name:<{width}}  {effect.words}{details and f' ({details})'}"
    yield "\ndetails of all effects:"
    for detail, words in texts(FaultRule.__module__).get(FaultRule.__name__, {}).items():
        if detail not in {"effect", *DETAILS}:
            yield f"  {detail:<{width}}  {words.partition('. ')[0].rstrip('.')}"


def _line(fault: FaultState) -> str:
    usual = {**_DETAILS, "effect": fault.rule.effect, "operation": None}
    rule = msgspec.structs.asdict(fault.rule)
    details = "".join(f" {name}={value}" for name, value in rule.items() if usual[name] != value)
    return f"{fault.id}: {fault.rule.effect}{details}  (hit {fault.hits} of {counted(fault.seen, 'request')})"


def _list_faults(running: Running, _: Namespace) -> Output:
    faults = running.ask(list[FaultState], "GET", "faults")
    return Output(faults, list(map(_line, faults)) or ["no faults"])


def _add_fault(running: Running, options: Namespace) -> Output:
    rule = _body(FaultRule, pairs([("effect", options.effect), *options.details]))
    fault = running.ask(FaultState, "POST", "faults", rule)
    return Output(fault, [_line(fault)])


def _clear_faults(running: Running, options: Namespace) -> Output:
    if options.number is None:
        return Output(running.ask(list[FaultState], "DELETE", "faults"), ["no faults"])
    fault = running.ask(FaultState, "DELETE", f"faults/{options.number}")
    return Output(fault, [f"removed: {_line(fault)}"])


# --- notifications -----------------------------------------------------------------------------------------------


def _delivery_line(delivery: Delivery) -> str:
    result = delivery.response_status or delivery.error or ""
    change = f"{delivery.topic}.{delivery.action}  {delivery.resource}"
    return f"{delivery.id}  {delivery.at:%Y-%m-%d %H:%M:%S}  {change}  {delivery.status}  {result}".rstrip()


def _list_deliveries(running: Running, _: Namespace) -> Output:
    deliveries = running.ask(list[Delivery], "GET", "deliveries")
    return Output(deliveries, list(map(_delivery_line, deliveries)) or ["no notifications"])


def _redeliver(running: Running, options: Namespace) -> Output:
    delivery = running.ask(Delivery, "POST", f"deliveries/{quote(options.delivery, safe='')}/redeliver")
    return Output(delivery, [_delivery_line(delivery)])


def _listen(running: Running, options: Namespace) -> Output:
    """Register a webhook, print its deliveries until Ctrl-C or the end of the sandbox, and remove it."""
    path = f"tenants/{running.ask(list[Tenant], 'GET', 'tenants')[0].user_id}/webhooks"
    registration = {"url": options.forward_to, "topics": options.topics.split(","), "secret": options.secret}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _opener.open(f"{running.url}/_sandbox/events", timeout=_TIMEOUT) as lines:
        webhook = running.ask(Webhook, "POST", path, registration)
        try:
            with suppress(KeyboardInterrupt, HTTPException):
                print_output(Output(webhook, [f"secret: {webhook.secret}"]), as_json="json" in options)
                for kind, line in pairwise(lines):
                    if kind == b"event: deliveries\n":
                        delivery = msgspec.convert(msgspec.json.decode(line[6:])["document"], Delivery)
                        if delivery.webhook == webhook.id and (delivery.attempts or not delivery.due):
                            print_output(Output(delivery, [_delivery_line(delivery)]), as_json="json" in options)
        finally:
            with suppress(OSError):  # The sandbox may have stopped.
                running.ask(Webhook, "DELETE", f"webhooks/{webhook.id}")
    return Output(webhook, ["the webhook is removed"])


# --- snapshots ---------------------------------------------------------------------------------------------------


def _save(running: Running, options: Namespace) -> Output:
    content = running.send("GET", "snapshot/file")
    with whole(Path(options.file), private=True) as unfinished:
        unfinished.write_bytes(content)
    return Output({"file": options.file, "bytes": len(content)}, [f"saved to {options.file}"])


def _load(running: Running, options: Namespace) -> Output:
    content = running.send("POST", "snapshot/file", Path(options.file).read_bytes())
    return Output(msgspec.json.decode(content), [f"loaded from {options.file}"])


def _advance(running: Running, options: Namespace) -> Output:
    clock = running.ask(MovedClock, "POST", "clock/advance", {"duration": options.duration})
    lines = [f"{spoken(event.at)}  {event.kind}  {event.id}" for event in clock.happened]
    return Output(clock, [*lines, f"it is {spoken(clock.now)}{', and the clock stands still' if clock.frozen else ''}"])


# --- any request -------------------------------------------------------------------------------------------------

_PLACEHOLDER = re.compile(r"{(\w+)}")
_LINES = "application/x-ndjson"
#: The method, the path and the declaration of each request, by its name on the command line.
_REQUESTS = {
    request.name.replace("_", "-"): (method, path, request)
    for (method, path), request in COMMANDS.items()
    if path != "snapshot/file"  # `snapshot save` and `load` read and write files.
}


def _usage(name: str) -> str:
    """Return the usage of a request on the command line."""
    _, path, request = _REQUESTS[name]
    ids = (placeholder.upper() for placeholder in _PLACEHOLDER.findall(path))
    # A body that is no Struct has any members.
    members = getattr(request.body, "__struct_encode_fields__", () if request.body is None else ("NAME",))
    return " ".join([name, *ids, *(f"{member}=" for member in (*request.parameters, *members))])


def _control(running: Running, options: Namespace) -> Output:
    method, path, request = _REQUESTS[options.request]
    names = _PLACEHOLDER.findall(path)
    ids = dict(zip(names, (quote(word, safe="") for word in options.words), strict=False))
    if len(ids) < len(names):
        raise ArgumentTypeError(f"an id is missing; the request is: {_usage(options.request)}")
    values = pairs(pair(word) for word in options.words[len(names) :])
    query = {name: values.pop(name) for name in request.parameters if name in values}
    body = _body(request.body, values, f"; the request is: {_usage(options.request)}")
    target = path.format(**ids) + (f"?{urlencode(query)}" if query else "")
    response: object
    if request.media == _LINES:
        response = msgspec.json.Decoder().decode_lines(running.send(method, target))
    else:
        response = running.ask(object, method, target, body)
    return Output(response, msgspec.json.format(msgspec.json.encode(response), indent=2).decode().splitlines())


def _body(form: type[T] | None, values: dict[str, str], usage: str = "") -> object:
    """Return the body with *values*. Numbers and booleans are converted from text, lists and objects from JSON."""
    if form is None and values:
        raise ArgumentTypeError(f"it takes no {min(values)}{usage}")
    try:
        read = {name: msgspec.json.decode(text) if text[:1] in ("[", "{") else text for name, text in values.items()}
        return None if form is None else msgspec.convert(read, form, strict=False)
    except ValueError as error:
        raise ArgumentTypeError(f"{error}{usage}") from None
