"""The check of amounts that is compiled from a type: whatever it overlooks would come in unseen."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

import pytest
from msgspec import Meta, Struct, defstruct

from paymentsdk._codec.amounts import compile_check

NAN = Decimal("NaN")


class Line(Struct):
    """The innermost."""

    price: Decimal | None = None
    title: str = ""


class Basket(Struct):
    """Every way in which a type holds another."""

    plain: Decimal = Decimal(0)
    annotated: Annotated[Decimal, Meta(description="a price")] = Decimal(0)
    line: Line | None = None
    lines: Annotated[list[Line], Meta(max_length=9)] | None = None
    rows: tuple[Line, ...] = ()
    nested: list[list[Decimal]] | None = None
    text: str = ""


FOUND = [
    {"plain": NAN},
    {"annotated": NAN},
    {"line": Line(NAN)},
    {"lines": [Line(Decimal(1)), Line(NAN)]},
    {"rows": (Line(), Line(NAN))},
    {"nested": [[Decimal(1)], [Decimal(2), NAN]]},
]


@pytest.mark.parametrize("members", FOUND)
def test_what_is_looked_for_is_found_at_any_depth(members: dict[str, object]) -> None:
    """Plain, annotated, optional, in Structs, lists, tuples and lists of lists."""
    search = compile_check(Basket)

    assert [*members] == [search(Basket(**members))]
    assert not search(Basket(line=Line(), lines=[Line(Decimal(9))], rows=(Line(Decimal(9)),), nested=[[Decimal(9)]]))


def test_a_default_of_none_is_no_amount() -> None:
    """Also where the type of the member does not say that it may be missing."""
    loose = defstruct("Loose", [("price", Decimal, None)])

    assert [None, "price"] == [compile_check(loose)(value) for value in (loose(), loose(NAN))]


def test_what_cannot_be_searched_is_as_good_as_found() -> None:
    """A value in which the check itself fails is worth a closer look."""
    search = compile_check(Basket)

    assert search(Basket(plain="11"))
    assert search(None)
