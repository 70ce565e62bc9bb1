"""Operations that a program of its own might declare, to send or read what no operation of the contract has."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import inspect

from paymentsdk import Operation, RetryClass
from paymentsdk.resources.common import ResponseStruct


class Nothing(ResponseStruct):
    """A response of which nothing is read."""


def declared(
    *, body: type | None = None, result: type = Nothing, query: type | None = None, **more: object
) -> Operation[object, object]:
    """Declare an operation that sends *body* or *query* and returns *result*."""
    about = {"name": "things.ask", "path": "/v1/things", "section": "", "summary": "", "retry": RetryClass.READ}
    method = "GET" if body is None else "POST"
    return Operation(**{**about, "method": method, "body": body, "result": result, "query": query, **more})


def leaves(info: inspect.Type) -> Iterator[inspect.StructType]:
    """Yield every Struct of a type."""
    match info:
        case inspect.StructType(fields=fields):
            yield info
            for member in fields:
                yield from leaves(member.type)
        case inspect.UnionType(types=types):
            for member_type in types:
                yield from leaves(member_type)
        case inspect.VarTupleType(item_type=item):
            yield from leaves(item)
