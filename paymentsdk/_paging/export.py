"""The export of a search to a Parquet, CSV or JSON lines file, which is written whole or not at all.

All formats have the members that the Struct of a row declares.
"""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from decimal import Decimal
from functools import partial
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, inspect, structs

from paymentsdk._codec.type_walk import alternatives
from paymentsdk._contract.identity import reader, struct_at
from paymentsdk._files import whole
from paymentsdk._futures import in_thread
from paymentsdk.errors import RequestInvalid, import_extra

if TYPE_CHECKING:
    from paymentsdk._contract.operation import Operation

#: Writes rows to the file.
_Write: TypeAlias = Callable[[Sequence[object]], None]
#: Converts a value to the form that pyarrow accepts.
_Convert: TypeAlias = Callable[[Any], object]

PARQUET, CSV, JSON_LINES = ".parquet", ".csv", ".jsonl"
#: Rows per write, which are a row group of Parquet.
_BATCH = 10_000
#: Digits of an amount, and how many of them are decimals. No currency has more.
DIGITS, DECIMALS = 36, 18
#: Characters that begin a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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
                progress(page)
        await in_thread(write, batch)
        await in_thread(stack.pop_all().close)  # Closing the file waits for the disk.
    return number


@contextmanager
def _opened(path: Path, operation: Operation[None, object]) -> Iterator[_Write]:
    suffix = path.suffix.lower()
    if suffix not in (PARQUET, CSV, JSON_LINES):
        raise RequestInvalid("path", f"must end in {PARQUET}, {CSV} or {JSON_LINES}")
    columns = [] if suffix == JSON_LINES else _row_columns(operation)
    needs = "a Parquet file needs pyarrow"
    pq: Any = import_extra("pyarrow.parquet", "export", needs) if suffix == PARQUET else None
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
            line = partial(as_json, decimal_strings=operation.decimal_strings)
            with unfinished.open("w", encoding="utf-8") as file:
                yield lambda rows: file.writelines(f"{line(sent(row))}\n" for row in rows)


# --- JSON lines -------------------------------------------------------------------------------------------------------


def sent(value: object) -> object:
    """Return *value* as plain data, without members that the platform did not send."""
    match value:
        case Struct():
            members = zip(value.__struct_encode_fields__, structs.astuple(value), strict=True)
            return {name: sent(member) for name, member in members if member is not None}
        case list() | tuple():
            return [sent(entry) for entry in value]
        case _:
            return value


def as_json(value: object, *, decimal_strings: bool) -> str:
    """Return *value* as one line of JSON, with amounts as numbers or as *decimal_strings*."""
    encoder = msgspec.json.Encoder(decimal_format="string" if decimal_strings else "number")
    return encoder.encode(value).decode()


# --- columns ----------------------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column of Parquet or CSV."""

    name: str
    """The path of the member in a row, by its JSON names, such as `payment.id`."""
    read: Callable[[object], object]
    """Returns the value of the column in a row."""
    kinds: Sequence[inspect.Type]
    """The types of its values, besides null."""


def _row_columns(operation: Operation[None, object]) -> Sequence[Column]:
    row = None if operation.page is None else struct_at(operation.page.items, operation.result)
    if row is None:
        raise RequestInvalid("path", f"must end in {JSON_LINES}: the rows of {operation.name} have no fixed columns")
    return list(columns_of(row))


def columns_of(struct: type, name: str = "", path: str = "", above: tuple[type, ...] = ()) -> Iterator[Column]:
    """Yield the columns of *struct* and of the Structs in it. A Struct inside itself is one column."""
    for member in _members(struct):
        kinds, place, attribute = _kinds(member.type), name + member.encode_name, path + member.name
        nested = kinds[0].cls if len(kinds) == 1 and isinstance(kinds[0], inspect.StructType) else None
        if nested is None or nested in (*above, struct):
            yield Column(place, reader(attribute), kinds)
        else:
            yield from columns_of(nested, f"{place}.", f"{attribute}.", (*above, struct))


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
        case int() | float() if not isinstance(value, bool):
            return value
    text = text_of(value)
    return f"'{text}" if text.startswith(_FORMULA) else text


def text_of(value: object) -> str:
    """Return *value* as text, and an empty text for `None`. Lists and objects become JSON with amounts as strings."""
    if value is None or type(value) is str:
        return value or ""
    if isinstance(value, datetime):
        return value.isoformat()
    plain = msgspec.to_builtins(sent(value))
    return plain if isinstance(plain, str) else as_json(plain, decimal_strings=True)


# --- Parquet ----------------------------------------------------------------------------------------------------------


class _Tables:
    """Makes Arrow tables with *columns* from rows."""

    def __init__(self, columns: Sequence[Column]) -> None:
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
                misfit = next(row for row, value in zip(rows, values, strict=True) if not self._fits(value, kind))
                reason = f"does not fit its column of {kind}: write {JSON_LINES} instead"
                row_id = getattr(misfit, "id", None)
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
            inspect.DecimalType: pa.decimal128(DIGITS, DECIMALS),
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
        return pa.string(), text_of
