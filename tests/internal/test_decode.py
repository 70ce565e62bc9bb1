"""Repairs of single types and of rows, and the search for amounts that cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from msgspec import inspect

from paymentsdk import OPERATIONS
from paymentsdk._codec import amounts, repair
from tests.engine.declared import leaves


def amounts_of(struct: inspect.StructType) -> list[str]:
    """Return the members of *struct* that are amounts."""
    kinds = {member.name: getattr(member.type, "types", (member.type,)) for member in struct.fields}
    return [
        name
        for name, types in kinds.items()
        if any(isinstance(member_type, inspect.DecimalType) for member_type in types)
    ]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_amount_of_every_response_is_searched(name: str) -> None:
    """No amount of any response is left out of the search, at whatever depth it stands."""
    for struct in leaves(inspect.type_info(OPERATIONS[name].result)):
        needed = {member.name: "X1" for member in struct.fields if member.required}
        for amount in amounts_of(struct):
            search = amounts.compile_check(struct.cls)
            assert search(struct.cls(**needed, **{amount: Decimal("NaN")}))
            assert not search(struct.cls(**needed, **{amount: Decimal("24.90")}))


INVOICES = OPERATIONS["invoices.search"]
#: What may be wrong with the invoices of a page, in each with another value.
DIFFERENT = {
    "no id": lambda number: {"reason": "no id"},
    "an amount that cannot be used": lambda number: {"id": 1, "transaction_amount": "NaN", "reason": number},
    "four members": lambda number: {
        "id": 1,
        "reason": number,
        "transaction_amount": {"is": number},
        "date_created": f"day {number}",
        "summarized": number,
    },
    "dates without an offset": lambda number: {"id": 1, "date_created": f"2026-01-31T10:00:00.{number:06}"},
}


@pytest.mark.control("paymentsdk._codec.repair._PLACE", re.compile(r"(x)?`\$\[[^]]+\](?:\.(xx))?"))
@pytest.mark.parametrize("different", DIFFERENT.values(), ids=DIFFERENT)
def test_a_row_is_repaired_by_its_members(different: Callable[[int], object], monkeypatch) -> None:
    """Whatever is wrong with the rows of a page, however different: what is not is decoded with the others.

    Rows of which each member is read by itself take thirty times as long as those of a page that follows the contract.
    """
    apart: set[frozenset[str]] = set()
    compiled = repair.StructRepair._compile
    monkeypatch.setattr(
        repair.StructRepair, "_compile", lambda self, names: [compiled(self, names), apart.add(names)][0]
    )
    repair.struct_repair.cache_clear()
    rows = [{"external_reference": "x" * 90, **different(number)} for number in range(50)]

    value, anomalies = replace(INVOICES).decode(json.dumps({"results": rows, "paging": {}}).encode())

    assert 50 == len(value.results)
    assert len(anomalies) >= 50
    assert "external_reference" not in frozenset.union(*apart)
