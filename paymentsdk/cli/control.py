"""``paymentsdk sandbox pay`` and its siblings: what a person does to a sandbox that runs, through its control API."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from argparse import Namespace
    from argparse import _SubParsersAction as SubParsers
    from urllib.error import HTTPError

__all__ = ["DEFAULT_PORT", "add_commands", "count", "pair"]

T = TypeVar("T")

DEFAULT_PORT = 8787
#: Seconds to wait for an answer: everything is on this machine.
_PATIENCE = 10
_PREFERENCE = re.compile(r"[0-9]+-[0-9a-f-]{36}\Z")


class SandboxError(OSError):
    """The sandbox could not be asked, or refused."""


class Running:
    """A sandbox that runs on this machine.

    Args:
        url: Where; ``PAYMENTSDK_BASE_URL`` unless given, or else where ``paymentsdk sandbox`` listens.

    Attributes:
        named: Whether somebody said where it is.
    """

    def __init__(self, url: str | None) -> None:
        said = url or os.environ.get("PAYMENTSDK_BASE_URL")
        self.named: bool = bool(said)
        self._url = (said or f"http://127.0.0.1:{DEFAULT_PORT}").rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise SandboxError(f"{self._url} is no http or https address")

    def ask(self, form: type[T], method: str, path: str, body: object = None) -> T:
        """Ask the control API, and return the answer as *form*.

        Raises:
            SandboxError: Nobody answers there, or it refused.
        """
        from http.client import HTTPException  # noqa: PLC0415 - `paymentsdk --help` does without
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import ProxyHandler, Request, build_opener  # noqa: PLC0415

        content = None if body is None else msgspec.json.encode(body)
        url, headers = f"{self._url}/_sandbox/{path}", {"Content-Type": "application/json"}
        request = Request(url, data=content, headers=headers, method=method)  # noqa: S310 - http or https, see above
        try:
            # A proxy for the rest of the world knows nothing of this machine.
            with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE) as answer:
                return msgspec.json.decode(answer.read(), type=form)
        except HTTPError as error:
            raise SandboxError(_refusal(error)) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise SandboxError(f"no sandbox at {self._url} ({reason}); start one with: paymentsdk sandbox") from None
        except ValueError:
            raise SandboxError(f"what answers at {self._url} is no sandbox") from None


def _refusal(error: HTTPError) -> str:
    with error:
        try:
            said = json.load(error)
            return f"{error.code} {said['code']}: {said['message']}"
        except (ValueError, KeyError, TypeError):
            return f"{error.code} from {error.url}; is it a sandbox?"


class Answer(Struct, frozen=True):
    """What a command came to: as data, and for people."""

    data: object
    lines: Sequence[str]


#: Does what the options ask for with the sandbox.
Command = Callable[[Running, "Namespace"], Answer]


def add_commands(commands: SubParsers[argparse.ArgumentParser]) -> None:
    """Add the commands that ask a sandbox."""
    told = _add(commands, "pay", _pay, "have the buyer pay an order or a preference")
    told.add_argument("what", help="the id of an order or a preference, its code, or its checkout address")
    methods = ("account_money", "credit_card", "debit_card", "prepaid_card")
    told.add_argument("--method", choices=methods, default=methods[0], help=f"paid with (default: {methods[0]})")
    told.add_argument("--reject", action="store_true", help="have the payment rejected")

    told = _add(commands, "policies", _policies, "list the points that the contract leaves open, or decide them")
    told.add_argument("changes", nargs="*", type=pair, metavar="NAME=VALUE", help="decide a point")

    told = _add(commands, "faults", _faults, "list, add and clear what goes wrong")
    told.add_argument("action", nargs="?", choices=("list", "add", "clear"), default="list")
    told.add_argument(
        "details",
        nargs="*",
        help="after `add`: an effect, and NAME=VALUE pairs such as operation=orders.* times=2; after `clear`: the "
        "number of one fault",
    )

    told = _add(commands, "advance", _advance, "move the clock, and say what happened meanwhile")
    told.add_argument("duration", help="an ISO 8601 duration, such as PT20M")


def _add(
    commands: SubParsers[argparse.ArgumentParser], name: str, command: Command, summary: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    parser.add_argument("--url", help=f"the sandbox (default: PAYMENTSDK_BASE_URL, or port {DEFAULT_PORT} here)")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    parser.set_defaults(run=_ask, command=command)
    return parser


def _ask(options: Namespace) -> int:
    # Whoever starts a sandbox with `--port` also says so to find it again, before the command or after `--url`.
    elsewhere = f"http://{options.host}:{options.port}" if options.port != DEFAULT_PORT else None
    answer: Answer = options.command(Running(options.url or elsewhere), options)
    print(msgspec.json.encode(answer.data).decode() if options.json else "\n".join(answer.lines))
    return 0


def pair(text: str) -> tuple[str, str]:
    """Read ``NAME=VALUE``."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def count(text: str) -> int:
    """Read a number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


class _Paid(Struct, omit_defaults=True):
    """As much of an order, or of a merchant order, as people are told."""

    id: int | str
    status: str
    total_amount: str
    currency: str = ""


def _pay(running: Running, options: Namespace) -> Answer:
    from urllib.parse import quote  # noqa: PLC0415

    name = options.what.rstrip("/").rpartition("/")[2]
    noun = "preferences" if _PREFERENCE.match(name) else "orders"
    body = {"payment_method": options.method, "reject": options.reject}
    paid = running.ask(_Paid, "POST", f"{noun}/{quote(name, safe='')}/pay", body)
    return Answer(paid, [f"{paid.id}: {paid.status}, {paid.total_amount} {paid.currency}".rstrip()])


class _Policy(Struct):
    """A point that the contract leaves open, and how it is decided."""

    name: str
    value: object
    allowed: list[object]
    description: str


def _policies(running: Running, options: Namespace) -> Answer:
    """Without a sandbox, list what a new one begins with: before its start is when people ask."""
    if options.changes:
        running.ask(dict[str, object], "PATCH", "policies", dict(options.changes))
    if options.changes or running.named:
        listed = running.ask(list[_Policy], "GET", "policies")
    else:
        from paymentsdk.sandbox import describe_policies  # noqa: PLC0415 - it takes the whole server along

        listed = msgspec.convert(describe_policies(), list[_Policy], from_attributes=True)
    return Answer(listed, [line for one in listed for line in _described(one)])


def _described(policy: _Policy) -> Iterable[str]:
    others = ", ".join(str(value) for value in policy.allowed if value != policy.value)
    yield f"{policy.name}={policy.value}" + (f"  (or {others})" if others else "")
    yield f"    {policy.description}"


class _Fault(Struct):
    """A fault in force."""

    id: int
    seen: int
    hits: int
    rule: dict[str, object]


def _faults(running: Running, options: Namespace) -> Answer:
    match options.action, options.details:
        case "list", []:
            listed = running.ask(list[_Fault], "GET", "faults")
            return Answer(listed, [_in_force(fault) for fault in listed] or ["no faults"])
        case "add", [effect, *details]:
            added = running.ask(_Fault, "POST", "faults", _rule(effect, dict(map(pair, details))))
            return Answer(added, [_in_force(added)])
        case "clear", []:
            return Answer(running.ask(list[_Fault], "DELETE", "faults"), ["no faults"])
        case "clear", [number]:
            gone = running.ask(_Fault, "DELETE", f"faults/{count(number)}")
            return Answer(gone, [f"gone: {_in_force(gone)}"])
        case _:
            raise argparse.ArgumentTypeError("it is `list`, `add EFFECT [NAME=VALUE ...]` or `clear [NUMBER]`")


def _rule(effect: str, details: Mapping[str, str]) -> Struct:
    from paymentsdk.sandbox import FaultRule  # noqa: PLC0415 - it takes the whole server along

    effects = get_args(get_type_hints(FaultRule)["effect"])
    if effect not in effects:
        raise ValueError(f"there is no effect {effect!r}; there are {', '.join(effects)}")
    try:
        # From text, so that `times=3` is a number. What is wrong with it is found here, before anybody is asked.
        return msgspec.convert({"effect": effect, **details}, FaultRule, strict=False)
    except msgspec.ValidationError as error:
        names = ", ".join(name for name in FaultRule.__struct_fields__ if name != "effect")
        raise ValueError(f"{error}; the details of a fault are {names}") from None


def _in_force(fault: _Fault) -> str:
    from paymentsdk.sandbox import FaultRule  # noqa: PLC0415 - as above

    usual = {field.name: field.default for field in msgspec.structs.fields(FaultRule) if field.name != "operation"}
    details = (
        f" {name}={value}" for name, value in fault.rule.items() if name != "effect" and usual.get(name) != value
    )
    return f"{fault.id}: {fault.rule['effect']}{''.join(details)}  (hit {fault.hits} of {fault.seen} requests)"


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


def _advance(running: Running, options: Namespace) -> Answer:
    clock = running.ask(_Clock, "POST", "clock/advance", {"duration": options.duration})
    happened = [f"{one.at}  {one.kind}  {one.id}" for one in clock.happened]
    return Answer(clock, [*happened, f"it is {clock.now}{', and the clock stands still' if clock.frozen else ''}"])
