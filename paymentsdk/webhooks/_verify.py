"""Verify the signature of a notification, and read which resource it names."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from hmac import compare_digest, digest
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct

from paymentsdk import _webhook_signatures as schemes
from paymentsdk._headers import check_name
from paymentsdk._secrets import HiddenRepr, masked
from paymentsdk._validate import check_seconds
from paymentsdk.errors import PaymentsError
from paymentsdk.resources.common import require
from paymentsdk.transports.base import header

#: The characters of a part of a manifest: a value with a separator could move into another part.
_PART = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_TIMESTAMP = re.compile(r"[0-9]{1,16}")
#: Longer timestamps are in milliseconds: in seconds, they would be after the year 5138.
_MOST_DIGITS = 11
_decode = msgspec.json.Decoder(dict[str, object]).decode
_BYTES = (bytes, bytearray, memoryview)
#: What a signature of Standard Webhooks covers.
_SIGNED = frozenset({"event", "body"})


class InvalidSignature(PaymentsError):  # noqa: N818 - as the other errors of the package
    """The platform did not sign this request. Answer 401 and log the `reason`."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason
        """``"missing"``: no signature. ``"malformed"``: a part of it cannot be read. ``"stale"``: its timestamp is too
        far from this machine's clock. ``"mismatch"``: no secret gives this signature."""


class Notification(Struct, frozen=True, kw_only=True):
    """A verified message that a resource has changed. Read the resource: the message may be late, or one of many."""

    topic: str | None
    """The kind of resource that has changed, such as ``"orders"``; `None` if the message does not say."""
    id: str | None
    """The id of the resource; `None` if the message does not say."""
    event: str | None
    """The id of the message, the same in all its deliveries; `None` with a manifest, which does not sign it."""
    seller: str | None
    """The user id of the seller, according to the message; check it against the address or the secret."""
    body: bytes
    """The body as received."""
    signed: frozenset[str]
    """The parts that the signature covers: ``"body"`` and ``"event"``. With a manifest: its placeholders ``"id"``,
    ``"request_id"`` and ``"ts"`` that had a value, never the body. Trust no other member."""


class Webhook(HiddenRepr):
    """Verifies notifications. Create a verifier for each owner of a secret, and use it from any number of tasks.

    See `standard` and `manifest`.
    """

    __slots__ = ("_header", "_keys", "_manifest", "_tolerance")

    def __init__(self, keys: tuple[bytes, ...], tolerance: float, header: str = "", manifest: str = "") -> None:
        require(keys, "secrets", "at least one is required")
        self._keys = keys
        self._tolerance = check_seconds("tolerance", tolerance)
        self._header = header
        self._manifest = manifest

    @classmethod
    def standard(cls, *secrets: str, tolerance: float = 300) -> Webhook:
        """Return a verifier of Standard Webhooks 1.0, whose signature covers the id, the timestamp and the body.

        Args:
            *secrets: ``whsec_`` and the base64 of 24 to 64 bytes. During a rotation, give the new and the old secret.
            tolerance: The most seconds by which the timestamp may differ from this machine's clock, in both
                directions: above 0 and at most 86,400.

        Raises:
            RequestInvalid: A secret or the tolerance is invalid.
        """
        secrets = tuple(map(masked, secrets))
        return cls(tuple(schemes.standard_key("secrets", secret) for secret in secrets), tolerance)

    @classmethod
    def manifest(cls, *secrets: str, header: str, manifest: str, tolerance: float = 300) -> Webhook:
        """Return a verifier of a header with ``ts=...,v1=<hex>``: HMAC-SHA256 over a text that you declare.

        The signature does not cover the body. So `Notification.id` comes from the query (``data.id`` or ``id``).

        Args:
            *secrets: The secrets as text. During a rotation, give the new and the old secret.
            header: The name of the header with the signature.
            manifest: The signed text, such as ``"id:{id};request-id:{request_id};ts:{ts};"``. ``{ts}`` is required.
                ``{id:lower}`` is the id in lower case; ``{request_id}`` is the ``X-Request-Id``. A part up to its ``;``
                is left out if its value is absent.
            tolerance: As in `standard`. The timestamp is in seconds or milliseconds.

        Raises:
            RequestInvalid: A secret, the manifest, the name of the header or the tolerance is invalid.
        """
        secrets = tuple(map(masked, secrets))
        check_name(header, "header")
        form = "must contain {ts}, and besides it only {id}, {id:lower} and {request_id}"
        require("{ts}" in manifest and re.match(schemes.MANIFEST, manifest), "manifest", form)
        is_text = all(isinstance(secret, str) and secret for secret in secrets)
        require(is_text, "secrets", "must be texts that are not empty")
        return cls(tuple(masked(secret.encode()) for secret in secrets), tolerance, header, manifest)

    def verify(self, headers: Mapping[str, str], body: bytes, query: str = "") -> Notification:
        """Return the notification if one of the secrets has signed it recently.

        Comparing takes the same time for every signature. A replay within the tolerance is valid: reading the resource
        once more does no harm.

        Args:
            headers: The header fields of the request, in any case.
            body: The raw bytes of its body, before any decoding.
            query: The query of its URL, without the question mark.

        Raises:
            InvalidSignature: The signature is missing, malformed, stale or wrong. Its `reason` says which.
            RequestInvalid: *body* is not bytes.
        """
        require(isinstance(body, _BYTES), "body", "must be the raw bytes of the request")
        if self._manifest:
            return self._verify_manifest(headers, bytes(body), query)
        return self._verify_standard(headers, bytes(body))

    def _verify_standard(self, headers: Mapping[str, str], body: bytes) -> Notification:
        event, timestamp, signatures = [_field(headers, name) for name in schemes.STANDARD]
        self._check_age(timestamp)
        _check([schemes.sign_standard(key, event, timestamp, body) for key in self._keys], signatures.split())
        topic, resource, seller = _about(body)
        return Notification(topic=topic, id=resource, event=event, seller=seller, body=body, signed=_SIGNED)

    def _verify_manifest(self, headers: Mapping[str, str], body: bytes, query: str) -> Notification:
        entries = [entry.strip().partition("=") for entry in _field(headers, self._header).split(",")]
        timestamp = _single([value for name, _, value in entries if name == "ts"], f"ts in {self._header}")
        self._check_age(timestamp)
        fields = parse_qs(query, keep_blank_values=True)
        resource = _single(fields.get("data.id") or fields.get("id") or [], "the id in the query")
        request_id = _single([header(headers, "X-Request-Id") or ""], "X-Request-Id")
        text, signed = schemes.manifest_text(self._manifest, resource, request_id, timestamp)
        expected = [masked(digest(key, text.encode(), "sha256").hex()) for key in self._keys]
        _check(expected, [value.lower() for name, _, value in entries if name == "v1"])
        topic, _, seller = _about(body)
        if topics := fields.get("topic") or fields.get("type"):
            topic = _text(topics[0])
        return Notification(topic=topic, id=resource or None, event=None, seller=seller, body=body, signed=signed)

    def _check_age(self, timestamp: str) -> None:
        if not _TIMESTAMP.fullmatch(timestamp):
            raise InvalidSignature("malformed", "the timestamp of the signature is not a whole number")
        is_in_milliseconds = self._manifest and len(timestamp) > _MOST_DIGITS
        age = time.time() - float(timestamp) / (1000 if is_in_milliseconds else 1)
        if abs(age) > self._tolerance:
            raise InvalidSignature("stale", f"the signature is {age:.0f} s old; is this machine's clock right?")


def _field(headers: Mapping[str, str], name: str) -> str:
    value = header(headers, name)
    if not value:
        raise InvalidSignature("missing", f"the request has no {name}")
    if not (value.isascii() and value.isprintable()):
        raise InvalidSignature("malformed", f"{name} has characters that are not printable ASCII")
    return value


def _check(expected: Sequence[str], signatures: Sequence[str]) -> None:
    """Check that one of *signatures* is *expected*, in a time that does not depend on either.

    Raises:
        InvalidSignature: None is.
    """
    if not any(compare_digest(right, signature) for right in expected for signature in signatures):
        words = "no secret gives this signature; was the body changed, or the secret rotated?"
        raise InvalidSignature("mismatch", words)


def _single(values: list[str], place: str) -> str:
    """Return the single value of *values*, or an empty text.

    Raises:
        InvalidSignature: There are several values, or the value could move into another part of the manifest.
    """
    if values in ([], [""]):
        return ""
    if len(values) > 1 or not _PART.fullmatch(values[0]):
        raise InvalidSignature("malformed", f"{place} must be one value of letters, digits, '.', '_' and '-'")
    return values[0]


def _about(body: bytes) -> tuple[str | None, str | None, str | None]:
    """Return topic, resource id and seller of a body: Standard Webhooks, CloudEvents, or a bare hint."""
    try:
        message = _decode(body)
    except (ValueError, RecursionError):
        message = {}
    data = message.get("data")
    data = data if isinstance(data, dict) else {}
    resource = message.get("subject") if "specversion" in message else data.get("id", message.get("id"))
    topic = _text(message.get("topic")) or _text(message.get("type"))
    seller = message.get("user_id", data.get("user_id"))
    # The topic is the first part of a type such as `orders.processed`.
    return topic and topic.partition(".")[0], _text(resource), _text(seller)


def _text(value: object) -> str | None:
    # Not every member is signed: a line break could forge a line of a log. A boolean is no id.
    return str(value) if type(value) is int or (isinstance(value, str) and value and value.isprintable()) else None
