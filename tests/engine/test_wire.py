"""The seam: what a transport gets and gives."""

from __future__ import annotations

from typing import Any

import pytest

from paymentsdk import OPERATIONS, Request, Response, RetryClass
from paymentsdk.transports._http11_connection import ResponseHeaders
from paymentsdk.transports.base import Headers, header


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ({"X-Request-Id": "1"}, "1"),
        ({"x-request-id": "1"}, "1"),
        ({"X-REQUEST-ID": "1"}, "1"),
        ({"X-Request-Id": "caf\u00e9"}, "caf\u00e9"),
        ({"x-request-id": "caf\udce9"}, "caf?"),
        ({"X-Request-Id": 7}, "7"),
        ({"X-Request-Id": None}, None),
        ({"X-Other": "1"}, None),
        ({"X-Another-Id": "2", "X-REQUEST-ID": "1"}, "1"),
        ([("X-Request-Id", "1")], None),
        ({}, None),
    ],
)
def test_header_names_have_no_case(headers: Any, value: str | None) -> None:
    """A field is found in whatever case it came, and can be written to a log; what is none is no field."""
    assert value == header(headers, "X-Request-Id")


@pytest.mark.control("paymentsdk.transports.base.CASELESS", frozenset())
def test_a_header_of_our_transport_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It finds a name in any case by itself: to go through all fields as well takes five times as long."""
    walks: list[str] = []
    monkeypatch.setattr(ResponseHeaders, "__iter__", lambda self: iter(walks.append("a walk") or ()))
    head = b"HTTP/1.1 200 OK\r\nX-Request-ID: 7\r\n\r\n"

    assert [None, "7"] == [header(ResponseHeaders(head), f"x-{name}") for name in ("other", "request-id")]
    assert [] == walks


def test_a_request_and_a_response_tell_their_size() -> None:
    """What is printed of a request or a response is what a log needs: no credential, and no body."""
    request = Request("POST", "http://x/y", {"authorization": "Bearer secret", "Accept": "a"}, b"secret")

    assert "Request(POST http://x/y, headers={'authorization': '***', 'Accept': 'a'}, body=<6 bytes>)" == repr(request)
    assert "Response(200, body=<6 bytes>)" == repr(Response(200, {}, b"secret"))


@pytest.mark.parametrize("name", ["Authorization", "proxy-authorization", "Cookie", "SET-COOKIE", "X-Api-Key"])
def test_fields_that_hold_credentials_are_not_shown(name: str) -> None:
    """Whatever the case of its name: the value is masked, and goes out as it is."""
    headers = Headers({name: "secret", "Accept": "a"})

    assert repr({name: "***", "Accept": "a"}) == repr(headers) == str(headers)
    assert "secret" == headers[name]


def test_what_a_request_asks_for_by_itself() -> None:
    """Unless it says more: half a minute, any connection, and a response of 8 MiB at most."""
    request = Request("GET", "http://x/y")

    assert (30.0, None, False, 8 * 2**20) == (
        request.timeout,
        request.connect_timeout,
        request.fresh,
        request.max_response,
    )


def test_a_response_needs_no_more_than_its_status() -> None:
    """The plainest response is a status."""
    assert ({}, b"") == (Response(204).headers, Response(204).body)


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_data(name: str) -> None:
    """An operation says what it is: its name, its place in the spec, and what follows from its retry class."""
    operation = OPERATIONS[name]

    assert repr(operation) == f"<Operation {name}: {operation.method} {operation.path}>"
    assert name == operation.name
    assert (operation.retry is RetryClass.KEYED) == operation.keyed
    assert (operation.retry is not RetryClass.READ) == operation.writes
    assert (operation.method == "GET") == (operation.retry is RetryClass.READ)
    assert operation.section.startswith("4.")
    assert operation.decoder is operation.decoder
    assert len(operation.meanings) == len({error.code for error in operation.errors})


def test_an_operation_decodes_without_a_client() -> None:
    """`operation.decode` gives a value and what was repaired; what holds no value is a ValueError."""
    order, anomalies = OPERATIONS["orders.get"].decode(b'{"id":"ORD1","user_id":5}')

    assert ("ORD1", ["$.user_id"]) == (order.id, [anomaly.path for anomaly in anomalies])
    with pytest.raises(ValueError, match="not JSON"):
        OPERATIONS["orders.get"].decode(b"<html>")
