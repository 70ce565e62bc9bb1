"""Notifications on the wire: the registration of a webhook, its message and its signature.

The contract shows no payload and no signature, and this file invents none. Users give their own template and signer, or
choose a public standard: CloudEvents 1.0 or Standard Webhooks 1.0.
"""

from __future__ import annotations

import re
import time
from base64 import b64encode
from collections.abc import Mapping
from hmac import digest
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta, field
from yarl import URL

from paymentsdk import _webhook_signatures as schemes
from paymentsdk._secrets import MaskedRepr
from paymentsdk._validate import is_loopback
from paymentsdk.resources import preferences
from paymentsdk.resources.common import require
from paymentsdk.sandbox._wire import ControlStruct

Topic: TypeAlias = Literal["orders", "payments", "merchant_orders"]
_HeaderName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9-]{1,64}\Z")]
_MediaType = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}\Z")]

#: The names of the values in templates.
PLACEHOLDERS = ("id", "topic", "action", "event", "user_id", "application_id", "at", "request_id")
#: A placeholder in a text of JSON. Outside of texts, no letter follows a brace.
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LONGEST = 2_000
#: The age of the timestamp of the fault `stale_timestamp`. No receiver tolerates it.
_STALE_SECONDS = 3_600


class ManifestSigner(ControlStruct):
    """A signature over a line of text, the manifest, in one header: `ts=...,v1=<hex>`, by HMAC-SHA256.

    The signature does not cover the body.
    """

    header: _HeaderName
    """The name of the header."""
    manifest: Annotated[str, Meta(pattern=schemes.MANIFEST, max_length=_LONGEST)]
    """The text, such as `id:{id};request-id:{request_id};ts:{ts};`. `{id:lower}` is the id in lower case. Parts (up to
    their `;`) with an empty value are left out."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    """The unit of `ts`, counted from 1970; `seconds` by default."""


class Template(ControlStruct):
    """Your own message.

    Its texts and the names of its members may contain `{id}` (of the order, payment or merchant order), `{topic}`,
    `{action}` (such as `paid`), `{event}` (the id of the notification, the same for all attempts), `{user_id}` (the
    seller), `{application_id}`, `{at}` (when it happened, by the clock of the sandbox) and `{request_id}` (of the
    attempt).
    """

    body: object = None
    """The JSON. The default, `null`, sends no body."""
    query: dict[str, str] = field(default_factory=dict)
    """Parameters that are added to the URL."""
    content_type: _MediaType = "application/json"
    """The content type; `application/json` by default."""


_TYPE = "{topic}.{action}"
_DATA = {"topic": "{topic}", "id": "{id}", "user_id": "{user_id}"}
_CLOUD_EVENT = {"specversion": "1.0", "id": "{event}", "type": _TYPE, "source": "/users/{user_id}"}
TEMPLATES: Mapping[str, Template] = {
    "hint": Template(body={"topic": "{topic}", "id": "{id}"}),
    "standard": Template(body={"type": _TYPE, "timestamp": "{at}", "data": _DATA}),
    "cloudevents": Template(
        body={**_CLOUD_EVENT, "subject": "{id}", "time": "{at}"}, content_type="application/cloudevents+json"
    ),
}


class WebhookRequest(MaskedRepr, ControlStruct):
    """A webhook to register. Since the contract has no payload and no signature, all of it is `x-beyond-contract`."""

    url: Annotated[preferences.URL, Meta(max_length=_LONGEST)]
    """The http or https address that notifications are sent to by POST, on this machine or a host of `--allow-host`."""
    topics: Annotated[tuple[Topic, ...], Meta(min_length=1)] = ("orders",)
    """The topics; `orders` by default. Notifications on `payments` and `merchant_orders` are about preferences."""
    secret: Annotated[str, Meta(pattern=r"\A[ -~]*\Z(?#must be ASCII in one line)", max_length=_LONGEST)] = ""
    """The secret of the signature; a new one by default. `standard` takes `whsec_` and the base64 of 24 to 64 bytes. It
    also takes several of these with spaces between them, and makes a signature with each."""
    signer: Literal["none", "standard"] | ManifestSigner = "standard"
    """How notifications are signed: `none`; `standard` (the default), Standard Webhooks 1.0; or a manifest."""
    template: Literal["standard", "cloudevents", "hint"] | Template = "standard"
    """The message: `standard` (the default), `{type, timestamp, data}`; `cloudevents`, CloudEvents 1.0; `hint`,
    `{topic, id}`; or your own template."""

    __secrets__: ClassVar[frozenset[str]] = frozenset({"secret"})


class Webhook(WebhookRequest):
    """A registered webhook."""

    id: str
    """The id."""
    tenant: int
    """The seller."""
    disabled: bool = False
    """Whether it gets no more notifications, because it responded with 410."""


# --- the message -------------------------------------------------------------------------------------------------


def new_secret(signer: str | ManifestSigner, key: str) -> str:
    """Return *key* as a secret for *signer*."""
    return schemes.PREFIX + b64encode(key.encode()).decode() if signer == "standard" else key


def make_message(
    request: WebhookRequest, values: Mapping[str, str], hosts: frozenset[str], faults: tuple[str, ...] = ()
) -> tuple[URL, Mapping[str, str], bytes]:
    """Return the URL, the headers and the body of one attempt to deliver a notification.

    The signature has the time of the machine: receivers reject any other time.

    Args:
        request: The registration, with its secret.
        values: The values of the placeholders in templates and manifests.
        hosts: Hosts besides this machine that notifications may be sent to.
        faults: The effects that hit the attempt.

    Raises:
        RequestInvalid: The registration cannot be used. The error names the field.
    """
    url = _check_url(request.url, hosts)
    signer = request.signer
    template = request.template if isinstance(request.template, Template) else TEMPLATES[request.template]
    query = msgspec.json.decode(fill("$.template.query", template.query, values))
    content = b"" if template.body is None else fill("$.template.body", template.body, values)
    secret = new_secret(signer, "wrong" * 8) if "wrong_signature" in faults else request.secret
    sent_at = time.time() - (_STALE_SECONDS if "stale_timestamp" in faults else 0)
    headers = {"Content-Type": template.content_type, "User-Agent": "paymentsdk-sandbox"}
    if signer == "standard":
        timestamp = str(int(sent_at))
        keys = [schemes.standard_key("$.secret", text) for text in secret.split(" ")]
        signatures = [schemes.sign_standard(key, values["event"], timestamp, content) for key in keys]
        headers |= zip(schemes.STANDARD, (values["event"], timestamp, " ".join(signatures)), strict=True)
    elif signer != "none":
        timestamp = str(int(sent_at * 1000 if signer.unit == "milliseconds" else sent_at))
        text, _ = schemes.manifest_text(signer.manifest, values["id"], values["request_id"], timestamp)
        signature = digest(secret.encode(), text.encode(), "sha256").hex()
        headers |= {signer.header: f"ts={timestamp},v1={signature}", "x-request-id": values["request_id"]}
    if "truncated" in faults:
        content = content[: len(content) // 2]
    return url.extend_query(query), headers, content


def _check_url(url: str, hosts: frozenset[str]) -> URL:
    """Return *url* as an address on this machine or on one of *hosts*. Names below ``localhost`` count as other hosts.

    Raises:
        RequestInvalid: The address is elsewhere, or has a user or a password.
    """
    address = URL(url)
    host = address.host or ""
    require(address.user is None and address.password is None, "$.url", "has a user or a password")
    is_here = is_loopback(host) and not host.endswith(".localhost")  # A name server resolves these names.
    require(is_here or host in hosts, "$.url", f"{host} is not this machine; allow it with --allow-host {host}")
    return address


def fill(place: str, template: object, values: Mapping[str, str]) -> bytes:
    """Return *template* as JSON with *values* for the placeholders in its texts.

    Raises:
        RequestInvalid: A placeholder has no value. The error names *place*.
    """
    text = msgspec.json.encode(template).decode()
    for name in _PLACEHOLDER.findall(text):
        require(name in values, place, f"has {{{name}}}, but the placeholders are: {', '.join(values) or 'none'}")
    return _PLACEHOLDER.sub(lambda match: msgspec.json.encode(values[match[1]]).decode()[1:-1], text).encode()
