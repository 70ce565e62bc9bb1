"""What each operation does, as functions ``(book, call) -> answer`` that raise ``Refused``; and what falls due."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from paymentsdk._core.operation import Operation
from paymentsdk.errors import RequestInvalid
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox.answers import Shape
from paymentsdk.sandbox.behaviours import invoices, orders, plans, preferences
from paymentsdk.sandbox.book import Book, Call
from paymentsdk.sandbox.magic import Magic
from paymentsdk.sandbox.policies import Policies

__all__ = ["BEHAVIOUR", "CODE_OF", "DUE", "MAGIC", "NATURAL", "RELINK", "SCHEMAS", "SHAPE", "Behaviour", "required"]

#: The answer is a Struct, or plain data where a Struct cannot say it.
Behaviour = Callable[[Book, Call[object]], object]

_NOUNS = [import_module(f"{__name__}.{noun}") for noun in {name.partition(".")[0]: None for name in OPERATIONS}]
# Each takes a call with its own type of body; the decoder of the operation has seen to it.
BEHAVIOUR: Mapping[Operation[object, object], Behaviour] = {
    operation: behaviour for noun in _NOUNS for operation, behaviour in noun.BEHAVIOUR.items()
}
#: Where each operation looks for a magic value, by its name; the other operations have no member that could hold one.
MAGIC: Mapping[str, Magic] = {
    operation.name: where for noun in _NOUNS for operation, where in getattr(noun, "MAGIC", {}).items()
}
#: What leads to a refusal by itself, as :mod:`paymentsdk.sandbox.codes` has it.
NATURAL: Mapping[tuple[str, str], str] = {
    key: text for noun in _NOUNS for key, text in getattr(noun, "NATURAL", {}).items()
}
#: Says which code a broken rule leads to, by the name of the operation; the others have one code for whatever is wrong.
CODE_OF: Mapping[str, Callable[[Operation[object, object], RequestInvalid], str]] = {
    operation.name: noun.code_of for noun in _NOUNS if hasattr(noun, "code_of") for operation in noun.BEHAVIOUR
}
#: The shape of refusals, by the name of the operation; the others have the one that most APIs have.
SHAPE: Mapping[str, Shape] = {
    operation.name: noun.shape for noun in _NOUNS if hasattr(noun, "shape") for operation in noun.BEHAVIOUR
}
#: Rules of parameters and members that no type says, as JSON Schema: by the operation, or the Struct, and the name.
SCHEMAS: Mapping[tuple[str, str], Mapping[str, object]] = {
    place: schema for noun in _NOUNS for place, schema in getattr(noun, "SCHEMAS", {}).items()
}

#: What happens to the thing of an id when its moment has come; each says what it did, or ``None`` for nothing.
DUE: Mapping[str, Callable[[Book, str], str | None]] = {
    "order.expire": orders.expire,
    "refund.settle": orders.settle_refund,
    "invoice.collect": invoices.collect,
}
#: What brings the links of a seller's documents to where the sandbox is now.
RELINK: Sequence[Callable[[Book], None]] = (orders.relink, preferences.relink, plans.relink)


def required(policies: Policies) -> Mapping[str, Sequence[str]]:
    """Return the members that *policies* ask for, by the name of their Struct."""
    asked = (noun.required(policies) for noun in _NOUNS if hasattr(noun, "required"))
    return {struct: names for one in asked for struct, names in one.items()}
