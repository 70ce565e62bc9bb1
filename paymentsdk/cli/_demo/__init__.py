"""``paymentsdk demo``: an end-to-end demo over real HTTP on this machine."""

from __future__ import annotations

import asyncio
import io
import sys

import msgspec

from paymentsdk.cli._demo.job import run
from paymentsdk.cli._demo.report import lines
from paymentsdk.cli._output import Output, counted, print_output
from paymentsdk.errors import PaymentsError
from paymentsdk.resources.orders import Order
from paymentsdk.sandbox._pages.routes import INSTALL


def demonstrate(*, orders: int, concurrency: int, as_json: bool) -> int:
    """Run the job, print what it came to, and return the exit code: 0 only if all books agree.

    Raises:
        PaymentsError: A call failed for good; the books were not compared.
    """
    _say(f"{counted(orders, 'order')}, {counted(concurrency, 'call')} at a time, against a sandbox on this machine")
    try:
        report = asyncio.run(run(orders=orders, concurrency=concurrency, say=_say, show=_show))
    except PaymentsError as error:
        raise PaymentsError(f"the job came to its end early: {type(error).__name__}: {error}") from error
    data = {"clean": report.clean, **msgspec.structs.asdict(report)}
    return print_output(Output(data, ["", *lines(report)], code=0 if report.clean else 1), as_json=as_json)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show(order: Order) -> None:
    """Show the code of *order*, as a point of sale would."""
    code = order.qr_data or ""
    _say(f"\nscan to pay {order.total_amount} {order.currency} ({order.external_reference}): {code}\n{picture(code)}")


def picture(code: str) -> str:
    """Return *code* as a QR code for a terminal, or a line that says how to get one."""
    try:
        import segno
    except ImportError:
        return f"(to see it as a QR code, {INSTALL})\n"
    drawn = io.StringIO()
    segno.make(code, error="m").terminal(drawn, compact=True)
    return drawn.getvalue()
