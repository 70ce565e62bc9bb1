"""``paymentsdk sandbox faults``: what goes wrong in a sandbox that runs."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from paymentsdk.cli._arguments import Choices, count, pair, pairs
from paymentsdk.cli._command import add_command
from paymentsdk.cli._output import Output
from paymentsdk.cli._parser import Commands, Parser
from paymentsdk.cli._running import Running
from paymentsdk.cli._words import counted, wrapped

if TYPE_CHECKING:
    from paymentsdk.sandbox import FaultRule


def add_faults(commands: Commands) -> None:
    """Add ``faults``, with commands of its own."""
    faults = add_command(commands, "faults", _list, "list, add and clear what goes wrong")
    faults.explain = _explain
    faults.usage = "%(prog)s [-h] [--url URL] [--json] [COMMAND ...]"
    actions = faults.add_subparsers(title="commands", metavar="COMMAND", prog=faults.prog)

    add_command(actions, "list", _list, "list the faults in force, as `faults` does by itself")

    added = add_command(actions, "add", _add, "put a fault in force")
    added.explain = _explain
    added.add_argument("effect", metavar="EFFECT", choices=Choices(_effects), help="what happens")
    added.add_argument(
        "details",
        nargs="*",
        default=[],
        type=pair,
        metavar="NAME=VALUE",
        help="where, how often and how, such as operation=orders.* times=2",
    )

    cleared = add_command(actions, "clear", _clear, "take one fault out of force, or all")
    cleared.add_argument("number", nargs="?", type=count, metavar="NUMBER", help="the number of one fault")


def _explain(parser: Parser) -> None:
    """End the help with every effect; the effects come with the whole server."""
    parser.epilog = "\n".join(_explained())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _explained() -> Iterable[str]:
    from paymentsdk.sandbox import FaultRule
    from paymentsdk.sandbox._faults import COMMON, EFFECTS

    usual = {field.name: field.default for field in msgspec.structs.fields(FaultRule)}

    def detail(name: str) -> str:
        return name if usual[name] is None else f"{name}={usual[name]:g}"

    width = max(map(len, EFFECTS))
    yield "effects, and the details that only they take, with their defaults:"
    for name, effect in EFFECTS.items():
        members = f" ({', '.join(map(detail, effect.members))})" if effect.members else ""
        yield wrapped(f"  {name:<{width}}  {effect.words}{members}", further=width + 4)
    yield ""
    yield "details of every effect:"
    for member, words in COMMON.items():
        yield wrapped(f"  {member:<{width}}  {words}", further=width + 4)


def _effects() -> Iterable[str]:
    from paymentsdk.sandbox._faults import EFFECTS

    return EFFECTS


class _Fault(Struct):
    """A fault in force."""

    id: int
    seen: int
    hits: int
    rule: dict[str, object]


def _list(running: Running, _: argparse.Namespace) -> Output:
    listed = running.ask(list[_Fault], "GET", "faults")
    return Output(listed, [_in_force(fault) for fault in listed] or ["no faults"])


def _add(running: Running, options: argparse.Namespace) -> Output:
    added = running.ask(_Fault, "POST", "faults", _rule(options.effect, pairs(options.details)))
    return Output(added, [_in_force(added)])


def _clear(running: Running, options: argparse.Namespace) -> Output:
    if options.number is None:
        return Output(running.ask(list[_Fault], "DELETE", "faults"), ["no faults"])
    gone = running.ask(_Fault, "DELETE", f"faults/{options.number}")
    return Output(gone, [f"gone: {_in_force(gone)}"])


def _rule(effect: str, details: Mapping[str, str]) -> FaultRule:
    from paymentsdk.sandbox import FaultRule
    from paymentsdk.sandbox._policies import describe_mismatch

    # What makes no sense is found here, before anybody is asked.
    if problem := describe_mismatch(FaultRule, details, one="detail", many="details", leave_out=("effect",)):
        raise argparse.ArgumentTypeError(problem)
    try:
        # From text, so that `times=3` is a number.
        return msgspec.convert({"effect": effect, **details}, FaultRule, strict=False)
    except ValueError as error:  # Each detail would do by itself.
        raise argparse.ArgumentTypeError(str(error)) from None


def _in_force(fault: _Fault) -> str:
    from paymentsdk.sandbox import FaultRule

    usual = {field.name: field.default for field in msgspec.structs.fields(FaultRule) if field.name != "operation"}
    details = (
        f" {name}={value}" for name, value in fault.rule.items() if name != "effect" and usual.get(name) != value
    )
    seen = counted(fault.seen, "request")
    return f"{fault.id}: {fault.rule['effect']}{''.join(details)}  (hit {fault.hits} of {seen})"
