"""Measures the cost of decoding a response, and of keeping it.

The responses are an order, a page of 100 merchant orders and a page of 100 invoices. Each has every member that the
contract names. *CPU* is the time from bytes to the value. *CPU while held* is the time for a page while all pages are
kept: the garbage collector then visits them. *bytes held* is the growth of the process per row.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Row, Variant
from benchmarks.models import attrs_class, pydantic_model, struct_with_floats
from paymentsdk import OPERATIONS

BASELINE = "json"
#: Decodes the bytes of a response.
Decode = Callable[[bytes], object]


class Shape(Struct, frozen=True):
    """A kind of response: its operation, a function that makes it, and its number of rows."""

    operation: str
    make: Callable[[int], bytes]
    rows: int


SHAPES = {
    "order": Shape("orders.get", lambda i: payloads.order(f"ORD{i:026d}"), 1),
    "100 merchant orders": Shape("merchant_orders.search", lambda i: payloads.merchant_orders(100, i * 100), 100),
    "100 invoices": Shape("invoices.search", lambda i: payloads.invoices(100, i * 100), 100),
}


def _ours(result: type[Struct], shape: Shape) -> Decode:
    decode = OPERATIONS[shape.operation].decoder.decode
    return lambda body: decode(body)[0]


def _unchecked(result: type[Struct], shape: Shape) -> Decode:
    return msgspec.json.Decoder(result).decode


def _floats(result: type[Struct], shape: Shape) -> Decode:
    return msgspec.json.Decoder(struct_with_floats(result)).decode


def _json(result: type[Struct], shape: Shape) -> Decode:
    return json.loads


def _json_exact(result: type[Struct], shape: Shape) -> Decode:
    return functools.partial(json.loads, parse_float=Decimal)


def _orjson(result: type[Struct], shape: Shape) -> Decode:
    import orjson  # noqa: PLC0415 - an optional peer, like all below

    return orjson.loads


def _untyped(result: type[Struct], shape: Shape) -> Decode:
    return msgspec.json.Decoder().decode


def _pydantic(result: type[Struct], shape: Shape) -> Decode:
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(pydantic_model(result)).validate_json


def _cattrs(result: type[Struct], shape: Shape) -> Decode:
    from cattrs.preconf.orjson import make_converter  # noqa: PLC0415

    converter = make_converter()
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(str(value)))
    converter.register_structure_hook(datetime, lambda value, _: datetime.fromisoformat(value))
    converter.register_structure_hook_func(lambda kind: kind == int | str, lambda value, _: value)
    converter.register_structure_hook_func(lambda kind: kind is object, lambda value, _: value)
    return functools.partial(_structured, converter.loads, attrs_class(result))


def _structured(loads: Callable[[bytes, Any], object], kind: type, body: bytes) -> object:
    return loads(body, kind)


def _stripe(result: type[Struct], shape: Shape) -> Decode:
    from stripe import StripeObject  # noqa: PLC0415

    return lambda body: StripeObject.construct_from(json.loads(body), key="sk_test")


CONTESTANTS: dict[str, Callable[[type[Struct], Shape], Decode]] = {
    "json": _json,
    "paymentsdk": _ours,
    "our Structs, unchecked": _unchecked,
    "our Structs, floats": _floats,
    "json, exact amounts": _json_exact,
    "orjson": _orjson,
    "msgspec, untyped": _untyped,
    "pydantic": _pydantic,
    "cattrs": _cattrs,
    "stripe objects": _stripe,
}


def decoder(contestant: str, shape: str) -> Decode:
    """Return the decoder of *contestant* for the response *shape*.

    Raises:
        ImportError: The library of the contestant is not installed.
    """
    spec = SHAPES[shape]
    return CONTESTANTS[contestant](cast(type[Struct], OPERATIONS[spec.operation].result), spec)


def run(options: Options) -> Result:
    """Measure every contestant with every response."""
    variants, notes = [], []
    names = [name for name in CONTESTANTS if not options.only or name in (*options.only, BASELINE)]
    for shape, spec in SHAPES.items():
        body = spec.make(0)
        for name in names:
            try:
                decode = decoder(name, shape)
            except ImportError as error:
                notes.append(f"{name} was left out: {error}")
                continue
            variants.append(Variant({"contestant": name, "answer": shape}, functools.partial(_repeat, decode, body)))
    with harness.on_core(harness.cores()[0]):
        rows = harness.interleave(variants, options)
        _add_held(rows, options)
    notes += [
        (
            "pydantic and cattrs decode the same members into the same types (Decimal, datetime, enums): their models "
            "are made from ours; json, orjson and untyped msgspec stop at dicts and floats, which no amount may be"
        ),
        (
            '"our Structs, unchecked" leaves out our own look at the amounts, and "our Structs, floats" has floats for '
            "them besides: the differences are what that look and exactness cost"
        ),
        "bytes held: growth of a fresh process's resident memory over the kept pages, per row",
        "bytes per response: " + ", ".join(f"{shape} {len(spec.make(0)):,}" for shape, spec in SHAPES.items()),
    ]
    return harness.result(
        "bench_decode", rows, options, baseline={"contestant": BASELINE}, notes=list(dict.fromkeys(notes))
    )


def _repeat(decode: Decode, body: bytes, count: int) -> None:
    for _ in range(count):
        decode(body)


def _add_held(rows: list[Row], options: Options) -> None:
    """Measure kept pages. Each sample has a new process, since a process does not return used memory."""
    shuffle = random.Random(options.seed).shuffle  # noqa: S311 - an order, not a secret
    paged = [row for row in rows if SHAPES[str(row.key["answer"])].rows > 1]
    pages = 5 if options.quick else 200
    for _ in range(1 if options.quick else 2):
        shuffle(paged)
        for row in paged:
            for metric, value in _held(str(row.key["contestant"]), str(row.key["answer"]), pages).items():
                row.samples.setdefault(metric, []).append(value)


def _held(contestant: str, shape: str, pages: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.bench_decode", "--held", contestant, shape, str(pages)]
    process = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parent.parent)  # noqa: S603
    return msgspec.json.decode(process.stdout, type=dict[str, float])


def hold(contestant: str, shape: str, pages: int) -> dict[str, float]:
    """Keep *pages* decoded pages; return the CPU time per page and the growth of the process per row."""
    decode, spec = decoder(contestant, shape), SHAPES[shape]
    # Two pages build decoders, interned texts and the arenas of the allocator.
    pages_held: list[object] = [decode(spec.make(i)) for i in range(2)]
    before, cpu = harness.resident(), 0.0
    for body in _bodies(spec, pages):
        start = time.process_time()
        pages_held.append(decode(body))
        cpu += time.process_time() - start
    return {"held_us": cpu / pages * harness.MICRO, "bytes": (harness.resident() - before) / (pages * spec.rows)}


def _bodies(shape: Shape, pages: int) -> Iterator[bytes]:
    # One page at a time: the bytes of the responses must not count as memory of the decoded values.
    return (shape.make(i + 2) for i in range(pages))


def main() -> None:
    """Measure, print and keep the results."""
    line: argparse.ArgumentParser = harness.parser(__doc__)
    line.add_argument("--held", nargs=3, metavar=("CONTESTANT", "ANSWER", "PAGES"), help=argparse.SUPPRESS)
    arguments = line.parse_args()
    if arguments.held:
        contestant, shape, pages = arguments.held
        sys.stdout.buffer.write(msgspec.json.encode(hold(contestant, shape, int(pages))))
        return
    harness.finish(run(harness.options(arguments)), arguments)


if __name__ == "__main__":
    main()
