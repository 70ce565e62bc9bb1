"""The masks of the list of requests, on text that no HTTP client sends, and in time."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import ClassVar

import msgspec
import pytest

from paymentsdk._secrets import MaskedRepr
from paymentsdk.resources import OPERATIONS, oauth
from paymentsdk.resources.common import RequestStruct
from paymentsdk.sandbox._feed import (
    LONGEST_BODY,
    LONGEST_RESPONSE,
    Feed,
    RequestLine,
    redact_body,
    redact_query,
    secrets_of,
)
from paymentsdk.sandbox._wire import structs_in

SECRETS = secrets_of(OPERATIONS.values())


FORMS = [
    "token={}",
    "payer[token]={}",
    "payer%5Btoken%5D={}",
    "payer[token][value]={}",
    "client_secret[]={}",
    'token="{}"&a=5',
    "a=5\ntoken={}",
    "a=5&%74oken={}",
]


@pytest.mark.control("paymentsdk.sandbox._feed._names", lambda text, secrets: False)
@pytest.mark.parametrize("form", FORMS)
def test_a_form_with_a_credential_is_masked(form):
    """A program that sends a form is rejected; a form of no token is shown."""
    assert "***" == redact_body(form.format("SECRET").encode(), SECRETS, grant=False)
    assert "a=5&code=7" == redact_body(b"a=5&code=7", SECRETS, grant=False)


@pytest.mark.control("paymentsdk.sandbox._feed._names", lambda text, secrets: False)
@pytest.mark.parametrize("name", ["access_token", "Access_Token", "payer%5Btoken%5D", "client_secret[]", "%74oken"])
def test_a_credential_in_an_address_is_masked(name):
    """With everything else as it is: blanks, signs without a name, and what has no value."""
    remainder = "b=c%20d&&=1&token&e==f"

    assert f"/v1?a=5&{name}=***&{remainder}" == redact_query(f"/v1?a=5&{name}=SECRET&{remainder}", SECRETS)
    assert "/v1/token=1" == redact_query("/v1/token=1", SECRETS)


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


def test_the_beginning_of_a_long_body_is_kept():
    """More of a request, which can be copied, than of a response."""
    feed, now = Feed(), datetime(2026, 1, 31, tzinfo=UTC)
    line = RequestLine(at=now, operation=None, method="POST", path="/", status=200, tenant=1, request_id="req-1")
    for size in (LONGEST_RESPONSE, LONGEST_BODY, LONGEST_BODY + 1):
        feed.log(msgspec.structs.replace(line, body="x" * size, response="y" * size))

    lengths = [(len(request.body), len(request.response)) for request in feed.requests]
    assert [(4_096, 4_096), (16_384, 4_097), (16_385, 4_097)] == lengths
    assert ("x…", "y…") == (feed.requests[2].body[-2:], feed.requests[2].response[-2:])


@pytest.mark.control("paymentsdk.sandbox._feed.MaskedRepr.__subclasses__", list)
def test_what_the_contract_declares_a_credential_is_masked():
    """At any depth of any operation; a start does not look through all of its types for it."""
    kinds = {kind for operation in OPERATIONS.values() for kind in (operation.body, operation.result) if kind}
    declared = [struct.cls.__secrets__ for struct in structs_in(kinds) if hasattr(struct.cls, "__secrets__")]

    assert len(declared) > 2
    assert set().union(*declared) <= secrets_of(OPERATIONS.values())
