"""The export of a search to a Parquet, CSV or JSON lines file, which is written whole or not at all.

Parquet and CSV have the columns that the Struct of a row declares. JSON lines has the entries as the platform sent
them, so the walk keeps the bytes of each entry together with its row.
"""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from decimal import Decimal
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw, Struct, inspect, structs

from paymentsdk._codec.decode import replace_lone_surrogates
from paymentsdk._codec.type_walk import alternatives
from paymentsdk._contract.identity import reader, struct_at
from paymentsdk._files import whole
from paymentsdk._futures import in_thread
from paymentsdk.errors import RequestInvalid, install_extra

if TYPE_CHECKING:
    from paymentsdk._call.response import Result
    from paymentsdk._contract.operation import Operation, PageShape

#: Writes rows to the file.
_Write: TypeAlias = Callable[[Sequence[object]], None]
#: Changes a page of a shape before the walk takes it.
PageChange: TypeAlias = "Callable[[PageShape, Result[object]], Result[object]]"
#: Converts a value to the form that pyarrow accepts.
_Convert: TypeAlias = Callable[[Any], object]

PARQUET, CSV, JSON_LINES = ".parquet", ".csv", ".jsonl"
#: Rows per write, which are a row group of Parquet.
_BATCH = 10_000
#: Digits of an amount, and how many of them are decimals. No currency has more.
_DIGITS, _DECIMALS = 36, 18
#: Characters that begin a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _suffix(path: str | PathLike[str]) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in (PARQUET, CSV, JSON_LINES):
        raise RequestInvalid("path", f"must end in {PARQUET}, {CSV} or {JSON_LINES}")
    return suffix


class _HasItems(Protocol):
    @property
    def items(self) -> Sequence[object]: ...


P = TypeVar("P", bound=_HasItems)


async def write_pages(
    path: str | PathLike[str],
    operation: Operation[None, object],
    pages: AsyncIterator[P],
    progress: Callable[[P], None] | None,
) -> int:
    """Write the rows of *pages* to *path*, whole or not at all, and return their number.

    Raises:
        ImportError: pyarrow is not installed.
        OSError: The file cannot be written.
        RequestInvalid: The rows are not Structs, so they have no columns.
        ValueError: A value does not fit its column.
    """
    number, batch = 0, list[object]()
    with ExitStack() as stack:
        write = stack.enter_context(_opened(Path(path), operation))
        async for page in pages:
            batch += page.items
            number += len(page.items)
            while len(batch) >= _BATCH:
                await in_thread(write, batch[:_BATCH])
                del batch[:_BATCH]
            if progress is not None:
                progress(_without_entries(page))
        await in_thread(write, batch)
        await in_thread(stack.pop_all().close)  # Closing the file waits for the disk.
    return number


@contextmanager
def _opened(path: Path, operation: Operation[None, object]) -> Iterator[_Write]:
    suffix = _suffix(path)
    columns = [] if suffix == JSON_LINES else list(_columns_of(operation))
    pq: Any = _import_parquet() if suffix == PARQUET else None
    with whole(path) as unfinished:
        if pq is not None:
            tables = _Tables(columns)
            with pq.ParquetWriter(unfinished, tables.schema, compression="zstd") as file:
                yield lambda rows: file.write_table(tables(rows))
        elif suffix == CSV:
            with unfinished.open("w", encoding="utf-8", newline="") as file:
                lines = csv.writer(file)
                lines.writerow(column.name for column in columns)
                yield lambda rows: lines.writerows([csv_field(column.read(row)) for column in columns] for row in rows)
        else:
            with unfinished.open("wb") as file:
                yield lambda rows: file.writelines(map(_line, rows))


# --- JSON lines -------------------------------------------------------------------------------------------------------


class SentRow(Struct, frozen=True):
    """A row together with its entry as the platform sent it. It has all members of the row."""

    row: object
    entry: bytes

    def __getattr__(self, name: str) -> object:
        return getattr(self.row, name)


def page_change(path: str | PathLike[str]) -> PageChange | None:
    """Return the function that turns each row of a page into a `SentRow`; `None` if the format does not need it.

    Raises:
        RequestInvalid: The suffix of *path* is not one of the formats.
    """
    return _with_entries if _suffix(path) == JSON_LINES else None


def _with_entries(shape: PageShape, result: Result[object]) -> Result[object]:
    rows = shape.read(result.value).items
    if not rows:
        return result
    place = shape.places(result.value)[0]
    part = Raw(replace_lone_surrogates(result.raw)[0])
    for name in place.split(".")[1:]:
        part = msgspec.json.decode(part, type=dict[str, Raw])[name]
    dropped = {anomaly.path for anomaly in result.anomalies if anomaly.dropped}
    # If the platform sent an object instead of a list, the object is the only row.
    entries = [part] if bytes(part).startswith(b"{") else msgspec.json.decode(part, type=list[Raw])
    sent: list[bytes] = [bytes(entry) for i, entry in enumerate(entries) if f"{place}[{i}]" not in dropped]
    sent_rows = tuple([SentRow(row, entry) for row, entry in zip(rows, sent, strict=True)])
    return structs.replace(result, value=_replaced(result.value, shape.items.split("."), sent_rows))


def _without_entries(page: P) -> P:
    """Return *page* with plain rows instead of `SentRow`, for the caller's `progress`."""
    rows = tuple([row.row if isinstance(row, SentRow) else row for row in page.items])
    return cast("P", structs.replace(cast("Struct", page), items=rows))


def _replaced(value: Any, path: Sequence[str], rows: object) -> object:  # noqa: ANN401 - a page of any type
    name, below = path[0], path[1:]
    return structs.replace(value, **{name: _replaced(getattr(value, name), below, rows) if below else rows})


def _line(row: Any) -> bytes:  # noqa: ANN401 - a `SentRow`, which has the members of any row
    return b"%s\n" % msgspec.json.format(row.entry, indent=-1)


# --- columns ----------------------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """A column of Parquet or CSV."""

    name: str
    """The path of the member in a row, by its JSON names, such as `payment.id`."""
    read: Callable[[object], object]
    """Returns the value of the column in a row."""
    kinds: Sequence[inspect.Type]
    """The types of its values, besides null."""


def _columns_of(operation: Operation[None, object]) -> Iterator[_Column]:
    row = None if operation.page is None else struct_at(operation.page.items, operation.result)
    if row is None:
        raise RequestInvalid("path", f"must end in {JSON_LINES}: the rows of {operation.name} have no fixed columns")
    return _columns(row, "", "", ())


def _columns(struct: type, name: str, path: str, above: tuple[type, ...]) -> Iterator[_Column]:
    """Yield the columns of *struct* and of the Structs in it. A Struct inside itself is one column."""
    for member in _members(struct):
        kinds, place, attribute = _kinds(member.type), name + member.encode_name, path + member.name
        nested = kinds[0].cls if len(kinds) == 1 and isinstance(kinds[0], inspect.StructType) else None
        if nested is None or nested in (*above, struct):
            yield _Column(place, reader(attribute), kinds)
        else:
            yield from _columns(nested, f"{place}.", f"{attribute}.", (*above, struct))


def _members(struct: type) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(struct)
    return info.fields if isinstance(info, inspect.StructType) else ()


def _kinds(info: inspect.Type) -> list[inspect.Type]:
    return [member.type for member in alternatives(info) if not isinstance(member.type, inspect.NoneType)]


def csv_field(value: object) -> object:
    """Return *value* as a field of a CSV file; text that looks like a formula to a spreadsheet gets a leading `'`."""
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            return value.isoformat()
        case int() | float() if not isinstance(value, bool):
            return value
    text = _text(value)
    return f"'{text}" if text is not None and text.startswith(_FORMULA) else text


def _text(value: object) -> str | None:
    """Return *value* as text. Lists and objects become JSON with amounts as strings."""
    plain = msgspec.to_builtins(value)
    return plain if plain is None or isinstance(plain, str) else msgspec.json.encode(plain).decode()


# --- Parquet ----------------------------------------------------------------------------------------------------------


def _import_parquet() -> Any:  # noqa: ANN401 - type checkers run without the extra, too
    """Return `pyarrow.parquet`.

    Raises:
        ImportError: It is not installed; the message says how to install it.
    """
    try:
        return import_module("pyarrow.parquet")
    except ImportError:
        raise ImportError(f"a Parquet file needs pyarrow: {install_extra('export')}") from None


class _Tables:
    """Makes Arrow tables with *columns* from rows."""

    def __init__(self, columns: Sequence[_Column]) -> None:
        self._pa: Any = import_module("pyarrow")
        self._columns = [(column, *self._type_of(column.kinds, ())) for column in columns]
        self.schema = self._pa.schema([(column.name, kind) for column, kind, _ in self._columns])

    def __call__(self, rows: Sequence[object]) -> object:
        """Return the table of *rows*.

        Raises:
            ValueError: A value does not fit its column.
        """
        arrays = []
        for column, kind, convert in self._columns:
            values = [None if (value := column.read(row)) is None else convert(value) for row in rows]
            try:
                arrays.append(self._pa.array(values, kind))
            except (ValueError, OverflowError):
                row_id = next(
                    getattr(row, "id", None)
                    for row, value in zip(rows, values, strict=True)
                    if not self._fits(value, kind)
                )
                reason = f"does not fit its column of {kind}: write {JSON_LINES} instead"
                raise ValueError(f"{column.name} of the row with id {row_id} {reason}") from None
        return self._pa.Table.from_arrays(arrays, schema=self.schema)

    def _fits(self, value: object, kind: object) -> bool:
        try:
            self._pa.array([value], kind)
        except (ValueError, OverflowError):
            return False
        return True

    def _type_of(self, kinds: Sequence[inspect.Type], above: tuple[type, ...]) -> tuple[Any, _Convert]:
        """Return the type of a column whose values are of *kinds*, and the function that converts its values."""
        pa = self._pa
        scalars = {
            inspect.DecimalType: pa.decimal128(_DIGITS, _DECIMALS),
            inspect.DateTimeType: pa.timestamp("us", "UTC"),
            inspect.BoolType: pa.bool_(),
            inspect.IntType: pa.int64(),
            inspect.FloatType: pa.float64(),
        }
        match kinds:
            case [kind] if type(kind) in scalars:
                return scalars[type(kind)], lambda value: value
            case [inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item)]:
                entry, convert = self._type_of(_kinds(item), above)
                return pa.list_(entry), lambda values: [None if value is None else convert(value) for value in values]
            case [inspect.StructType(cls=cls, fields=fields)] if cls not in above:
                members = [
                    (field.encode_name, reader(field.name), *self._type_of(_kinds(field.type), (*above, cls)))
                    for field in fields
                ]
                return pa.struct([(name, kind) for name, _, kind, _ in members]), lambda row: {
                    name: None if (value := read(row)) is None else convert(value) for name, read, _, convert in members
                }
        return pa.string(), _text
