"""The masks of the list of requests, on text that no HTTP client sends, and in time."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources import OPERATIONS, oauth
from paymentsdk.resources.common import RequestStruct
from paymentsdk.sandbox._feed import redact_body, redact_query, secrets_of
from paymentsdk.sandbox._wire import structs_in

SECRETS = secrets_of(OPERATIONS.values())


class Statement(MaskedRepr, RequestStruct):
    """A grant that no operation has yet."""

    assertion: str
    __secrets__: ClassVar[frozenset[str]] = frozenset({"assertion"})


@pytest.mark.parametrize("kind", [Statement, list[Statement]])
def test_what_an_operation_declares_a_credential_is_masked(kind):
    """A member that is hidden in the Struct of a request is hidden here too: its name stands in no second list."""
    body, secrets = b'{"assertion": "SECRET", "scope": "read"}', secrets_of([replace(oauth.TOKEN, body=kind)])

    assert "SECRET" in redact_body(body, SECRETS, grant=True)
    assert '{"assertion":"***","scope":"read"}' == redact_body(body, secrets, grant=True)
    assert "a?assertion=***&b=c" == redact_query("a?assertion=SECRET&b=c", secrets)


@pytest.mark.control("paymentsdk.sandbox._feed.MaskedRepr.__subclasses__", list)
def test_what_the_contract_declares_a_credential_is_masked():
    """At any depth of any operation; a start does not look through all of its types for it."""
    kinds = {kind for operation in OPERATIONS.values() for kind in (operation.body, operation.result) if kind}
    declared = [struct.cls.__secrets__ for struct in structs_in(kinds) if hasattr(struct.cls, "__secrets__")]

    assert len(declared) > 2
    assert set().union(*declared) <= secrets_of(OPERATIONS.values())
