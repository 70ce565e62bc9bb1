"""The address of the platform: what is none is rejected, and plain http to another machine carries no credential."""

from __future__ import annotations

from pathlib import Path

import pytest

from paymentsdk import PaymentsClient, RefreshingToken, RequestInvalid, Response
from paymentsdk.journal import SQLiteJournal, derive_key
from paymentsdk.testing import MemoryTransport

ALLOW = "PAYMENTSDK_ALLOW_HTTP"
LOOPBACK = ["http://localhost", "http://shop.localhost:8787", "http://127.0.0.1:8787", "http://[::1]:8787"]
ELSEWHERE = [
    "http://api.example.com",
    "http://sandbox:8787",
    "http://0.0.0.0:8787",
    "http://128.0.0.1",
    "http://127.0.0.1.example.com",
    "http://localhost.example.com",
    "http://2130706433",
]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that allows nothing."""
    monkeypatch.delenv(ALLOW, raising=False)
    return monkeypatch


def client(base_url: str, **options: object) -> PaymentsClient:
    """A client in memory."""
    return PaymentsClient("token", base_url=base_url, transport=MemoryTransport(), **options)


# --- plain http -------------------------------------------------------------------------------------------------------


@pytest.mark.control("paymentsdk._call.settings.is_loopback", lambda host: True)
@pytest.mark.parametrize(
    ("base_url", "credentials"),
    [
        *((base_url, {"access_token": "token"}) for base_url in ELSEWHERE),
        (ELSEWHERE[0], {"client_id": "app", "client_secret": "secret"}),
        (ELSEWHERE[0], {"auth": RefreshingToken()}),
        (ELSEWHERE[0], {"allow_http": False}),
    ],
)
def test_plain_http_to_another_machine_is_rejected(base_url: str, credentials: dict[str, object]) -> None:
    """No client is made that could send a token, a secret, a code or a payer's token readable to all on the way.

    Also without a token yet: the only calls that such a client can make obtain one, with a code or a refresh token.
    """
    with pytest.raises(RequestInvalid) as rejected:
        PaymentsClient(base_url=base_url, transport=MemoryTransport(), **credentials)

    assert "base_url" == rejected.value.path
    for option in ("https", "allow_http=True", f"{ALLOW}=1"):
        assert option in rejected.value.reason
    assert "secret" not in str(rejected.value)


@pytest.mark.control("paymentsdk._call.settings.is_loopback", lambda host: False, raises=RequestInvalid)
@pytest.mark.parametrize("base_url", LOOPBACK)
def test_plain_http_on_this_machine_is_allowed(base_url: str) -> None:
    """What does not leave the machine needs no TLS: the sandbox, and every test against it."""
    client(base_url)


def test_plain_http_is_allowed_on_request(environment: pytest.MonkeyPatch) -> None:
    """One argument, or one variable for containers, says that the network can be trusted."""
    client(ELSEWHERE[0], allow_http=True)
    environment.setenv(ALLOW, "1")
    client(ELSEWHERE[0])

    with pytest.raises(RequestInvalid, match="plain http"):
        client(ELSEWHERE[0], allow_http=False)


@pytest.mark.parametrize("value", ["", "0", "false", "no", "true", " 1"])
def test_only_1_allows_it(value: str, environment: pytest.MonkeyPatch) -> None:
    """A variable that was set to switch it off does not switch it on."""
    environment.setenv(ALLOW, value)

    with pytest.raises(RequestInvalid, match="plain http"):
        client("http://sandbox:8787")


# --- what is no address -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base_url",
    [
        "http://[::1",
        "http://[::g]",
        "http://h:0",
        "http://h:65536",
        "http://h:٨٠",
        "http://:80",
        "http://user:secret@h",
        "http://h%2f@x",
    ],
)
def test_what_is_no_address_is_rejected(base_url: str) -> None:
    """It is rejected when the client is made, with what was wrong and not as plain http, whatever is allowed."""
    for allow_http in (True, None):
        for address in (base_url, base_url.replace("http:", "https:")):
            with pytest.raises(RequestInvalid, match="must be an http or https address") as rejected:
                client(address, allow_http=allow_http)
            assert "base_url" == rejected.value.path
            assert "secret" not in str(rejected.value)


@pytest.mark.parametrize("base_url", ["https://api.example.com", "https://Api.example.com:443/"])
async def test_one_address_has_one_form(base_url: str, tmp_path: Path) -> None:
    """However it is written: the key of a named write is derived from it, and another key would make a second order."""
    date = {"Date": "Tue, 24 Nov 2026 10:00:00 GMT"}
    page, canceled = b'{"paging":{"total":0},"results":[]}', b'{"id":"ORD1","status":"canceled"}'
    transport = MemoryTransport([Response(200, date, page), Response(200, date, canceled)])
    journal = SQLiteJournal(tmp_path / "payments.db")

    async with PaymentsClient("TEST-1-1-a-77", base_url=base_url, transport=transport, journal=journal) as client:
        await client.orders.cancel("ORD1", once="table-7/1")

    key = derive_key("https://api.example.com", "77", "orders.cancel", "table-7/1")
    sent = transport.requests[-1]
    assert "https://api.example.com/v1/orders/ORD1/cancel" == sent.url
    assert key == sent.headers["X-Idempotency-Key"]
