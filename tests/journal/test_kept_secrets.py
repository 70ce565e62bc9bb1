"""What a journal keeps of a payer's credentials: the sealed body while it may have to be sent, and nothing else."""

from __future__ import annotations

import dataclasses
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from paymentsdk import (
    BadRequest,
    ErrorCode,
    OutcomeUnknown,
    PaymentsClient,
    Request,
    Response,
    SendFailed,
)
from paymentsdk.journal import RecordState, Resolution, SQLiteJournal
from paymentsdk.resources.wallet_payments import (
    CREATE,
    WalletChargeRequest,
    WalletPayerRequest,
    WalletPaymentRequest,
)
from paymentsdk.testing import FakeClock, MemoryTransport
from tests.journal.conftest import make_record
from tests.journal.platform import ONCE, TOKEN, URL, Platform

SECRET = "the-payers-token"
MADE = b'{"id":7,"payer":{"id":1,"token":"%s"},"wallet_payment":{"transaction_amount":5}}'
#: As it is, and with an escape that JSON does not need.
FORMS = [SECRET.encode(), b"\\u0074he-payers-token"]


def seal(body: bytes) -> bytes:
    """Hide a body, and show it again."""
    return bytes(byte ^ 0x55 for byte in body)


def payment(token: str = SECRET) -> WalletPaymentRequest:
    """A payment from a wallet."""
    return WalletPaymentRequest(
        wallet_payment=WalletChargeRequest(transaction_amount=Decimal(5)),
        payer=WalletPayerRequest(token=token, type_token="wallet"),
    )


@pytest.fixture
def start(tmp_path: Path, clock: FakeClock, platform: Platform) -> Callable[[], PaymentsClient]:
    """Start a process with the one journal."""

    def start() -> PaymentsClient:
        journal = SQLiteJournal(tmp_path / "payments.db", now=clock.now, seal=seal, unseal=seal)
        transport = MemoryTransport(platform)
        return PaymentsClient(TOKEN, base_url=URL, journal=journal, clock=clock, transport=transport, retry=ONCE)

    return start


def kept(path: Path) -> bytes:
    """Return the bytes of all files of the journal."""
    return b"".join(file.read_bytes() for file in path.iterdir())


def unscrubbed(body: bytes, secrets: object) -> tuple[None, bytes]:
    """Mask nothing."""
    return None, body


@pytest.mark.control("paymentsdk.journal._outcome.read_scrubbed", unscrubbed)
@pytest.mark.parametrize("recovered", [False, True], ids=["by its call", "by recovery"])
@pytest.mark.parametrize("form", FORMS, ids=["plain", "escaped"])
async def test_a_result_is_kept_without_the_payers_token(
    start, platform: Platform, tmp_path: Path, form: bytes, *, recovered: bool
) -> None:
    """The value of a replay is that of the first response; where that had the token there is a mask."""

    def answer(request: Request) -> Response:
        if recovered and len(platform.posts) == 1:
            raise SendFailed("connection reset", sent=True)
        return Response(201, {}, MADE % form)

    platform.fail = answer
    async with start() as client:
        if recovered:
            with pytest.raises(OutcomeUnknown):
                await client.call(CREATE, payment(), once="ride-7")
            await client.recover()
        else:
            first = await client.call(CREATE, payment(), once="ride-7")
            assert (MADE % form, ()) == (first.raw, first.anomalies)
        again = await client.call(CREATE, payment(), once="ride-7")

        assert (7, 0) == (again.value.id, again.attempts)
        assert b'"token":"***"' in again.raw
        assert form not in kept(tmp_path)
        (row,) = await client.journal.records({RecordState.DONE})
        assert form not in row.response.body
        assert "the response repeats a credential; *** was kept in its place" == row.reason


@pytest.mark.control("paymentsdk.journal._outcome.read_scrubbed", unscrubbed)
async def test_a_result_that_cannot_be_read_without_a_token_is_not_told(start, platform: Platform, tmp_path) -> None:
    """Of a token of digits that stands inside a number: nobody is told a number that the platform did not send."""
    platform.fail = lambda request: Response(201, {}, b'{"id":912345678,"wallet_payment":{"transaction_amount":5}}')
    async with start() as client:
        assert 912345678 == (await client.wallet_payments.create(payment("12345678"), once="ride-7")).id
        with pytest.raises(OutcomeUnknown, match="it is done; its response cannot be read"):
            await client.wallet_payments.create(payment("12345678"), once="ride-7")
        assert [RecordState.DONE] == [row.state for row in await client.journal.records(set(RecordState))]

    assert b"12345678" not in kept(tmp_path)
    assert 1 == len(platform.posts)


async def test_header_fields_are_wiped_with_the_body(start, platform: Platform, tmp_path: Path) -> None:
    """The device of a buyer is in the journal while its payment may have to be sent again, and no longer."""
    platform.lose = True
    async with start() as client:
        with pytest.raises(OutcomeUnknown):
            await client.wallet_payments.create(payment(), session_id="device-of-the-buyer", once="ride-7")
        assert seal(b"device-of-the-buyer") in kept(tmp_path)
        platform.lose, platform.fail = False, lambda request: Response(201, {}, MADE % b"x")
        await client.recover()

    assert "device-of-the-buyer" == platform.posts[1].headers["X-Platform-Session-Id"]
    assert seal(b"device-of-the-buyer") not in kept(tmp_path)


REJECTING = dataclasses.replace(CREATE, errors=(*CREATE.errors, ErrorCode(400, "bad_token", "", settles=True)))
REFUSED = b'{"error":"bad_token","message":"the payer %s is unknown","errors":[{"description":"%s"}]}'


@pytest.mark.control("paymentsdk.journal._outcome.read_scrubbed", unscrubbed)
@pytest.mark.parametrize("form", FORMS, ids=["plain", "escaped"])
async def test_a_rejection_is_kept_without_the_payers_token(
    start, platform: Platform, tmp_path: Path, form: bytes
) -> None:
    """Who asks again gets the same error as the first caller, and neither of them has the token."""
    platform.fail = lambda request: Response(400, {}, REFUSED % (form, form))
    errors: list[BadRequest] = []
    async with start() as client:
        for _ in range(2):
            with pytest.raises(BadRequest, match=r"the payer \*\*\* is unknown") as refused:
                await client.call(REJECTING, payment(), once="ride-7")
            errors.append(refused.value)
        content = b"".join(pickle.dumps(error) + repr(vars(error)).encode() for error in errors)
        assert not any(secret in content + kept(tmp_path) for secret in FORMS)

    assert 1 == len(platform.posts)


async def test_a_rejection_that_was_kept_whole_is_told_without_the_token(
    start, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another version or another program may have kept it."""
    platform.fail = lambda request: Response(400, {}, REFUSED % (FORMS[0], FORMS[0]))
    monkeypatch.setattr("paymentsdk.journal._outcome.read_scrubbed", unscrubbed)
    async with start() as client:
        with pytest.raises(BadRequest):
            await client.call(REJECTING, payment(), once="ride-7")
        (row,) = await client.journal.records({RecordState.REFUSED})
        assert FORMS[0] in row.response.body
        with pytest.raises(BadRequest, match=r"the payer \*\*\* is unknown") as refused:
            await client.call(REJECTING, payment(), once="ride-7")

    assert FORMS[0] not in refused.value.raw


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_session_id_is_kept_as_the_body_is(tmp_path: Path, platform: Platform, *, sealed: bool) -> None:
    """It names the device of the payer: it is sealed as the body is, or not kept, and recovery sends it."""
    sessions: list[str | None] = []

    def lose(request: Request) -> Response:
        sessions.append(request.headers.get("X-Platform-Session-Id"))
        if len(sessions) == 1:
            raise SendFailed("connection reset", sent=True)
        return Response(201, {}, b'{"id":7,"wallet_payment":{"transaction_amount":5}}')

    platform.fail = lose
    seals = {"seal": seal, "unseal": seal} if sealed else {}
    for _ in range(2):
        journal = SQLiteJournal(tmp_path / "payments.db", **seals)
        transport = MemoryTransport(platform)
        async with PaymentsClient(TOKEN, base_url=URL, journal=journal, transport=transport, retry=ONCE) as client:
            if sessions:
                await client.recover()
                break
            with pytest.raises(OutcomeUnknown):
                await client.wallet_payments.create(payment(), once="ride-7", session_id="device-of-the-buyer")
            in_doubt = kept(tmp_path)

    assert b"device-of-the-buyer" not in in_doubt
    assert ["device-of-the-buyer"] * (2 if sealed else 1) == sessions


async def test_a_row_whose_body_alone_is_sealed_is_read(tmp_path: Path) -> None:
    """0.2 left the headers of a sealed body as they were."""
    headers, path = {"X-Platform-Session-Id": "device-1"}, tmp_path / "payments.db"
    row = make_record(sensitive=True, headers=headers, body=b"token")
    journal = SQLiteJournal(path, seal=seal, unseal=seal)
    await journal.begin(row, lease=60)
    await journal.aclose()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE record SET sealed = 1, headers = ?", (msgspec.msgpack.encode(headers),))
    journal = SQLiteJournal(path, seal=seal, unseal=seal)
    read = await journal.get(row.key)
    await journal.aclose()

    assert (headers, b"token") == (read.headers, read.body)


async def test_headers_of_a_new_attempt_replace_the_old(tmp_path: Path) -> None:
    """A request that was not sent may be made again with other headers, also where it has no body."""
    journal = SQLiteJournal(tmp_path / "payments.db")
    row = structs.replace(make_record(headers={"X-Trace": "1"}), body=None)
    await journal.begin(row, lease=60)
    await journal.resolve(row.key, Resolution(state=RecordState.NOT_SENT), owner=row.owner)
    await journal.begin(structs.replace(row, headers={"X-Trace": "2"}), lease=60)
    await journal.aclose()
    journal = SQLiteJournal(tmp_path / "payments.db")
    read = await journal.get(row.key)
    await journal.aclose()

    assert {"X-Trace": "2"} == read.headers
