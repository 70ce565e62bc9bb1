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
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct

from benchmarks import harness, payloads
from benchmarks.harness import Options, Result, Row, Variant
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
    "order": Shape("orders.get", lambda i: payloads.response("order", f"ORD{i:026d}"), 1),
    "100 merchant orders": Shape("merchant_orders.search", lambda i: payloads.merchant_orders(100, i * 100), 100),
    "100 invoices": Shape("invoices.search", lambda i: payloads.invoices(100, i * 100), 100),
}


def _ours(result: type[Struct], shape: Shape) -> Decode:
    """Return our decoder."""
    decode = OPERATIONS[shape.operation].decoder.decode
    return lambda body: decode(body)[0]


def _json(result: type[Struct], shape: Shape) -> Decode:
    """Return the decoder of the standard library."""
    return json.loads


def _orjson(result: type[Struct], shape: Shape) -> Decode:
    """Return the decoder of orjson."""
    import orjson  # noqa: PLC0415 - an optional peer, like all below

    return orjson.loads


@functools.cache
def _model(struct: type[Struct]) -> type:
    """Return *struct* as a pydantic model with the same members and types, which would drift if written by hand."""
    import pydantic  # noqa: PLC0415

    hints = get_type_hints(struct)
    fields: dict[str, Any] = {
        field.name: (_in_pydantic(hints[field.name]), ... if field.default is NODEFAULT else field.default)
        for field in msgspec.structs.fields(struct)
    }
    model: type = pydantic.create_model(struct.__name__, **fields)
    return model


def _in_pydantic(hint: Any) -> Any:
    """Return *hint* with a model for every Struct in it."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _model(hint)
    origin, arguments = get_origin(hint), tuple(map(_in_pydantic, get_args(hint)))
    if origin in (Union, types.UnionType):
        return Union[arguments]  # noqa: UP007 - made at run time
    return hint if origin is None else origin[arguments]


def _pydantic(result: type[Struct], shape: Shape) -> Decode:
    """Return the decoder of pydantic."""
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(_model(result)).validate_json


CONTESTANTS: dict[str, Callable[[type[Struct], Shape], Decode]] = {
    "json": _json,
    "paymentsdk": _ours,
    "orjson": _orjson,
    "pydantic": _pydantic,
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
        "pydantic decodes the same members into the same types; json and orjson stop at dicts and floats",
        "bytes held: growth of a fresh process's resident memory over the kept pages, per row",
        payloads.sizes(),
    ]
    return harness.result(
        "bench_decode", rows, options, baseline={"contestant": BASELINE}, notes=list(dict.fromkeys(notes))
    )


def _repeat(decode: Decode, body: bytes, count: int) -> None:
    """Decode *body* so many times."""
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
    """Measure kept pages in a new process."""
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
    """Yield the pages to keep."""
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
