"""The commands for operations of a platform: reads, and writes that take an idempotency key.

A write without a key has no command, because repeating the command would repeat the write.
"""

from __future__ import annotations

import asyncio
import os
import sys
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import msgspec

from paymentsdk._codec.type_walk import rows_of
from paymentsdk._contract.identity import undeclared
from paymentsdk._resume_point import ResumePoint
from paymentsdk._texts import texts
from paymentsdk.cli._accounts import add_sources, end_at_sigterm, sellers_of
from paymentsdk.cli._output import ProgressLines, Rows, counted, flush, say
from paymentsdk.cli._parsing import (
    DONE,
    FAILED,
    IN_DOUBT,
    MISUSED,
    Commands,
    account_name,
    add_parser,
    count,
    file,
    resume_point,
)
from paymentsdk.errors import OutcomeUnknown, PaymentsError, RequestInvalid
from paymentsdk.resources import OPERATIONS

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from paymentsdk._codec.anomaly import Anomaly
    from paymentsdk._contract.operation import Operation
    from paymentsdk._paging.pager import Page, Pager
    from paymentsdk.client import PaymentsClient

    AnyOperation = Operation[object, object]

_ADDRESS, _TOKEN = "PAYMENTSDK_BASE_URL", "PAYMENTSDK_ACCESS_TOKEN"
_POSITION = frozenset({"offset", "limit"})
#: Values that only some commands set: their own options, and the position of a walk.
_LATER = ("body", "idempotency_key", "resume_point", "amount", "payment_id", "within")
#: The form of values of a type.
_FORMS: Mapping[object, str] = {datetime: "a timestamp such as 2026-01-31T09:30:00Z", bool: "true or false"}
#: Ends errors of a write, so that they are not read as the outcome of an earlier command that is in doubt.
_OF_THIS_COMMAND = "; this says nothing of an earlier command with the same key"
_CODES = """\
exit codes:
  0    done
  1    rejected, or the platform could not be reached; a write has done nothing
  2    the command is invalid; nothing was sent
  3    the outcome of a write is unknown: repeat the command with the same key
  130  interrupted: repeat a write with the same key
"""


def add_operations(commands: Commands, command: str | None) -> None:
    """Add a command for each noun, with a nested command for each operation that reads or takes a key.

    Args:
        commands: The commands to which they are added.
        command: The noun in the command line. Only this noun gets its nested commands.
    """
    nouns: dict[str, list[AnyOperation]] = {}
    for operation in OPERATIONS.values():
        if operation.authenticated and (operation.keyed or not operation.writes):
            nouns.setdefault(operation.name.partition(".")[0], []).append(operation)
    for noun, members in nouns.items():
        verbs = ", ".join(operation.name.partition(".")[2] for operation in members)
        parser = add_parser(commands, _option(noun), f"the platform's {noun.replace('_', ' ')}: {verbs}")
        if command == _option(noun):
            within = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
            for operation in members:
                _add(within, operation.name.partition(".")[2], operation)
            if noun == "orders":
                _add_wait(within)


@asynccontextmanager
async def _client(options: Namespace) -> AsyncIterator[PaymentsClient]:
    """Yield the client of the account in *options*, or of the seller in the environment.

    Raises:
        RequestInvalid: A variable is not set, or the account does not exist.
    """
    from paymentsdk.client import PaymentsClient

    if not os.environ.get(_ADDRESS) or not (options.account or os.environ.get(_TOKEN)):
        variable = _TOKEN if os.environ.get(_ADDRESS) else _ADDRESS
        raise RequestInvalid("", f"{variable} is not set. Set {_ADDRESS} and {_TOKEN}, or name an --account.")
    sellers = await sellers_of(options) if options.account else None
    async with PaymentsClient.from_env(accounts=sellers.auth if sellers else None) as client:
        yield client if sellers is None else client.account(sellers.check(options.account))


def _add_wait(commands: Commands) -> None:
    about = "read an order until the buyer has paid or can no longer pay"
    parser = _add(commands, "wait", OPERATIONS["orders.get"], about)
    about = "stop after this many seconds, and print the order even if it is unpaid (default: 900)"
    parser.add_argument("--within", type=count, default=900, metavar="SECONDS", help=about)


def _add(commands: Commands, verb: str, operation: AnyOperation, summary: str | None = None) -> ArgumentParser:
    parser = add_parser(commands, _option(verb), summary or operation.summary, _run, epilog=_CODES)
    add = parser.add_argument
    for placeholder in operation.path_names:
        add(f"path {placeholder}", metavar=placeholder.upper())
    if operation.body is not None:
        about = "the file with the body as JSON, or - for stdin"
        add("--body", type=file, required=operation.body_required, metavar="FILE", help=about)
    if operation.name == "orders.refund":
        add("--amount", metavar="AMOUNT", help="refund this part, such as 10.50 (default: the whole order)")
        add("--payment-id", metavar="ID", help="the payment of which --amount is refunded")
    if operation.keyed:
        about = "your key for this write, such as an order number; repeating the command with it has no second effect"
        add("--idempotency-key", required=True, metavar="KEY", help=about)
    for name, about in _filter_helps(operation):
        add(f"--{_option(name)}", dest=f"filter {name}", metavar="VALUE", help=about)
    add("--account", type=account_name, metavar="NAME", help="the seller, by name in the token store or file")
    add_sources(parser)
    add("--columns", metavar="NAMES", help="the columns of a table or CSV, such as id,status")
    formats = parser.add_mutually_exclusive_group()
    forms = {"table": "print a table (the default)", "json": "print a line of JSON for each row", "csv": "print CSV"}
    for form, about in forms.items():
        formats.add_argument(f"--{form}", action="store_const", const=form, dest="format", help=about)
    if operation.page is not None:
        parser.usage = "%(prog)s [FILTERS] [OPTIONS]"
        add("--limit", type=count, metavar="N", help="at most N rows (default: all)")
        add("--page-size", type=count, metavar="N", help="rows per request")
        about = "the first row; to continue an interrupted search without losing a row, the ROW/TOTAL that it printed"
        add("--start", type=resume_point, metavar="ROW", help=about)
        about = "write all rows, or nothing, to a .parquet, .csv or .jsonl FILE"
        formats.add_argument("--out", type=file, metavar="FILE", help=about)
    parser.set_defaults(operation=operation, format="table", **dict.fromkeys(_LATER))
    return parser


def _option(name: str) -> str:
    return name.replace("_", "-")


def _filters(operation: AnyOperation) -> Mapping[str, object]:
    """Return the names of the filters with their types."""
    hints = get_type_hints(operation.query) if operation.query else {}
    return {name: hint for name, hint in hints.items() if name not in _POSITION}


def _filter_helps(operation: AnyOperation) -> Iterator[tuple[str, str]]:
    """Yield the name and the help of each filter: its docstring in the source, and the form of its values."""
    query = operation.query
    # The filters are declared in a base of the query, which adds the position of a page.
    members = {} if query is None else texts(query.__module__).get(query.__name__.replace("Query", "Filters"), {})
    for name, hint in _filters(operation).items():
        about = members.get(name, "a filter").removesuffix(".")
        meaning = "; ".join(filter(None, (about[:1].lower() + about[1:], _FORMS.get(hint))))
        yield name, meaning.replace("%", "%%")


def _run(options: Namespace) -> int:
    """Make the call in *options*, print its result, and return the exit code."""
    operation: AnyOperation = options.operation
    try:
        # This runs without an event loop, in which the first Ctrl-C would not end the wait for stdin.
        query, body = _query(operation, options), _body(operation, options)
    except RequestInvalid as error:
        return _misused(error, options)
    try:
        return asyncio.run(_call(operation, query, body, options))
    except RequestInvalid as error:
        return _misused(error, options)
    except KeyboardInterrupt:
        if operation.keyed:
            _complain(options, "the outcome is unknown: repeat the command with the same key")
        elif options.resume_point is not None:
            _complain(options, "interrupted")
        raise
    except PaymentsError as error:
        if options.resume_point is not None:  # The point of the error has the latest total.
            options.resume_point = error.resume_point or options.resume_point
        if isinstance(error, OutcomeUnknown):
            _complain(options, str(error))
            return IN_DOUBT
        is_open = operation.keyed and not getattr(error, "settled", False)
        _complain(options, f"{error}{_OF_THIS_COMMAND if is_open else ''}")
        return FAILED


def _misused(error: RequestInvalid, options: Namespace) -> int:
    _complain(options, ": ".join(filter(None, (_place(error.path, options), error.reason))))
    return MISUSED


def _complain(options: Namespace, text: str) -> None:
    point: ResumePoint | None = options.resume_point
    if point is not None:  # `None` before the first page
        # The total is needed because rows move up if the search has fewer rows by then.
        text += f"; continue with --start {point}" + ("" if point.total is None else f"/{point.total}")
    _say(options, text)


def _say(options: Namespace, text: str) -> None:
    say(f"paymentsdk: {options.account}: {text}" if options.account else f"paymentsdk: {text}")


def _place(path: str, options: Namespace) -> str:
    """Return the place of a broken rule in words of the command line."""
    head, _, name = path.partition(".")
    if head == "$path":
        return name.upper()
    if head == "$" and options.amount:
        return "--amount" if name.endswith("amount") else "--payment-id"
    if head == "path":
        return "--out"
    if head in ("$query", "idempotency_key", "page_size", "start"):
        return f"--{_option(name or head)}"
    return f"{'stdin' if options.body == '-' else options.body}: {path}" if path.startswith("$") else path


async def _call(operation: AnyOperation, query: Mapping[str, object], body: object, options: Namespace) -> int:
    end_at_sigterm()
    async with _client(options) as client:
        if operation.page is not None:
            await _search(client, operation, query, options)
            return DONE
        printed = _rows(operation.result, options)
        if options.within is not None:
            order = await client.orders.wait(getattr(options, "path order_id"), within=options.within)
            return _show(order, printed, options)
        result = await client.call(
            operation,
            body,
            query=query or None,
            idempotency_key=options.idempotency_key,
            **{name: getattr(options, f"path {name}") for name in operation.path_names},
        )
    code = _show(result.value, printed, options)
    _warn(result.anomalies, options)
    return code


def _show(value: object, printed: Rows, options: Namespace) -> int:
    try:
        printed.add_only(value)
        flush()
    except (OSError, ValueError) as error:
        if not options.operation.writes:
            raise
        reason = f"the write was done, but its result cannot be printed ({error})"
        _complain(options, f"{reason}: repeat the command with the same key to see it")
        return IN_DOUBT
    return DONE


# --- requests -----------------------------------------------------------------------------------------------------


def _query(operation: AnyOperation, options: Namespace) -> Mapping[str, object]:
    """Return the filters, converted from text to their types.

    Raises:
        RequestInvalid: A value is invalid.
    """
    hints = _filters(operation)
    filters = {name: text for name in hints if (text := getattr(options, f"filter {name}")) is not None}
    if not filters:
        return {}
    from paymentsdk._codec.encode import request_invalid

    try:
        read: Mapping[str, object] = msgspec.convert(filters, operation.query, strict=False)
    except msgspec.ValidationError as error:
        invalid = request_invalid(error)
        name = invalid.path.removeprefix("$.")
        form = _FORMS.get(hints.get(name))
        reason = f"{filters[name]!r} is not {form}" if form else invalid.reason
        raise RequestInvalid(f"$query.{name}", reason) from None
    return read


def _body(operation: AnyOperation, options: Namespace) -> object:
    """Return the checked body from the file or stdin.

    Raises:
        RequestInvalid: The body breaks a rule, or has an unknown member, which would otherwise silently be left out.
    """
    if operation.encoder is None:
        return None
    if (options.amount, options.payment_id) != (None, None):  # An empty amount must not refund the whole order.
        return operation.encoder.decode(_refund(options))
    if options.body is None:
        return None
    if options.body == "-" and sys.stdin is None:
        raise RequestInvalid("--body", "there is no stdin")
    try:
        content = sys.stdin.buffer.read() if options.body == "-" else Path(options.body).read_bytes()
    except OSError as error:
        raise RequestInvalid("--body", f"{options.body}: {error.strerror}") from None
    content = content.removeprefix(BOM_UTF8)
    try:
        body = operation.encoder.decode(content)
    except RequestInvalid:
        raise
    except ValueError as error:
        raise RequestInvalid("$", str(error)) from None
    if (unknown := next(undeclared(msgspec.json.decode(content), body, "$"), None)) is not None:
        raise RequestInvalid(unknown, "is not a field of the contract")
    return body


def _refund(options: Namespace) -> bytes:
    """Return the body of the partial refund in *options*."""
    if options.body is not None:
        raise RequestInvalid("--body", "cannot be combined with --amount and --payment-id")
    if not options.amount or not options.payment_id:
        missing = "--payment-id" if options.amount else "--amount"
        raise RequestInvalid(missing, "is missing: a partial refund takes --amount and --payment-id")
    return msgspec.json.encode({"transactions": [{"id": options.payment_id, "amount": options.amount}]})


# --- responses ----------------------------------------------------------------------------------------------------


def _rows(kind: type, options: Namespace) -> Rows:
    return Rows(kind, options.format, options.columns, decimal_strings=options.operation.decimal_strings)


def _warn(anomalies: Sequence[Anomaly], options: Namespace) -> None:
    """Warn that unreadable parts of the responses, such as rows or amounts, were not printed."""
    if anomalies:
        first, number = anomalies[0], len(anomalies) - 1
        more = f"; {number:,} more" if number else ""
        _say(options, f"the response breaks the contract at {first.path}: {first.reason}{more}")


async def _search(
    client: PaymentsClient, operation: AnyOperation, query: Mapping[str, object], options: Namespace
) -> None:
    """Walk the search and print its rows."""
    from paymentsdk._paging.pager import Pager

    walk_options: dict[str, Any] = {"page_size": options.page_size, "start": options.start, **query}
    pager: Pager[object] = Pager(client, operation, **walk_options)
    if options.out is not None:
        await _export(pager, options)
        return
    field = rows_of(operation.result)
    printed = _rows(field[2] if field else operation.result, options)
    rows, most, ended = 0, sys.maxsize if options.limit is None else options.limit, False
    point: ResumePoint | None = None
    anomalies: list[Anomaly] = []
    try:
        async with aclosing(pager.pages()) as walk:
            async for page in walk:
                items = page.items[: most - rows]
                for row in items:
                    printed.add(row)
                rows += len(items)
                anomalies += page.anomalies
                if rows >= most:
                    break
                point = page.resume_point
                if options.format != "table":
                    flush()  # After an interruption, the user continues behind the last row that was written.
                    options.resume_point = point
        ended = True
    finally:
        if ended or rows:  # After an early error, "0 rows" would be wrong.
            printed.end()
            flush()
            options.resume_point = point
        _warn(anomalies, options)


async def _export(pager: Pager[object], options: Namespace) -> None:
    """Write all rows of a search to a file, and print the progress every few seconds."""
    if options.limit is not None or options.columns is not None:
        raise RequestInvalid("--out", "takes all rows and columns: leave out --limit and --columns")
    rows, lines = 0, ProgressLines()
    anomalies: list[Anomaly] = []

    def progress(page: Page[object]) -> None:
        nonlocal rows
        rows += len(page.items)
        anomalies.extend(page.anomalies)
        lines.say(counted(rows, "row") if page.total is None else f"{rows:,} of {counted(page.total, 'row')}")

    number = await pager.export(options.out, progress=progress)
    say(f"{counted(number, 'row')}: {options.out}")
    _warn(anomalies, options)
