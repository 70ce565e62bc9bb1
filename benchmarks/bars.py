"""The bars: the promised bounds of the measured numbers, as data.

A bar names its rows (*of*), the rows to compare them with (*to*: the members of the key that differ), and the allowed
bounds. A bar holds only if it holds for every row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from benchmarks.harness import Key, Result, Row, matching, median, ratios


class Bar(Struct, frozen=True, kw_only=True):
    """One promised bound.

    Attributes:
        what: The promise, for people.
        bench: The name of the result.
        of: The rows of the bar: all rows whose key has these members.
        to: The rows to compare with: the same key with these members.
        metric: The metric.
        take: The ``ratio`` of both rows, or only the ``value``.
        most: The highest value that holds.
        least: The lowest value that holds.
        unit: The unit of a value.
    """

    what: str
    bench: str
    of: Sequence[Key]
    to: Key = {}
    metric: str = "cpu_us"
    take: Literal["ratio", "value"] = "ratio"
    most: float | None = None
    least: float | None = None
    unit: str = ""

    @property
    def promise(self) -> str:
        """The bar in words."""
        sign, bound = ("<=", self.most) if self.least is None else (">=", self.least)
        return f"{sign} {bound:g}{self.unit}"

    def holds(self, value: float) -> bool:
        """Return whether *value* keeps the promise."""
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)


class Reading(Struct, frozen=True):
    """The measurement for one condition of a bar.

    Attributes:
        where: The condition.
        value: The median over the rounds.
        holds: Whether the value keeps the promise.
    """

    where: str
    value: float
    holds: bool


def readings(bar: Bar, results: Mapping[str, Result]) -> list[Reading]:
    """Return the measurements of *bar* in *results*; empty if the bench was not run for these rows."""
    result = results.get(bar.bench)
    if result is None:
        return []
    return [reading for row in _about(bar, result) if (reading := _read(bar, row, result.rows)) is not None]


def _about(bar: Bar, result: Result) -> list[Row]:
    return [row for key in bar.of for row in matching(result.rows, key)]


def _read(bar: Bar, row: Row, rows: Sequence[Row]) -> Reading | None:
    base = matching(rows, {**row.key, **bar.to})
    if not base or bar.metric not in row.samples:
        return None
    match bar.take:
        case "ratio":
            value = median(ratios(row, base[0], bar.metric))
        case "value":
            value = median(row.samples[bar.metric])
    return Reading(_where(row, bar), value, bar.holds(value))


def _where(row: Row, bar: Bar) -> str:
    """Return the conditions that distinguish *row* from the other rows of its bar."""
    varying = [
        name
        for name in row.key
        if len({str(key.get(name)) for key in bar.of}) > 1 or all(name not in key for key in bar.of)
    ]
    return ", ".join(f"{name} {row.key[name]}" for name in varying if name not in bar.to)


_PLAIN: Key = {"loop": "asyncio", "tls": "no"}
_TLS: Key = {"loop": "asyncio", "tls": "yes"}
_WIDTHS = (16, 128)


def _calls(
    contestant: str, *conditions: Key, methods: Sequence[str] = ("GET", "POST"), widths: Sequence[int] = _WIDTHS
) -> tuple[Key, ...]:
    """Return the rows of *contestant*, by default over plain HTTP."""
    return tuple(
        {"contestant": contestant, "method": method, "in flight": width, **condition}
        for condition in conditions or (_PLAIN,)
        for method in methods
        for width in widths
    )


def _instructions(text: str, contestant: str, method: str, most: float, over: str | None = None) -> Bar:
    """Return a bar on the instructions of a call: in thousands, or as a ratio *over* another contestant."""
    return Bar(
        what=f"{text}, {method}",
        bench="instructions",
        of=({"contestant": contestant, "method": method},),
        to={} if over is None else {"contestant": over},
        metric="kinstructions",
        take="value" if over is None else "ratio",
        most=most,
    )


#: A loaded machine hardly changes the number of instructions. The CPU time of the default transport is no good bar: it
#: changes with the page faults of aiohttp.
_INSTRUCTIONS = tuple(
    _instructions(text, contestant, method, most, over)
    for text, contestant, over, bars in (
        ("thousand instructions of a call, http11", "paymentsdk, http11", None, (160, 205)),
        (
            "the price of safety: http11 over the bare transport of 0.2",
            "paymentsdk, http11",
            "http11 of 0.2, no engine",
            (1.15, 1.30),
        ),
        ("paymentsdk over bare tuned aiohttp, instructions", "paymentsdk", "bare aiohttp", (1.14, 1.23)),
    )
    for method, most in zip(("GET", "POST"), bars, strict=True)
)


def _over_bare(contestant: str, method: str, most: float, *conditions: Key, widths: Sequence[int] = _WIDTHS) -> Bar:
    """Return a bar on the cost of a call over bare aiohttp."""
    suffix = " over TLS" if conditions == (_TLS,) else ""
    if len(widths) == 1:
        suffix += f", {widths[0]} in flight"
    return Bar(
        what=f"{contestant}, {method}{suffix}, over bare tuned aiohttp",
        bench="bench_call",
        of=_calls(contestant, *conditions, methods=(method,), widths=widths),
        to={"contestant": "bare aiohttp"},
        most=most,
    )


_PAGES = ("100 merchant orders", "100 invoices")


def _typed(contestant: str) -> tuple[Key, ...]:
    return tuple({"contestant": contestant, "answer": page} for page in _PAGES)


_LIMITED = tuple({"load": f"{count} callers", "flow": "adaptive"} for count in (16, 64, 256))
_BESIDE_BATCH: Key = {"load": "1 beside 64 batch", "flow": "adaptive"}


def _reconcile(
    text: str,
    part: str,
    metric: str,
    *of: Key,
    to: Key | None = None,
    most: float | None = None,
    least: float | None = None,
    unit: str = "",
) -> Bar:
    """Return a bar of a reconciliation: on a value, or on a ratio to the rows *to*."""
    return Bar(
        what=text,
        bench=f"bench_reconcile{part}",
        of=of,
        to=to or {},
        metric=metric,
        take="value" if to is None else "ratio",
        most=most,
        least=least,
        unit=unit,
    )


def _journal(journal: str, text: str, metric: str, *widths: int, most: float, unit: str = "") -> Bar:
    """Return a bar of a journaled call."""
    return Bar(
        what=f"a journaled call, {journal}{text}",
        bench="bench_journal",
        of=tuple({"journal": journal, "in flight": width} for width in widths),
        metric=metric,
        take="value",
        most=most,
        unit=unit,
    )


_JOURNAL = (
    _journal("SQLite", ", one at a time: forced writes", "steps", 1, most=2.2),
    _journal("PostgreSQL", ", one at a time: round trips", "steps", 1, most=2.5),
    _journal("SQLite", ", the engine included", "cpu_us", *_WIDTHS, most=60, unit=" µs"),
    _journal("PostgreSQL", ", the engine included", "cpu_us", *_WIDTHS, most=80, unit=" µs"),
    Bar(
        what="journaled calls/s, over 5,000 (PostgreSQL, 128 in flight: 8,000; SQLite, 16: or what the disk allows)",
        bench="bench_journal",
        of=tuple({"journal": journal, "in flight": width} for journal in ("SQLite", "PostgreSQL") for width in _WIDTHS),
        metric="calls_to_bar",
        take="value",
        least=1,
    ),
)

_DIFF: Key = {"what": "diff", "orders": "1,000,000"}
_WALK: Key = {"what": "walk", "orders": "200,000"}
_UNLIMITED: Key = {"limit": 0}
_LIMIT: Key = {"limit": 100}
_DASK: tuple[Key, Key] = ({"executor": "Dask, 1 worker"}, {"executor": "Dask, 2 workers"})
_RECONCILE = (
    _reconcile(
        "peak memory of a walk over 200,000 orders, imports included", "", "peak_mib", _WALK, most=200, unit=" MiB"
    ),
    _reconcile("calls of a walk over 200,000 orders, over full pages alone", "", "calls_to_ideal", _WALK, most=1.15),
    _reconcile("a walk over ten times the orders: CPU", "", "cpu_ms", _WALK, to={"orders": "20,000"}, most=11),
    _reconcile("a walk over ten times the orders: memory", "", "peak_mib", _WALK, to={"orders": "20,000"}, most=1.2),
    _reconcile("a walk that waits, over the ideal", "_waiting", "to_ideal", _UNLIMITED, most=1.25),
    _reconcile("429s of a walk at 100 calls per second", "_waiting", "refused_pct", _LIMIT, most=3, unit=" %"),
    _reconcile(
        "goodput of a walk at 100 calls per second, of what the platform would serve",
        "_waiting",
        "goodput",
        _LIMIT,
        least=0.9,
    ),
    _reconcile("after kill -9: the first call", "_killed", "first_call_s", {}, most=1, unit=" s"),
    _reconcile("after kill -9: what is done again", "_killed", "s_again", {}, most=1, unit=" s"),
    *(
        _reconcile(f"1,000 walks over drifting platforms: {words}", "_model", name, {"runs": 1_000}, most=0)
        for name, words in (("lost", "rows lost"), ("twice", "rows twice"), ("loud", "windows falsely not whole"))
    ),
    _reconcile(
        "a million compared with a million, over reading both", "_diff", "cpu_ms", _DIFF, to={"what": "read"}, most=6
    ),
    _reconcile("peak memory of comparing a million with a million", "_diff", "peak_mib", _DIFF, most=450, unit=" MiB"),
    _reconcile("wrong outcomes of comparing a million with a million", "_diff", "wrong", _DIFF, most=0),
    _reconcile(
        "CPU of dlt over a walk, same server", "_loaded", "cpu_ms", {"what": "dlt"}, to={"what": "socket"}, least=10
    ),
    _reconcile("two Dask workers over one", "_executors", "rows_s", _DASK[1], to=_DASK[0], least=1.8),
    _reconcile(
        "two workers over one, in round trips alone",
        "_executors",
        "rows_s",
        {"executor": "2 waiting"},
        to={"executor": "1 waiting"},
        least=1.8,
    ),
    _reconcile(
        "an event loop over one Dask worker", "_executors", "rows_s", {"executor": "event loop"}, to=_DASK[0], most=1.25
    ),
)

BARS = (
    *_INSTRUCTIONS,
    _over_bare("paymentsdk, http11", "GET", 0.38, widths=(16,)),
    _over_bare("paymentsdk, http11", "POST", 0.46, widths=(16,)),
    _over_bare("paymentsdk, http11", "GET", 0.35, widths=(128,)),
    _over_bare("paymentsdk, http11", "POST", 0.45, widths=(128,)),
    _over_bare("paymentsdk, http11", "GET", 0.48, _TLS),
    _over_bare("paymentsdk, http11", "POST", 0.58, _TLS),
    _over_bare("paymentsdk, http11", "GET", 0.62, widths=(1,)),
    Bar(
        what="stripe-python over aiohttp, over ours on Http11Transport",
        bench="bench_call",
        of=_calls("stripe, aiohttp"),
        to={"contestant": "paymentsdk, http11"},
        least=8,
    ),
    Bar(
        what="stripe-python over aiohttp, over ours on Http11Transport, over TLS",
        bench="bench_call",
        of=_calls("stripe, aiohttp", _TLS),
        to={"contestant": "paymentsdk, http11"},
        least=6.5,
    ),
    Bar(
        what="stripe-python over aiohttp, over ours on the default transport",
        bench="bench_call",
        of=_calls("stripe, aiohttp", _PLAIN, _TLS),
        to={"contestant": "paymentsdk"},
        least=3,
    ),
    Bar(
        what="openai-python with its aiohttp extra, over ours on Http11Transport",
        bench="bench_call",
        of=_calls("openai, aiohttp"),
        to={"contestant": "paymentsdk, http11"},
        least=13,
    ),
    Bar(
        what="like for like: aiohttp's connector and parser by hand, no checks, over ours on Http11Transport",
        bench="bench_call",
        of=_calls("aiohttp by hand", methods=("GET",)),
        to={"contestant": "paymentsdk, http11"},
        least=0.85,
    ),
    Bar(
        what="calls per second of one core with 64 in flight, Http11Transport over bare aiohttp",
        bench="bench_connections",
        of=({"what": "saturation", "contestant": "bare aiohttp"},),
        to={"contestant": "paymentsdk, http11"},
        least=2.2,
    ),
    Bar(
        what="memory per call with 10,000 in flight",
        bench="bench_connections",
        of=({"what": "memory"},),
        metric="kib",
        take="value",
        most=6,
        unit=" KiB",
    ),
    Bar(
        what='wrong responses, resends and false "not sent" in 10,000 races with a server that closes',
        bench="bench_connections",
        of=({"what": "races"},),
        metric="wrong",
        take="value",
        most=0,
    ),
    Bar(
        what="a typed page over orjson, untyped",
        bench="bench_decode",
        of=_typed("paymentsdk"),
        to={"contestant": "orjson"},
        most=1.05,
    ),
    Bar(
        what="a typed order over orjson, untyped",
        bench="bench_decode",
        of=({"contestant": "paymentsdk", "answer": "order"},),
        to={"contestant": "orjson"},
        most=1.35,
    ),
    Bar(
        what="a page in pydantic v2, over ours",
        bench="bench_decode",
        of=_typed("pydantic"),
        to={"contestant": "paymentsdk"},
        least=4,
    ),
    Bar(
        what="memory per held merchant order, over pydantic",
        bench="bench_decode",
        of=({"contestant": "paymentsdk", "answer": "100 merchant orders"},),
        to={"contestant": "pydantic"},
        metric="bytes",
        most=0.45,
    ),
    Bar(
        what="200 pages at 20 ms one by one, over 8 in flight",
        bench="bench_pages",
        of=({"latency, ms": 20, "prefetch": 1},),
        to={"prefetch": 8},
        metric="wall_ms",
        least=5,
    ),
    Bar(
        what="200 pages, 8 in flight, over the ideal",
        bench="bench_pages",
        of=({"latency, ms": 20, "prefetch": 8}, {"latency, ms": 100, "prefetch": 8}),
        metric="to_ideal",
        take="value",
        most=1.3,
    ),
    Bar(
        what="`from paymentsdk import PaymentsClient` over `import asyncio`, whole process",
        bench="bench_import",
        of=({"import": "paymentsdk"},),
        to={"import": "asyncio"},
        metric="cpu_ms",
        most=1.5,
    ),
    Bar(
        what="`from paymentsdk import PaymentsClient, Http11Transport` over `import asyncio`",
        bench="bench_import",
        of=({"import": "paymentsdk, and http11"},),
        to={"import": "asyncio"},
        metric="cpu_ms",
        most=1.6,
    ),
    Bar(
        what="CPU per call with 128 in flight, over 16",
        bench="bench_call",
        of=tuple({"contestant": "paymentsdk", "method": m, "in flight": 128, **_PLAIN} for m in ("GET", "POST")),
        to={"in flight": 16},
        most=1.4,
    ),
    Bar(
        what="start of the sandbox, in process",
        bench="bench_sandbox",
        of=({"what": "start"},),
        metric="wall_ms",
        take="value",
        most=50,
        unit=" ms",
    ),
    Bar(
        what="create, pay and refund an order in the sandbox, in process",
        bench="bench_sandbox",
        of=({"what": "create, pay, refund"},),
        metric="wall_ms",
        take="value",
        most=5,
        unit=" ms",
    ),
    Bar(
        what="429s at 100 requests per second, with flow control that learns the rate",
        bench="bench_flow",
        of=_LIMITED,
        metric="refused_pct",
        take="value",
        most=2,
        unit=" %",
    ),
    Bar(
        what="calls that fail at 100 requests per second",
        bench="bench_flow",
        of=(*_LIMITED, _BESIDE_BATCH),
        metric="failed",
        take="value",
        most=0,
    ),
    Bar(
        what="goodput at 100 requests per second, of what the platform would serve",
        bench="bench_flow",
        of=_LIMITED,
        metric="goodput",
        take="value",
        least=0.9,
    ),
    Bar(
        what="fairness among 20 sellers on one pool, one with half of the load (Jain)",
        bench="bench_flow",
        of=({"load": "20 sellers, one with half", "flow": "adaptive, 16 at once"},),
        metric="jain",
        take="value",
        least=0.95,
    ),
    Bar(
        what="an interactive call beside 64 batch callers, p50",
        bench="bench_flow",
        of=(_BESIDE_BATCH,),
        metric="p50_ms",
        take="value",
        most=50,
        unit=" ms",
    ),
    Bar(
        what="verifying a notification of 1 KiB, over the public library",
        bench="bench_webhooks",
        of=({"contestant": "paymentsdk"},),
        to={"contestant": "standardwebhooks"},
        most=1.0,
    ),
    *_JOURNAL,
    *_RECONCILE,
)
