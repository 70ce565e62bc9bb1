"""The nouns of the API, each as one value in a file of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paymentsdk._contract.operation import Operation
from paymentsdk._contract.rules import ErrorCode
from paymentsdk.sandbox._handlers import (
    customers,
    invoices,
    merchant_orders,
    oauth,
    orders,
    plans,
    preferences,
    release_reports,
    wallet_payments,
)
from paymentsdk.sandbox._noun import Handler, Noun
from paymentsdk.sandbox._policies import Policies

_FILES = (oauth, invoices, preferences, wallet_payments, plans, merchant_orders, customers, release_reports, orders)
NOUNS: Mapping[str, Noun] = {file.NOUN.name: file.NOUN for file in _FILES}
#: Stands for the nouns of other programs: whatever is wrong with a request has the most general code.
OWN = Noun(handlers=(), other_code="bad_request")
HANDLERS = {one.operation.name: one for noun in NOUNS.values() for one in noun.handlers}
JOBS = {name: job for noun in NOUNS.values() for name, job in noun.jobs.items()}
SCHEMAS = {place: schema for noun in NOUNS.values() for place, schema in noun.schemas.items()}


def noun_of(operation: Operation[Any, Any]) -> Noun:
    """Return the noun that *operation* belongs to, which may be one of another program."""
    return NOUNS.get(operation.name.partition(".")[0], OWN)


def ways(handler: Handler[Any, Any], error: ErrorCode) -> tuple[str, ...]:
    """Return every way to be rejected with *error*: by itself, by a magic value, by a fault."""
    operation = handler.operation
    magically = f"{handler.magic.member}: {handler.magic_value(error)}" if handler.magic else None
    rule = f'FaultRule(operation="{operation.name}", effect="refuse", status={error.status}, code="{error.code}")'
    return tuple(filter(None, (noun_of(operation).cause_of(error.code), magically, rule)))


def required(policies: Policies) -> Mapping[str, Sequence[str]]:
    """Return the members that *policies* ask for, by the name of their Struct."""
    requirements = (noun.required(policies) for noun in NOUNS.values() if noun.required)
    return {struct: names for members in requirements for struct, names in members.items()}


def operations_of(handlers: Iterable[Handler[Any, Any]]) -> Mapping[str, Operation[Any, Any]]:
    """Return the operations of *handlers*, of which each has a method and a path of its own.

    Raises:
        ValueError: Two have the same.
    """
    names: dict[tuple[str, str], str] = {}
    operations = {handler.operation.name: handler.operation for handler in handlers}
    for name, operation in operations.items():
        place = operation.method, re.sub(r"{\w+}", "{}", operation.path)
        if (first := names.setdefault(place, name)) != name:
            raise ValueError(f"{name} has the method and the path of {first}: give it that name to take its place")
    return operations
