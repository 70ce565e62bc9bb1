"""No credential shows where a store fails, or where a platform repeats it in the id of a request."""

from __future__ import annotations

import errno
import json
import logging
import os
import pickle
import re
from traceback import TracebackException

import pytest

from paymentsdk import OPERATIONS, FileTokenStore, PaymentsError, Response, StaticToken, TokenPair
from paymentsdk.events import AttemptEnded, Event
from paymentsdk.testing import MemoryTransport
from tests.auth.platform import START
from tests.observing import of_attempts

ACCESS, REFRESH = "APP_USR-canary-access-0123456789", "TG-canary-refresh-0123456789"
PAIR = TokenPair(access_token=ACCESS, refresh_token=REFRESH, expires_at=START + 1)


def shown(error: BaseException) -> str:
    """A traceback with the variables of every frame of the package."""
    frames = []
    while error is not None:
        stack = TracebackException.from_exception(error, capture_locals=True).stack
        frames += [str(frame.locals) for frame in stack if f"{os.sep}paymentsdk{os.sep}" in frame.filename]
        error = error.__cause__ or error.__context__
    return "\n".join(frames)


def fails(call: str, number: int):
    """Make a function of `os` that fails, the first time."""
    original = getattr(os, call)

    def failing(*args: object) -> object:
        setattr(os, call, original)
        raise OSError(number, os.strerror(number))

    return failing


@pytest.mark.control("paymentsdk._auth.token_store.masked", lambda content: content)
@pytest.mark.parametrize("step", [("fsync", errno.ENOSPC), ("replace", errno.EIO)], ids=["written", "renamed"])
async def test_a_save_that_fails_shows_no_token(tmp_path, monkeypatch, step: tuple[str, int]) -> None:
    """Wherever saving a pair fails, a traceback with variables holds neither token."""
    store = FileTokenStore(tmp_path / "seller.json")
    monkeypatch.setattr(os, step[0], fails(*step))

    with pytest.raises(OSError, match=re.escape(os.strerror(step[1]))) as failed:
        await store.save(PAIR)

    variables = shown(failed.value)
    assert "_write" in "".join(TracebackException.from_exception(failed.value).format())
    assert "content" in variables
    assert not re.search("canary", variables)


# --- a request id that repeats the token ------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._call.credential.Credential.mask_request_id", lambda self, response, *_: response)
@pytest.mark.parametrize("status", [200, 404, 503])
async def test_an_echoed_token_is_masked_in_the_request_id(make_client, caplog, status: int) -> None:
    """On results and errors, in the log, in pickles, and in what observers see."""
    caplog.set_level(logging.DEBUG)
    attempts: list[AttemptEnded] = []
    response = Response(status, {"x-request-id": f"req-{ACCESS}-1", "Other": "kept"}, b'{"id":"ORD1"}')
    client = make_client(
        auth=StaticToken(ACCESS), observers=of_attempts(attempts.append), transport=MemoryTransport(lambda _: response)
    )
    texts = []

    try:
        result = await client.call(OPERATIONS["orders.cancel"], order_id="ORD1")
        texts += [result.request_id, str(result.headers)]
        request_id = result.request_id
    except PaymentsError as error:
        texts += [str(error), error.request_id, str(vars(error)), str(pickle.dumps(error))]
        request_id = error.request_id

    assert "req-***-1" == request_id
    texts += [str(attempts), caplog.text, str([vars(record) for record in caplog.records])]
    assert not [text for text in texts if "canary" in text]


@pytest.mark.control("paymentsdk._call.settings.secret_values", lambda headers: ())
@pytest.mark.control("paymentsdk._call.engine.secret_values", lambda headers: ())
@pytest.mark.parametrize(("status", "scheme"), [(200, ""), (400, "Bearer ")])
async def test_an_echoed_header_of_ones_own_is_masked(make_client, caplog, status: int, scheme: str) -> None:
    """The key of a gateway is in no error, log or event, whoever gave it: the client, a copy or the call."""
    caplog.set_level(logging.DEBUG)
    keys = [f"gateway-key-canary-{number}" for number in range(3)]
    fields = [{f"X-Api-Key-{number}": scheme + key} for number, key in enumerate(keys)]
    echoed = " ".join(keys)
    response = Response(
        status, {"X-Request-Id": echoed}, json.dumps({"id": "ORD1", "error": "x", "message": echoed}).encode()
    )
    events: list[Event] = []
    transport = MemoryTransport(lambda _: response)
    client = make_client(auth=StaticToken(ACCESS), headers=fields[0], observers=[events.append], transport=transport)
    copy = client.with_options(headers=fields[1])

    try:
        result = await copy.call(OPERATIONS["orders.cancel"], order_id="ORD1", headers=fields[2])
        texts = [result.request_id, str(result.headers)]
    except PaymentsError as error:
        texts = [str(error), error.request_id, str(vars(error)), str(pickle.dumps(error)), repr(copy._engine.settings)]

    assert [f"{scheme}{key}" for key in keys] == [
        transport.requests[0].headers[f"X-Api-Key-{number}"] for number in range(3)
    ]
    texts += [str(events), caplog.text, str([vars(record) for record in caplog.records])]
    assert not [text for text in texts if "canary" in text]
