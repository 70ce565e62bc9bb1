"""What a journal keeps of a payer's credentials: the sealed body while it may have to be sent, and nothing else."""

from __future__ import annotations

import dataclasses
import os
import pickle
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from paymentsdk import BadRequest, ErrorCode, OutcomeUnknown, Request, Response, SendFailed
from paymentsdk.journal import Record, RecordState, Resolution, SQLiteJournal, StoredResponse
from paymentsdk.resources import wallet_payments
from tests.journal.conftest import Start, make_record
from tests.journal.platform import ONCE, PAYMENT, Platform, World

DONE = Resolution(state=RecordState.DONE, response=StoredResponse(201, {}, b'{"id":"ORD1"}'))
MADE = b'{"id":7,"payer":{"id":1,"token":"%s"},"wallet_payment":{"transaction_amount":5}}'
TOKEN = b"payer-token-0123456789"
#: As it is, and with an escape that JSON does not need.
FORMS = [b"the-payers-token", b"\\u0074he-payers-token"]


def seal(body: bytes) -> bytes:
    """Hide a body, and show it again."""
    return bytes(byte ^ 0x55 for byte in body)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal is."""
    return tmp_path / "journal.db"


@pytest.fixture
def start(start: Start, world: World) -> Start:
    """Start a process with the one journal, which seals."""
    return lambda: start(journal=world.journal(seal=seal, unseal=seal), retry=ONCE)


def kept(path: Path) -> bytes:
    """Return the bytes of all files of the journal."""
    return b"".join(file.read_bytes() for file in path.iterdir())


def unscrubbed(body: bytes, secrets: object) -> tuple[None, bytes]:
    """Mask nothing."""
    return None, body


@pytest.mark.control("paymentsdk.journal._outcome.read_scrubbed", unscrubbed)
@pytest.mark.parametrize(("form", "recovered"), [*zip(FORMS, (False, True), strict=True)], ids=["call", "recovery"])
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
                await client.call(wallet_payments.CREATE, PAYMENT, once="ride-7")
            await client.recover()
        else:
            first = await client.call(wallet_payments.CREATE, PAYMENT, once="ride-7")
            assert (MADE % form, ()) == (first.raw, first.anomalies)
        again = await client.call(wallet_payments.CREATE, PAYMENT, once="ride-7")

        assert (7, 0) == (again.value.id, again.attempts)
        assert b'"token":"***"' in again.raw
        assert form not in kept(tmp_path)
        (row,) = await client.journal.records({RecordState.DONE})
        assert form not in row.response.body
        assert "the response repeats a credential; *** was kept in its place" == row.reason


REJECTING = dataclasses.replace(
    wallet_payments.CREATE, errors=(*wallet_payments.CREATE.errors, ErrorCode(400, "bad_token", "", settles=True))
)
REFUSED = b'{"error":"bad_token","message":"the payer %s is unknown","errors":[{"description":"%s"}]}'


@pytest.mark.control("paymentsdk.journal._outcome.read_scrubbed", unscrubbed)
async def test_a_rejection_is_kept_without_the_payers_token(start, platform: Platform, tmp_path: Path) -> None:
    """Who asks again gets the same error as the first caller, and neither of them has the token."""
    platform.fail = lambda request: Response(400, {}, REFUSED % tuple(FORMS))
    errors: list[BadRequest] = []
    async with start() as client:
        for _ in range(2):
            with pytest.raises(BadRequest, match=r"the payer \*\*\* is unknown") as refused:
                await client.call(REJECTING, PAYMENT, once="ride-7")
            errors.append(refused.value)
        content = b"".join(pickle.dumps(error) + repr(vars(error)).encode() for error in errors)
        assert not any(secret in content + kept(tmp_path) for secret in FORMS)

    assert 1 == len(platform.posts)


@pytest.mark.parametrize("sealed", [True, False])
async def test_a_session_id_is_kept_as_the_body_is(
    tmp_path: Path, world: World, platform: Platform, *, sealed: bool
) -> None:
    """It names the device of the payer: it is sealed as the body is, or not kept, and recovery sends it."""
    sessions: list[str | None] = []

    def lose(request: Request) -> Response:
        sessions.append(request.headers.get("X-Platform-Session-Id"))
        if len(sessions) == 1:
            raise SendFailed("connection reset", sent=True)
        return Response(201, {}, b'{"id":7,"wallet_payment":{"transaction_amount":5}}')

    platform.fail = lose
    seals = {"seal": seal, "unseal": seal} if sealed else {}
    async with world.connect(journal=world.journal(**seals), retry=ONCE) as client:
        with pytest.raises(OutcomeUnknown):
            await client.wallet_payments.create(PAYMENT, once="ride-7", session_id="device-of-the-buyer")
    in_doubt = kept(tmp_path)
    async with world.connect(journal=world.journal(**seals)) as client:
        await client.recover()

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


async def test_only_the_owner_reads_the_files(path: Path, record: Callable[..., Record]) -> None:
    """The file and its write-ahead log are for their owner alone, whatever the umask."""
    before = os.umask(0)
    try:
        journal = SQLiteJournal(path)
        await journal.begin(record(), lease=60)
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    await journal.aclose()

    assert {"journal.db", "journal.db-wal", "journal.db-shm"} == set(modes)
    assert {0o600} == set(modes.values())


@pytest.mark.control("paymentsdk._sqlite._SQLiteConnection.rest", lambda self: None)
async def test_a_sealed_body_is_wiped_once_it_is_done(path: Path, record: Callable[..., Record]) -> None:
    """No byte of a sealed body is left in the file or its log when its record is done."""
    journal = SQLiteJournal(path, seal=seal, unseal=seal)
    secret = record(body=b'{"token":"' + TOKEN + b'"}', sensitive=True)
    await journal.begin(secret, lease=60)
    assert secret.body == (await journal.get(secret.key)).body
    assert seal(TOKEN) in kept(path.parent)
    assert TOKEN not in kept(path.parent)
    await journal.resolve(secret.key, DONE, owner="p/1")
    is_left = True  # The journal is not closed: that would empty the log by itself.
    for _ in range(200):
        is_left = seal(TOKEN) in kept(path.parent)
        if not is_left:
            break
        await journal.get(secret.key)
    await journal.aclose()

    assert not is_left


async def test_a_seal_that_is_away_for_a_moment_costs_no_body(path: Path, record: Callable[..., Record]) -> None:
    """Whoever changes an open record meanwhile, such as by renewing its lease, leaves the sealed bytes as they are."""
    away = False

    def unseal(body: bytes) -> bytes:
        if away:
            raise OSError("the service that seals does not respond")
        return seal(body)

    journal, bare = SQLiteJournal(path, seal=seal, unseal=unseal), SQLiteJournal(path)
    secret = record(body=TOKEN, sensitive=True)
    await journal.begin(secret, lease=0)
    away = True
    await journal.renew(secret.key, owner=secret.owner, lease=0)
    await bare.begin(structs.replace(secret, owner="q/1"), lease=60)
    await journal.resolve(secret.key, Resolution(state=RecordState.UNKNOWN), owner="q/1")
    away = False
    [row] = await journal.claim(["77"], owner="r/1", lease=60, keys=[secret.key])

    assert TOKEN == row.body
    for store in (journal, bare):
        await store.aclose()


def test_a_seal_needs_its_opposite(path: Path) -> None:
    """What could never be read again is not sealed."""
    with pytest.raises(TypeError, match="pass both seal and unseal, or neither"):
        SQLiteJournal(path, seal=seal)
