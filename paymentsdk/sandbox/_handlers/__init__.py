"""The nouns of the API. Each file declares one noun, as one value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode
from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox._noun import Handler, Noun
from paymentsdk.sandbox._policies import Policies

_NAMES = dict.fromkeys(name.partition(".")[0] for name in OPERATIONS)
NOUNS: Mapping[str, Noun] = {name: import_module(f"{__name__}.{name}").NOUN for name in _NAMES}
#: The noun of operations of other programs. All their errors have the most general code.
OWN = Noun(handlers=(), other_code="bad_request")
HANDLERS = {handler.operation.name: handler for noun in NOUNS.values() for handler in noun.handlers}
if missing := OPERATIONS.keys() - HANDLERS.keys():
    raise LookupError(f"{min(missing)} has no Handler in NOUN of its file in {__path__[0]}")
JOBS = {name: job for noun in NOUNS.values() for name, job in noun.jobs.items()}
SCHEMAS = {place: schema for noun in NOUNS.values() for place, schema in noun.schemas.items()}


def noun_of(operation: Operation[Any, Any]) -> Noun:
    """Return the noun of *operation*, which may belong to another program."""
    return NOUNS.get(operation.name.partition(".")[0], OWN)


def ways(handler: Handler[Any, Any], error: ErrorCode) -> tuple[str, ...]:
    """Return all ways to be rejected with *error*: what leads to it, a magic value and a fault."""
    operation = handler.operation
    magically = f"{handler.magic.member}: {handler.magic_value(error)}" if handler.magic else None
    rule = f'FaultRule(operation="{operation.name}", effect="refuse", status={error.status}, code="{error.code}")'
    return tuple(filter(None, (noun_of(operation).cause_of(error.code), magically, rule)))


def required(policies: Policies) -> Mapping[str, Sequence[str]]:
    """Return the members that *policies* require, by the name of their Struct."""
    requirements = (noun.required(policies) for noun in NOUNS.values() if noun.required)
    return {struct: names for members in requirements for struct, names in members.items()}


def operations_of(handlers: Iterable[Handler[Any, Any]]) -> Mapping[str, Operation[Any, Any]]:
    """Return the operations of *handlers* by name. Each has its own method and path.

    Raises:
        ValueError: Two operations have the same method and path.
    """
    names: dict[tuple[str, str], str] = {}
    operations = {handler.operation.name: handler.operation for handler in handlers}
    for name, operation in operations.items():
        place = operation.method, re.sub(r"{\w+}", "{}", operation.path)
        if (first := names.setdefault(place, name)) != name:
            raise ValueError(f"{name} has the same method and path as {first}; name it {first} to replace that one")
    return operations
