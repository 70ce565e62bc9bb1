"""A noun of the sandbox cannot be half declared: what is missing, or stands for nothing, fails when it is imported."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as replace_struct

from paymentsdk import OPERATIONS
from paymentsdk.sandbox._handlers import NOUNS
from paymentsdk.sandbox._magic_values import MagicValue
from paymentsdk.sandbox._noun import Handler, Noun

PLANS = NOUNS["plans"]


def members(noun: Noun, **changes: object) -> dict[str, object]:
    """Return the members of *noun* with *changes*."""
    return {name: getattr(noun, name) for name in Noun.__dataclass_fields__} | changes


def handlers(**changes: object) -> list[Handler]:
    """Return the handlers of plans, the first with *changes*."""
    first, *others = PLANS.handlers
    own = {name: getattr(first, name) for name in Handler.__dataclass_fields__}
    return [Handler(**{**own, **changes}), *others]


def test_every_operation_has_a_handler():
    """All nouns together handle all operations, each noun its own."""
    assert set(OPERATIONS) == {one.operation.name for noun in NOUNS.values() for one in noun.handlers}
    for noun in NOUNS.values():
        assert Noun(**members(noun)) == noun


def test_where_magic_values_stand():
    """Users rely on it: each operation has one, but for that whose request has no member for it."""
    assert {
        "customers.create": "email",
        "invoices.search": "preapproval_id",
        "merchant_orders.search": "external_reference",
        "oauth.token": "code",
        "orders.cancel": "external_reference",
        "orders.create": "external_reference",
        "orders.get": "external_reference",
        "orders.refund": "external_reference",
        "plans.get": "id",
        "plans.search": "q",
        "preferences.create": "external_reference",
        "release_reports.disable_schedule": None,
        "wallet_payments.create": "payer.token",
    } == {one.operation.name: one.magic and one.magic.member for noun in NOUNS.values() for one in noun.handlers}


@pytest.mark.parametrize(
    "declared",
    [PLANS.handlers[:1], [*PLANS.handlers, PLANS.handlers[0]], [], [*PLANS.handlers, *NOUNS["customers"].handlers]],
    ids=["missing", "twice", "none", "of another noun"],
)
@pytest.mark.control("paymentsdk.sandbox._noun.Noun.__post_init__", lambda self: None, raises=pytest.fail.Exception)
def test_each_operation_has_one_handler(declared):
    """An operation without a handler would be found by the first request for it, as a 500."""
    with pytest.raises(ValueError, match="needs one handler for each of"):
        Noun(**members(PLANS, handlers=declared))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"handlers": handlers(magic=MagicValue("nmae"))}, "takes no nmae"),
        ({"handlers": handlers(magic=MagicValue("external_reference", later=True))}, "takes no external_reference"),
        ({"handlers": handlers(causes={"not_found": "an unknown id"})}, "has no code not_found"),
        ({"causes": {"gone": "an unknown id"}}, "no operation has the code gone"),
        ({"schemas": {("plans.search", "sorted"): {}}}, "plans.search has no member sorted"),
        ({"schemas": {("plans.find", "sort"): {}}}, "plans.find has no member sort"),
        ({"required": lambda policies: {"PlanRequest": ["reason"]}}, "PlanRequest has no member reason"),
    ],
)
@pytest.mark.control("paymentsdk.sandbox._noun.Noun._misdeclared", lambda self: iter(()), raises=pytest.fail.Exception)
def test_what_a_noun_names_is_in_the_contract(changes, words):
    """A magic value, a cause, a rule or a required member of a misspelt name would never have an effect."""
    with pytest.raises(ValueError, match=words):
        Noun(**members(PLANS, **changes))


def test_a_misspelt_declaration_is_none():
    """Nothing looks for names: what a noun does not have cannot be given."""
    with pytest.raises(TypeError, match="magics"):
        Noun(**members(PLANS, magics={}))
    with pytest.raises(TypeError, match="handel"):
        Handler(operation=OPERATIONS["plans.get"], handel=print)


async def test_a_code_does_not_depend_on_the_words_of_another_module(plain, order, monkeypatch):
    """A rule is known by its id: said in other words, it leads to the same code."""
    operation = OPERATIONS["orders.create"]
    body = {**operation.example, "total_amount": "1.00"}
    before = await plain("POST", "/v1/orders", body, key="one")

    monkeypatch.setattr("paymentsdk.errors.RequestInvalid.__init__", _in_other_words)
    after = await plain("POST", "/v1/orders", body, key="two")

    codes = [response.json["errors"][0]["code"] for response in (before, after)]
    assert ["invalid_total_amount"] * 2 == codes
    assert "in other words" in after.raw.decode()


def _in_other_words(self, path: str, reason: str, rule: str = "value") -> None:
    ValueError.__init__(self, path, reason)
    self.path, self.reason, self.rule = path, "in other words", rule


def test_a_value_for_later_may_be_a_member_of_another_operation():
    """An order is told at its creation how its refund ends; alone, the refund takes no such member."""
    orders = NOUNS["orders"]
    refund = next(one for one in orders.handlers if one.operation.name == "orders.refund")
    assert refund.magic
    now = Handler(operation=refund.operation, handle=refund.handle, magic=replace_struct(refund.magic, later=False))
    others = [one for one in orders.handlers if one is not refund]

    with pytest.raises(ValueError, match=r"orders.refund takes no external_reference"):
        Noun(**members(orders, handlers=[*others, now]))
