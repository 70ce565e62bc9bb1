"""Repairs of single types and of rows, and the search for amounts that cannot be used."""

from __future__ import annotations

from decimal import Decimal

from msgspec import inspect

from paymentsdk import OPERATIONS
from paymentsdk._codec import amounts
from tests.engine.declared import leaves


def amounts_of(struct: inspect.StructType) -> list[str]:
    """Return the members of *struct* that are amounts."""
    kinds = {member.name: getattr(member.type, "types", (member.type,)) for member in struct.fields}
    return [
        name
        for name, types in kinds.items()
        if any(isinstance(member_type, inspect.DecimalType) for member_type in types)
    ]


def test_every_amount_of_every_response_is_searched() -> None:
    """No amount of any response is left out of the search, at whatever depth it stands."""
    structs = (struct for op in OPERATIONS.values() for struct in leaves(inspect.type_info(op.result)))
    for struct in {struct.cls: struct for struct in structs}.values():
        needed = {member.name: "X1" for member in struct.fields if member.required}
        for amount in amounts_of(struct):
            search = amounts.compile_check(struct.cls)
            assert search(struct.cls(**needed, **{amount: Decimal("NaN")}))
            assert not search(struct.cls(**needed, **{amount: Decimal("24.90")}))
