"""A notification is believed only if one of the secrets has signed it, a short while ago."""

from __future__ import annotations

import hashlib
import hmac
import logging
import pickle
import traceback
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from standardwebhooks.webhooks import Webhook as PublicLibrary

from paymentsdk import PaymentsError, RequestInvalid
from paymentsdk.webhooks import InvalidSignature, Notification, Webhook

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
SECRET = "whsec_" + b64encode(b"k" * 32).decode()
OLD_SECRET = "whsec_" + b64encode(b"o" * 24).decode()
BODY = b'{"type":"orders.processed","timestamp":"2026-05-04T12:00:00Z","data":{"id":"ORD1","user_id":"77"}}'
MANIFEST = "id:{id};request-id:{request_id};ts:{ts};"


def standard(body: bytes = BODY, *, at: datetime = NOW, event: str = "msg_1", secret: str = SECRET) -> dict[str, str]:
    """Return the header fields that the public library writes for a message."""
    return {
        "webhook-id": event,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": PublicLibrary(secret).sign(event, at, body.decode()),
    }


def manifest(text: str, *, ts: str, secret: str = "s3cret-of-the-app", digest: str = "") -> dict[str, str]:
    """Return the header with the signature over *text*."""
    digest = digest or hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
    return {"X-Signature": f"ts={ts},v1={digest}", "X-Request-Id": "req-9"}


@pytest.fixture(autouse=True)
def noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop this machine's clock at noon."""
    monkeypatch.setattr("time.time", NOW.timestamp)


def reason_of(verify: Callable[[], Notification]) -> str:
    """Return why a notification is rejected."""
    with pytest.raises(InvalidSignature) as caught:
        verify()
    return caught.value.reason


@pytest.mark.parametrize(
    ("body", "topic", "resource", "event", "seller"),
    [
        (BODY, "orders", "ORD1", "msg_1", "77"),
        (b'{"topic":"payments","id":123,"user_id":77}', "payments", "123", "msg_1", "77"),
        (b"plain text", None, None, "msg_1", None),
    ],
)
def test_a_signed_message_is_read(
    body: bytes, topic: str | None, resource: str | None, event: str, seller: str | None
) -> None:
    """The ready templates say topic, id and seller; a signed body of another form is verified, and says nothing."""
    notification = Webhook.standard(SECRET).verify(standard(body), body)

    assert notification == Notification(
        topic=topic, id=resource, event=event, seller=seller, body=body, signed=frozenset({"event", "body"})
    )


def test_a_body_that_was_decoded_is_rejected() -> None:
    """A text is no raw body: encoding it again may change it."""
    with pytest.raises(RequestInvalid, match="raw bytes"):
        Webhook.standard(SECRET).verify(standard(), BODY.decode())  # type: ignore[arg-type]


@pytest.mark.parametrize("secret", [SECRET, OLD_SECRET])
def test_each_secret_is_valid_during_a_rotation(secret: str) -> None:
    """A message that is signed with the old or the new secret, or with both, is verified."""
    webhook = Webhook.standard(SECRET, OLD_SECRET)
    fields = standard(secret=secret)
    headers = {**fields, "webhook-signature": "v1a,abc v1,AAAA " + fields["webhook-signature"]}

    assert webhook.verify(fields, BODY).id == "ORD1"
    assert webhook.verify(headers, BODY).id == "ORD1"


@pytest.mark.parametrize("away", [timedelta(seconds=300), timedelta(seconds=-300)])
def test_a_timestamp_may_differ_by_the_tolerance(away: timedelta) -> None:
    """Five minutes in both directions are valid, a second more is stale."""
    webhook, further = Webhook.standard(SECRET), away + away / 300

    assert webhook.verify(standard(at=NOW + away), BODY).id == "ORD1"
    assert reason_of(lambda: webhook.verify(standard(at=NOW + further), BODY)) == "stale"
    assert Webhook.standard(SECRET, tolerance=301).verify(standard(at=NOW + further), BODY).id == "ORD1"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"webhook-id": ""}, "missing"),
        ({"webhook-timestamp": ""}, "missing"),
        ({"webhook-signature": ""}, "missing"),
        ({"webhook-timestamp": "noon"}, "malformed"),
        ({"webhook-timestamp": "1_777_896_000"}, "malformed"),
        ({"webhook-timestamp": "1777896000000"}, "stale"),
        ({"webhook-id": "msg_1\r\nX-Other: 1"}, "malformed"),
        ({"webhook-signature": "v1,***"}, "mismatch"),
        ({"webhook-signature": "v1,"}, "mismatch"),
        ({"webhook-id": "msg_2"}, "mismatch"),
        ({"webhook-timestamp": "1777896001"}, "mismatch"),
    ],
)
def test_a_header_that_is_not_as_signed_is_rejected(change: dict[str, str], reason: str) -> None:
    """Each header field is needed, has its form, and is covered by the signature."""
    fields = {name: value for name, value in {**standard(), **change}.items() if value}

    assert reason_of(lambda: Webhook.standard(SECRET).verify(fields, BODY)) == reason


@pytest.mark.parametrize(
    "secret",
    [
        *("", "whsec_short", "whsec_" + "é" * 40, "whpk_" + b64encode(b"k" * 32).decode(), SECRET[:-1]),
        *("whsec_" + b64encode(b"k" * length).decode() for length in (23, 65)),
        7,
    ],
)
def test_a_secret_of_another_form_is_rejected(secret: str) -> None:
    """A secret is checked when the webhook is made, and the error does not show it."""
    with pytest.raises(RequestInvalid, match="whsec_ and the base64 of 24 to 64 bytes") as caught:
        Webhook.standard(secret)
    assert "kkkk" not in str(caught.value)


def test_settings_are_checked() -> None:
    """A webhook has a secret, a tolerance, and for a manifest a header and a text with a timestamp."""
    with pytest.raises(RequestInvalid, match="secrets"):
        Webhook.standard()
    with pytest.raises(RequestInvalid, match="tolerance"):
        Webhook.standard(SECRET, tolerance=0)
    with pytest.raises(RequestInvalid, match="header"):
        Webhook.manifest("s", header="X Signature", manifest=MANIFEST)
    with pytest.raises(RequestInvalid, match="secrets"):
        Webhook.manifest("", header="X-Signature", manifest=MANIFEST)
    for text in ("id:{id};", "ts:{ts};user:{user};", "{foo;{id};bar};ts:{ts};"):
        with pytest.raises(RequestInvalid, match="manifest"):
            Webhook.manifest("s", header="X-Signature", manifest=text)


@pytest.mark.parametrize(
    ("declared", "query", "text", "signed"),
    [
        (MANIFEST, "data.id=ORD1&type=orders", "id:ORD1;request-id:req-9;ts:1777896000;", {"id", "request_id", "ts"}),
        (MANIFEST, "id=ORD1&topic=orders", "id:ORD1;request-id:req-9;ts:1777896000;", {"id", "request_id", "ts"}),
        ("id:{id:lower};ts:{ts};", "id=ORD1&topic=orders", "id:ord1;ts:1777896000;", {"id", "ts"}),
        ("{ts}.{id}", "id=ORD1&topic=orders", "1777896000.ORD1", {"id", "ts"}),
    ],
)
def test_a_manifest_signs_what_it_names(declared: str, query: str, text: str, signed: set[str]) -> None:
    """The id comes from the query, and the notification says what the signature covers: never the body."""
    webhook = Webhook.manifest("s3cret-of-the-app", header="x-signature", manifest=declared)

    notification = webhook.verify(manifest(text, ts="1777896000"), b'{"type":"forged","data":{"id":"X"}}', query)

    assert (notification.topic, notification.id, notification.signed) == ("orders", "ORD1", signed)


@pytest.mark.parametrize(
    ("fields", "query", "reason"),
    [
        ({}, "id=ORD1", "missing"),
        ({"X-Signature": "ts=1777896000"}, "id=ORD1", "mismatch"),
        ({"X-Signature": "v1=ab"}, "id=ORD1", "malformed"),
        ({"X-Signature": "ts=1777896000,ts=1777896000,v1=ab"}, "id=ORD1", "malformed"),
        ({"X-Signature": "ts=1777896000,v1=xyz"}, "id=ORD1", "mismatch"),
        ({"X-Signature": "ts=1777896000,v1=ab"}, "id=ORD1&id=ORD2", "malformed"),
        ({"X-Signature": "ts=1777896000,v1=ab"}, urlencode({"id": "ORD1;request-id:req-9"}), "malformed"),
        ({"X-Signature": "ts=1777896000,v1=ab", "X-Request-Id": "a;ts:1"}, "id=ORD1", "malformed"),
    ],
)
def test_a_manifest_of_another_form_is_rejected(fields: dict[str, str], query: str, reason: str) -> None:
    """No value can move into another part of the signed text."""
    webhook = Webhook.manifest("s3cret-of-the-app", header="x-signature", manifest=MANIFEST)

    assert reason_of(lambda: webhook.verify(fields, BODY, query)) == reason


def test_no_secret_shows(caplog: pytest.LogCaptureFixture) -> None:
    """A secret is in no repr, error, traceback with variables, log or pickle; the error itself pickles."""
    webhook = Webhook.standard(SECRET)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(InvalidSignature) as caught:
        webhook.verify(standard(), BODY[:-1])

    traceback_text = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    for text in (repr(webhook), traceback_text, caplog.text):
        assert SECRET not in text
        assert "kkkk" not in text
    with pytest.raises(TypeError):
        pickle.dumps(webhook)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(copy, PaymentsError)
    assert (copy.reason, str(copy)) == ("mismatch", str(caught.value))


def test_no_rejected_secret_shows() -> None:
    """No variable of this package has it, nor the signature that was expected."""
    short, expected = SECRET[:20], standard(BODY[:-1])["webhook-signature"]
    calls = (
        lambda: Webhook.standard(SECRET, short),
        lambda: Webhook.standard(SECRET, tolerance=0),
        lambda: Webhook.manifest(SECRET, header="x-signature", manifest="id:{id};"),
        lambda: Webhook.manifest(SECRET, "", header="x-signature", manifest="id:{id};ts:{ts};"),
        lambda: Webhook.standard(SECRET).verify(standard(), BODY[:-1]),
    )
    for call in calls:
        with pytest.raises(PaymentsError) as caught:
            call()
        frames = traceback.walk_tb(caught.tb.tb_next.tb_next)  # Without those of this test.
        traceback_text = "".join(traceback.StackSummary.extract(frames, capture_locals=True).format())
        assert " = " in traceback_text
        for text in (SECRET[6:], short[6:], expected[3:]):
            assert text not in traceback_text
