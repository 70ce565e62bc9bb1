"""No noun of the sandbox is half declared: nothing is missing, or stands for nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import inspect
from msgspec.structs import replace as replace_struct

from paymentsdk import OPERATIONS
from paymentsdk._codec.type_walk import walk
from paymentsdk._contract.operation import Operation
from paymentsdk.sandbox._handlers import NOUNS
from paymentsdk.sandbox._noun import Handler, MagicValue, Noun
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._wire import structs_in

PLANS = NOUNS["plans"]


def members(noun: Noun, **changes: object) -> dict[str, object]:
    """Return the members of *noun* with *changes*."""
    return {name: getattr(noun, name) for name in Noun.__dataclass_fields__} | changes


def handlers(**changes: object) -> list[Handler]:
    """Return the handlers of plans, the first with *changes*."""
    first, *remaining = PLANS.handlers
    fields = {name: getattr(first, name) for name in Handler.__dataclass_fields__}
    return [Handler(**{**fields, **changes}), *remaining]


def misdeclared(noun: Noun) -> Iterator[str]:
    """Yield each operation of *noun* without one handler, and each name that stands for nothing in the contract."""
    operations = [handler.operation for handler in noun.handlers]
    handled = sorted(operation.name for operation in operations)
    expected = sorted(name for name in OPERATIONS if name.partition(".")[0] == noun.name)
    if handled != expected:
        yield f"there is one handler for each of {handled}, not of {expected}"
    for handler in noun.handlers:
        # A value for later is told at the creation of the thing: by another operation.
        takers = operations if handler.magic and handler.magic.later else [handler.operation]
        if handler.magic and not any(takes(operation, handler.magic.member) for operation in takers):
            yield f"{handler.operation.name} takes no {handler.magic.member} that could hold a magic value"
    documented = {code for operation in operations for code in operation.meanings}
    codes = {*noun.causes, *noun.member_codes.values(), *noun.rule_codes.values(), *filter(None, [noun.other_code])}
    yield from (f"no operation has the code {code}" for code in codes - documented)
    for member in noun.member_codes.keys() - {"body"}:
        if not any(takes(operation, member) for operation in operations):
            yield f"no operation takes {member}"
    required = noun.required(Policies()) if noun.required else {}
    for of, member in [*noun.schemas, *((of, member) for of, names in required.items() for member in names)]:
        if not any(member in members_of(operation, of) for operation in operations):
            yield f"{of} has no member {member}"


def takes(operation: Operation[Any, Any], path: str) -> bool:
    """Whether a request of *operation* can hold the member *path*, such as ``payer.token``."""
    if operation.body is None:
        return path in members_of(operation, operation.name)
    return any(place.path.replace("[]", "") == f".{path}" for place in walk(inspect.type_info(operation.body)))


def members_of(operation: Operation[Any, Any], of: str) -> set[str]:
    """Return the parameters of *operation*, if it has the name *of*, or the members of its Struct of that name."""
    if of == operation.name:
        return {*operation.path_names, *(operation.query.__annotations__ if operation.query else ())}
    structs = structs_in([kind for kind in (operation.body, operation.result) if kind])
    return {field.encode_name for struct in structs if struct.cls.__name__ == of for field in struct.fields}


def test_every_operation_has_a_handler():
    """All nouns together handle all operations, each noun its own."""
    assert set(OPERATIONS) == {handler.operation.name for noun in NOUNS.values() for handler in noun.handlers}


@pytest.mark.parametrize("noun", NOUNS.values(), ids=NOUNS)
def test_what_a_noun_names_is_in_the_contract(noun):
    """A magic value, a code, a cause, a rule or a required member of a misspelt name would never have an effect."""
    assert [] == list(misdeclared(noun))


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
    } == {
        handler.operation.name: handler.magic and handler.magic.member
        for noun in NOUNS.values()
        for handler in noun.handlers
    }


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"handlers": PLANS.handlers[:1]}, "one handler for each of"),
        ({"handlers": [*PLANS.handlers, PLANS.handlers[0]]}, "one handler for each of"),
        ({"handlers": handlers(magic=MagicValue("nmae"))}, "takes no nmae"),
        ({"handlers": handlers(magic=MagicValue("external_reference", later=True))}, "takes no external_reference"),
        ({"causes": {"gone": "an unknown id"}}, "no operation has the code gone"),
        ({"member_codes": {"sort": "gone"}}, "no operation has the code gone"),
        ({"member_codes": {"sorted": "bad-request"}}, "no operation takes sorted"),
        ({"rule_codes": {"type": "gone"}}, "no operation has the code gone"),
        ({"other_code": "gone"}, "no operation has the code gone"),
        ({"schemas": {("plans.search", "sorted"): {}}}, "plans.search has no member sorted"),
        ({"schemas": {("plans.find", "sort"): {}}}, "plans.find has no member sort"),
        ({"required": lambda policies: {"PlanRequest": ["reason"]}}, "PlanRequest has no member reason"),
    ],
)
def test_what_is_misdeclared_is_found(changes, words):
    """Control: the look at the nouns sees each kind of mistake."""
    assert any(words in message for message in misdeclared(Noun(**members(PLANS, **changes))))


def test_a_misspelt_declaration_is_rejected():
    """Nothing looks for names: what a noun does not have cannot be given."""
    with pytest.raises(TypeError, match="magics"):
        Noun(**members(PLANS, magics={}))
    with pytest.raises(TypeError, match="handel"):
        Handler(operation=OPERATIONS["plans.get"], handel=print)


async def test_a_code_does_not_depend_on_the_words_of_another_module(plain, order, monkeypatch):
    """A rule is known by its id: said in other words, it leads to the same code."""
    operation = OPERATIONS["orders.create"]
    body = {**operation.example, "transactions": {}}
    before = await plain("POST", "/v1/orders", body, key="one")

    monkeypatch.setattr("paymentsdk.errors.RequestInvalid.__init__", _in_other_words)
    after = await plain("POST", "/v1/orders", body, key="two")

    codes = [response.json["errors"][0]["code"] for response in (before, after)]
    assert ["required_properties"] * 2 == codes
    assert "in other words" in after.raw.decode()


def _in_other_words(self, path: str, reason: str, rule: str = "value") -> None:
    ValueError.__init__(self, path, reason)
    self.path, self.reason, self.rule = path, "in other words", rule


def test_a_value_for_later_may_be_a_member_of_another_operation():
    """An order is told at its creation how its refund ends; alone, the refund takes no such member."""
    orders = NOUNS["orders"]
    refund = next(handler for handler in orders.handlers if handler.operation.name == "orders.refund")
    assert refund.magic
    now = Handler(operation=refund.operation, handle=refund.handle, magic=replace_struct(refund.magic, later=False))
    remaining = [handler for handler in orders.handlers if handler is not refund]

    changed = Noun(**members(orders, handlers=[*remaining, now]))
    assert ["orders.refund takes no external_reference that could hold a magic value"] == list(misdeclared(changed))
