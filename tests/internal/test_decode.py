"""Repairs of single types and of rows, and the search for amounts that cannot be used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal

import pytest
from msgspec import Raw, Struct, inspect

from paymentsdk import OPERATIONS
from paymentsdk._codec import amounts, repair
from paymentsdk._codec.anomaly import Reports
from paymentsdk.resources.invoices import Invoice, InvoicePage
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


def test_the_amounts_of_responses_are_found() -> None:
    """Negative control: the test above has something to search for in the responses that are about money."""
    nouns = {
        name.partition(".")[0]
        for name, operation in OPERATIONS.items()
        for struct in leaves(inspect.type_info(operation.result))
        if amounts_of(struct)
    }

    assert {"orders", "merchant_orders", "preferences", "plans", "invoices", "wallet_payments"} == nouns


def test_every_kind_of_member_has_its_repair() -> None:
    """A repair is made for every type that a response has; a new kind of type is rejected, not guessed at."""
    for operation in OPERATIONS.values():
        for struct in leaves(inspect.type_info(operation.result)):
            for member in struct.fields:
                assert callable(repair.repair_for(member.type))
    with pytest.raises(TypeError, match="nobody knows how to repair"):
        repair.repair_for(inspect.type_info(bytes))


class Node(Struct):
    """A type that holds itself."""

    id: str
    amount: int | None = None
    node: Node | None = None


def test_a_type_that_holds_itself() -> None:
    """A type may hold itself: its repair is made as deep as the response goes."""
    mend = repair.repair_for(inspect.type_info(Node))
    reports = Reports()

    node = mend(Raw(b'{"id": 1, "node": {"id": 2, "node": {"id": "3", "amount": "4"}}}'), "$", reports.add)

    assert ("1", "2", "3", 4) == (node.id, node.node.id, node.node.node.id, node.node.node.amount)
    assert ["$.id", "$.node.id", "$.node.node.amount"] == [anomaly.path for anomaly in reports.all()]


def test_what_was_malformed_in_an_earlier_page_is_read_as_it_is_in_the_next() -> None:
    """Each page is repaired in those members alone that are malformed in it, which takes less time."""
    repair.struct_repair.cache_clear()
    decode = OPERATIONS["invoices.search"].returning(InvoicePage).decode
    for members in {"reason": 5, "summarized": 5, "type": []}, {"reason": 5}:
        decode(json.dumps({"results": [{"id": number, **members} for number in range(40)]}).encode())

    assert {"reason"} == repair.struct_repair(Invoice)._malformed


INVOICES = OPERATIONS["invoices.search"]
#: What may be wrong with the invoices of a page, in each with another value.
DIFFERENT = {
    "no id": lambda number: {"reason": "no id"},
    "null": lambda number: {"id": None},
    "an object": lambda number: {"id": {"number": number}},
    "an amount that cannot be used": lambda number: {"id": 1, "transaction_amount": "NaN", "reason": number},
    "one member": lambda number: {"id": 1, "reason": number},
    "four members": lambda number: {
        "id": 1,
        "reason": number,
        "transaction_amount": {"is": number},
        "date_created": f"day {number}",
        "summarized": number,
    },
    "below": lambda number: {"id": 1, "payment": {"id": number, "status": number}},
    "the member below": lambda number: {"id": 1, "payment": f"paid {number}"},
    "dates without an offset": lambda number: {"id": 1, "date_created": f"2026-01-31T10:00:00.{number:06}"},
}


@pytest.mark.control("paymentsdk._codec.repair._PLACE", re.compile(r"(x)?`\$\[[^]]+\](?:\.(xx))?"))
@pytest.mark.parametrize("different", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize("count", [50, 1_000])
def test_a_row_is_repaired_by_its_members(different: Callable[[int], object], count: int, monkeypatch) -> None:
    """Whatever is wrong with the rows of a page, however different: what is not is decoded with the others.

    Rows of which each member is read by itself take thirty times as long as those of a page that follows the contract.
    """
    apart: set[frozenset[str]] = set()
    compiled = repair.StructRepair._compile
    monkeypatch.setattr(
        repair.StructRepair, "_compile", lambda self, names: [compiled(self, names), apart.add(names)][0]
    )
    repair.struct_repair.cache_clear()
    rows = [{"external_reference": "x" * 90, **different(number)} for number in range(count)]

    value, anomalies = replace(INVOICES).decode(json.dumps({"results": rows, "paging": {}}).encode())

    assert count == len(value.results)
    assert len(anomalies) >= 50
    assert "external_reference" not in frozenset.union(*apart)
