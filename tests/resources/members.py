"""Which members of which Structs a text of JSON has."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect


def declared(info: inspect.Type) -> Iterator[tuple[str, str]]:
    """Yield every member that a value of a type can have, at any depth, each with the name of its Struct."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            for field in fields:
                yield cls.__name__, field.encode_name
                yield from declared(field.type)
        case inspect.UnionType(types=types):
            for item_type in types:
                yield from declared(item_type)
        case (
            inspect.ListType(item_type=item_type)
            | inspect.VarTupleType(item_type=item_type)
            | inspect.Metadata(type=item_type)
        ):
            yield from declared(item_type)
        case _:
            pass


def present(info: inspect.Type, value: object) -> Iterator[tuple[str, str]]:
    """Yield those of the members that *value*, read from JSON, has."""
    match info, value:
        case inspect.StructType(cls=cls, fields=fields), dict():
            for field in fields:
                if field.encode_name in value:
                    yield cls.__name__, field.encode_name
                    yield from present(field.type, value[field.encode_name])
        case inspect.UnionType(types=types), _:
            for item_type in types:
                yield from present(item_type, value)
        case inspect.ListType(item_type=item_type) | inspect.VarTupleType(item_type=item_type), list():
            for item in value:
                yield from present(item_type, item)
        case inspect.Metadata(type=item_type), _:
            yield from present(item_type, value)
        case _:
            pass
