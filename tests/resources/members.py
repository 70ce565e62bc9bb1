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
            for one in types:
                yield from declared(one)
        case inspect.ListType(item_type=one) | inspect.VarTupleType(item_type=one) | inspect.Metadata(type=one):
            yield from declared(one)
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
            for one in types:
                yield from present(one, value)
        case inspect.ListType(item_type=one) | inspect.VarTupleType(item_type=one), list():
            for item in value:
                yield from present(one, item)
        case inspect.Metadata(type=one), _:
            yield from present(one, value)
        case _:
            pass
