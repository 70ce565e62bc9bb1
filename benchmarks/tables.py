"""Writes results as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.harness import Result, Row, matching, median, ratio, spread

#: The heading and the number of decimals of a metric.
METRICS: Mapping[str, tuple[str, int]] = {
    "cpu_us": ("CPU, µs", 1),
    "wall_us": ("time, µs", 1),
    "wall_ms": ("time, ms", 1),
    "cpu_ms": ("CPU, ms", 1),
    "bytes": ("bytes held", 0),
    "held_us": ("CPU while held, µs", 1),
    "rss_mib": ("memory, MiB", 1),
    "to_ideal": ("of the ideal", 2),
    "net_ms": ("net CPU, ms", 1),
    "refused_pct": ("429s, %", 2),
    "failed": ("failed calls", 0),
    "goodput": ("goodput", 2),
    "jain": ("Jain", 2),
    "p50_ms": ("p50, ms", 1),
    "calls_s": ("calls/s", 0),
    "steps": ("forced writes or round trips", 2),
    "calls_to_bar": ("calls to bar", 2),
    "engine_us": ("of which engine, µs", 1),
    "journal_us": ("journal, µs", 1),
    "kinstructions": ("thousand instructions", 1),
    "kib": ("memory per call, KiB", 1),
    "right": ("right", 0),
    "in_doubt": ("in doubt", 0),
    "not_sent": ("not sent", 0),
    "wrong": ("wrong", 0),
    "rows_per_cpu_s": ("orders per CPU second", 0),
    "rows_s": ("orders/s", 0),
    "peak_mib": ("peak memory, MiB", 0),
    "serving_mib": ("of which before it begins, MiB", 0),
    "calls": ("calls", 0),
    "calls_to_ideal": ("calls of the ideal", 2),
    "first_call_s": ("first call, s", 2),
}
#: Metrics with another form in tables.
_HIDDEN = {"wall_us", "server_us", "load"}


def page(result: Result) -> str:
    """Return the machine, the versions, the table and the notes."""
    lines = [f"### {result.bench}", "", about(result), "", table(result)]
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def about(result: Result) -> str:
    """Return a paragraph with the date and the machine of the numbers."""
    machine = result.machine
    packages = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    load = f"load {machine['load']} at the end; " if machine.get("load") else ""
    settings = ", ".join(
        f"{name} {value}" for name, value in result.settings.items() if value not in (None, "", (), [])
    )
    return (
        f"{result.started[:10]}; {machine['cpu']}, {machine['cores']} cores, {machine['system']}; {machine['python']}; "
        f"{load}{packages}. Settings: {settings}. Median, with the quartiles in brackets."
    )


def table(result: Result) -> str:
    """Return one line per row, with its ratio to the baseline under the same conditions."""
    if not result.rows:
        return "(nothing was measured)"
    names = list(dict.fromkeys(name for row in result.rows for name in row.key))
    metrics = list(dict.fromkeys(metric for row in result.rows for metric in row.samples))
    columns = [metric for metric in metrics if metric not in _HIDDEN]
    heads = [*names, *(METRICS.get(metric, (metric, 2))[0] for metric in columns)]
    further = {head: cell for head, (needed, cell) in _FURTHER.items() if needed <= set(metrics)}
    heads += further
    heads += [f"x {' '.join(map(str, result.baseline.values()))}"] if result.baseline else []
    lines = [_line(heads), _line(["---"] * len(names) + ["--:"] * (len(heads) - len(names)))]
    for row in result.rows:
        cells = [_number(row.samples.get(metric, ()), METRICS.get(metric, ("", 2))[1]) for metric in columns]
        cells += [cell(row.samples) if _FURTHER[head][0] <= set(row.samples) else "" for head, cell in further.items()]
        if result.baseline:
            base = matching(result.rows, {**row.key, **result.baseline})
            cells.append(f"{ratio(row, base[0], columns[0]):.2f}" if base and columns[0] in row.samples else "")
        lines.append(_line([*(str(row.key.get(name, "")) for name in names), *cells]))
    return "\n".join(lines)


#: Columns of several metrics, or without quartiles: their metrics, and their format.
_FURTHER: Mapping[str, tuple[set[str], Callable[[Mapping[str, Sequence[float]]], str]]] = {
    "calls/s": ({"wall_us"}, lambda samples: f"{1e6 / median(samples['wall_us']):,.0f}"),
    "server busy": (
        {"wall_us", "server_us"},
        lambda samples: f"{median([s / w for s, w in zip(samples['server_us'], samples['wall_us'], strict=True)]):.0%}",
    ),
    "load": ({"load"}, lambda samples: f"{median(samples['load']):.1f}"),
}


def _number(samples: Sequence[float], decimals: int) -> str:
    """Return the median and the quartiles as text."""
    if not samples:
        return ""
    low, high = spread(samples)
    middle = f"{median(samples):,.{decimals}f}"
    return middle if low == high else f"{middle} ({low:,.{decimals}f}-{high:,.{decimals}f})"


def _line(cells: Sequence[str]) -> str:
    """Return one line of a table."""
    return f"| {' | '.join(cells)} |"


def pivot(result: Result, down: str, across: Sequence[str], metric: str = "cpu_us") -> str:
    """Return one line per value of the key's member *down*, and one column per combination of the members *across*.

    A cell has the median of *metric*, and in brackets its ratio to the baseline under the same conditions.
    """
    lines = list(dict.fromkeys(row.key[down] for row in result.rows))
    columns = list(dict.fromkeys(tuple(row.key[name] for name in across) for row in result.rows))
    heads = [", ".join(f"{name} {value}" for name, value in zip(across, column, strict=True)) for column in columns]
    text = [_line([down, *heads]), _line(["---", *["--:"] * len(heads)])]
    for name in lines:
        cells = []
        for column in columns:
            rows = matching(_under(result, across, column), {down: name})
            cells.append(cell(rows[0], result, metric) if rows else "")
        text.append(_line([str(name), *cells]))
    if "load" in result.rows[0].samples:
        same = ([s for row in _under(result, across, column) for s in row.samples["load"]] for column in columns)
        text.append(_line(["load of the machine", *(f"{median(load):.1f}" for load in same)]))
    return "\n".join(text)


def _under(result: Result, across: Sequence[str], column: Sequence[str | int]) -> list[Row]:
    """Return the rows of *column*."""
    return matching(result.rows, dict(zip(across, column, strict=True)))


def cell(row: Row, result: Result, metric: str) -> str:
    """Return the median of *metric*, and its ratio to the baseline, if any, in brackets."""
    value = f"{median(row.samples[metric]):,.{METRICS.get(metric, ('', 2))[1]}f}"
    base = matching(result.rows, {**row.key, **result.baseline}) if result.baseline else []
    return f"{value} ({ratio(row, base[0], metric):.2f})" if base else value
