"""Whatever comes over the wire, on whatever route: a response of a known kind, never a 500, and the server lives on."""

from __future__ import annotations

import http.client
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paymentsdk.sandbox import Sandbox, _commands
from paymentsdk.sandbox._app import make_app
from paymentsdk.sandbox._handlers import HANDLERS
from paymentsdk.sandbox._wire import ControlStruct

#: What a response may be: data, a page and what belongs to it, a ledger, a snippet of code, a snapshot.
KINDS = {
    "application/json",
    "application/octet-stream",
    "application/x-ndjson",
    "image/svg+xml",
    "text/css",
    "text/html",
    "text/javascript",
    "text/plain",
}
#: What no response holds: traces, and paths of this machine.
TRACES = ("Traceback", 'File "', "site-packages", "paymentsdk/", str(Path.cwd()), os.path.dirname(os.__file__))  # noqa: PTH120
#: Streams until the server stops.
ENDLESS = {"/_sandbox/events"}
HOSTILE = (
    "",
    "0",
    "-1",
    "1e999999999",
    "9" * 400,
    "NaN",
    "\0",
    "..",
    "../../etc/passwd",
    "<script>",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999-23:59",
    "9999-12-31",
    "P999999D",
    "-PT1S",
    "PT999999999S",
    "P999999W",
    "snapshot",
)
#: The bodies of the control API, each as the names of its members.
COMMANDS = [
    kind.__struct_fields__
    for kind in vars(_commands).values()
    if isinstance(kind, type) and issubclass(kind, ControlStruct) and kind.__struct_fields__
]
MEMBERS = sorted({name for names in COMMANDS for name in names})

texts = st.sampled_from(HOSTILE) | st.text(max_size=20)
scalars = texts | st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats()
plain = st.recursive(
    scalars, lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3)
)
objects = st.sampled_from(COMMANDS).flatmap(
    lambda names: st.dictionaries(st.sampled_from(names), scalars | plain, max_size=3)
)
bodies = st.one_of(
    objects.map(lambda value: json.dumps(value).encode()),
    plain.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
    st.sampled_from([b"\xff\xfe{}", b'"\xc3\x28"', b'{"a":' * 5_000, b"[" * 200_000, b'{"at": "\\ud800"}']),
)
queries = st.dictionaries(
    st.sampled_from(["tenant", "limit", "offset", "q", "sort", "attempt", "after", *MEMBERS]) | texts, texts, max_size=3
)
# DEL is no character of a header: the HTTP server rejects it, as the garbage below.
characters = st.characters(min_codepoint=33, max_codepoint=255, exclude_characters="\x7f")
header_values = st.text(characters, max_size=40) | st.sampled_from(["", "a" * 8_000])
headers = st.dictionaries(
    st.sampled_from(["Accept", "Content-Type", "Content-Encoding", "Cookie", "Origin", "Range", "X-Idempotency-Key"]),
    header_values,
    max_size=3,
)
FUZZED = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="module")
def served() -> Iterator[Sandbox]:
    """A sandbox in a thread, its clock frozen: whatever is done to it stays done until the tests are over."""
    with Sandbox(seed=3, frozen=True).in_thread() as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def routes(served) -> list[tuple[str, str]]:
    """Every route there is."""
    app = make_app(served.platform)
    return sorted(
        {
            (route.method, route.resource.canonical)
            for route in app.router.routes()
            if route.resource.canonical not in ENDLESS
        }
    )


def check(status: int, content_type: str, body: bytes) -> None:
    """A response of a known kind that gives nothing away."""
    assert status < 500, body
    kind = content_type.partition(";")[0]
    assert kind in KINDS or status in {204, 302, 303, 304}, (kind, body)
    text = body.decode(errors="replace")
    assert not [trace for trace in TRACES if trace in text], text
    if kind == "application/json" and body:
        msgspec.json.decode(body)


def test_every_route_responds_to_every_request(served, routes, caplog):
    """Hostile ids, parameters, headers and bodies on every route: of the contract, the control API and the pages."""

    @FUZZED
    @given(data=st.data())
    def fuzz(data) -> None:
        method, path = data.draw(st.sampled_from(routes))
        while "{" in path:
            before, _, remaining = path.partition("{")
            name, _, after = remaining.partition("}")
            value = {"language": "curl"}.get(name) or data.draw(st.sampled_from([*HOSTILE, "POS001", "1"]) | texts)
            path = before + quote(value, safe=data.draw(st.sampled_from(["", "%"])), errors="replace") + after
        safe = data.draw(st.sampled_from(["", "%"]))
        query = "&".join(
            f"{quote(name, errors='replace')}={quote(value, safe=safe, errors='replace')}"
            for name, value in data.draw(queries).items()
        )
        sent = {"X-Idempotency-Key": "key", "Content-Type": "application/json", **data.draw(headers)}
        check(*ask(served, method, f"{path}?{query}" if query else path, data.draw(bodies), sent))

    with caplog.at_level(logging.ERROR):
        fuzz()
    assert not caplog.records


def ask(sandbox: Sandbox, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
    """Send a request by hand; return the status, the content type and the body."""
    connection = http.client.HTTPConnection(urlsplit(sandbox.base_url).netloc, timeout=10)
    sent = {"Authorization": f"Bearer {sandbox.access_token}", **headers}
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value.encode("latin-1"))
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return response.status, response.headers.get("Content-Type", ""), response.read()
    finally:
        connection.close()


#: Commands of a good form that ask for what no calendar, database or purse has.
TOO_MUCH = [
    ("PATCH", "policies", {"max_key_length": 10**18}),
    ("POST", "clock/freeze", {"at": "0001-01-01T00:00:00Z"}),
    ("POST", "clock/freeze", {"at": "9999-12-31T23:59:59Z"}),
    ("POST", "clock/advance", {"duration": "P999999D"}),
    ("POST", "plans", {"reason": "x", "auto_recurring": {"transaction_amount": "NaN"}}),
    ("POST", "faults", {"effect": "page_drift", "rows": 2**62}),
]


@pytest.mark.parametrize(("method", "path", "body"), TOO_MUCH)
def test_a_command_that_asks_too_much_is_rejected(served, method, path, body):
    """Taken, it would make later requests fail."""
    status, kind, answer = ask(served, method, f"/_sandbox/{path}", json.dumps(body).encode(), {})

    assert 400 == status, answer
    check(status, kind, answer)


def test_a_failure_inside_is_seen_by_these_tests(served, monkeypatch, caplog):
    """Negative control: a handler that fails is a 500, which the check of every response finds."""

    def fail(book: object, call: object) -> None:
        raise RuntimeError(__file__)

    handler = HANDLERS["release_reports.disable_schedule"]
    monkeypatch.setattr(served.platform, "handlers", {handler.operation.name: replace(handler, handle=fail)})
    answer = ask(served, "DELETE", "/v1/account/release_report/schedule", b"", {})

    assert 500 == answer[0]
    with pytest.raises(AssertionError):
        check(*answer)
    assert not [trace for trace in TRACES if trace in answer[2].decode()], "not even then"
