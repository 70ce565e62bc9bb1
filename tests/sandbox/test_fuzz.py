"""Whatever comes, the response is one of the contract's: never a 500, a stack trace, or a path of this machine."""

from __future__ import annotations

import logging
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paymentsdk.resources import OPERATIONS
from paymentsdk.sandbox import Sandbox

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**40), 10**40)
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["", "\0", "1e999999999", "NaN", "2026-01-01", "9" * 400, "a@b.c", "refuse-101@x.y", "../../etc"])
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
raw_numbers = st.sampled_from([b"1e400", b"-1e999999999", b"1" * 5000, b"1.0e-400", b"-0", b"1e99999999999999999999"])


def places(value: object, path: tuple = ()) -> list[tuple]:
    """Every place in *value*, the root included."""
    paths = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, member in items:
        paths += places(member, (*path, name))
    return paths


def put(value: object, path: tuple, new: object) -> object:
    """Return *value* with *new* at *path*."""
    if not path:
        return new
    first, *below = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[first] = put(copy[first], tuple(below), new)
    return copy


@st.composite
def bodies(draw, example: object) -> bytes:
    """Bodies near a good one: members changed or added, numbers that no machine holds, broken bytes."""
    body = msgspec.to_builtins(example)
    for _ in range(draw(st.integers(1, 3))):
        body = put(body, draw(st.sampled_from(places(body))), draw(anything))
    if isinstance(body, dict) and draw(st.booleans()):
        body = {**body, draw(st.text(max_size=12)): draw(anything)}
    try:
        encoded = msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError):
        encoded = repr(body).encode(errors="replace")
    broken = [encoded[: len(encoded) // 2], b"[" * 100_000, b"\xff\0", encoded.replace(b"1", draw(raw_numbers), 1)]
    return draw(st.sampled_from([encoded] * 6 + broken))


@pytest.fixture(scope="module")
def served():
    """A sandbox in a thread, for all examples."""
    with Sandbox(seed=3).in_thread() as sandbox:
        yield sandbox


def leaks(body: bytes) -> list[str]:
    """Return what of the program a response shows, which nobody should ever see."""
    return [word for word in ("Traceback", "site-packages", "paymentsdk/") if word in body.decode()]


FUZZED = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if operation.body])
def test_a_hostile_body_gets_a_documented_rejection(served, name, caplog):
    """No body makes the sandbox fail; what is rejected, is rejected with a code of the operation."""
    operation = OPERATIONS[name]
    documented = {(error.status, error.code) for error in operation.errors}
    keys = iter(range(10**9))

    @FUZZED
    @given(body=bodies(operation.example))
    def fuzz(body: bytes) -> None:
        path = operation.path.replace("{order_id}", "ORD" + "0" * 26)
        status, answer, _ = ask(served, operation.method, path, body, key=f"{name}{next(keys)}")
        assert status < 500, answer
        assert [] == leaks(answer)
        if status >= 400:
            assert documented & {(status, code) for code in codes(answer)}, answer

    with caplog.at_level(logging.ERROR):
        fuzz()
    assert not caplog.records


def codes(body: bytes) -> set[str]:
    """Return every code in a rejection."""
    answer = msgspec.json.decode(body)
    entries = [*answer.get("errors", ()), *(answer.get("cause") or ())]
    return {str(entry["code"]) for entry in entries} | {answer.get("error")}


def ask(sandbox: Sandbox, method: str, path: str, body: bytes = b"", *, key: str = "", headers=()):
    """Send a request by hand: no client library repairs it on the way."""
    import http.client

    connection = http.client.HTTPConnection(sandbox.base_url.removeprefix("http://"), timeout=10)
    try:
        sent = {"Authorization": f"Bearer {sandbox.access_token}", "Content-Type": "application/json", **dict(headers)}
        if key:
            sent["X-Idempotency-Key"] = key
        connection.request(method, path, body=body, headers=sent)
        response = connection.getresponse()
        return response.status, response.read(), response.headers
    finally:
        connection.close()


values = st.text(max_size=30) | st.sampled_from(["-1", "0", "9" * 30, "1e3", "2026-13-01T00:00:00Z", "\0", "%ED%A0%80"])


@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if operation.query])
def test_a_hostile_query_gets_a_documented_rejection(served, name):
    """No query makes the sandbox fail, whatever its parameters are."""
    operation = OPERATIONS[name]
    names = st.sampled_from(sorted(operation.query.__annotations__)) | st.text(max_size=5)

    @FUZZED
    @given(query=st.dictionaries(names, values, max_size=4), raw=st.booleans())
    def fuzz(query: dict[str, str], raw: bool) -> None:
        safe = "%" if raw else ""
        text = "&".join(
            f"{quote(k, safe=safe, errors='replace')}={quote(v, safe=safe, errors='replace')}" for k, v in query.items()
        )
        status, answer, _ = ask(served, "GET", f"{operation.path}?{text}")
        assert status < 500, answer
        assert [] == leaks(answer)

    fuzz()


@FUZZED
@given(text=st.text(min_size=1, max_size=40), raw=st.booleans())
def test_a_hostile_id_gets_a_rejection(served, text, raw):
    """No id in a path makes the sandbox fail."""
    name = quote(text, safe="%" if raw else "", errors="replace")
    for path in ("/v1/orders/{}", "/preapproval_plan/{}", "/checkout/{}", "/qr/{}", "/_sandbox/faults/{}"):
        status, answer, _ = ask(served, "GET", path.format(name))
        assert status < 500, answer


headers = st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=200)


@FUZZED
@given(key=headers, token=headers)
def test_a_hostile_header_gets_a_rejection(served, key, token):
    """Neither a key nor a token makes the sandbox fail."""
    body = msgspec.json.encode(OPERATIONS["orders.create"].example)
    for sent in ({"X-Idempotency-Key": key}, {"Authorization": f"Bearer {token}", "X-Idempotency-Key": "k"}):
        status, answer, _ = ask(served, "POST", "/v1/orders", body, headers=sent)
        assert status < 500, answer
        assert [] == leaks(answer)
