"""Notifications on the wire: the registration of a webhook, its message and its signature.

The contract shows no payload and no signature, and this file invents none. Users give their own template and signer, or
choose a public standard: CloudEvents 1.0 or Standard Webhooks 1.0.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Mapping
from hmac import digest
from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta, field
from yarl import URL

from paymentsdk import _webhook_signatures as schemes
from paymentsdk._secrets import MaskedRepr
from paymentsdk._validate import is_http, is_loopback
from paymentsdk.resources.common import require
from paymentsdk.sandbox._wire import ControlStruct

Topic: TypeAlias = Literal["orders", "payments", "merchant_orders"]
_HeaderName = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9-]{1,64}\Z")]
_MediaType = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9!#$&^_.+-]{1,64}/[A-Za-z0-9!#$&^_.+-]{1,64}\Z")]

#: The placeholders of templates.
_IN_TEMPLATE = ("id", "topic", "action", "event", "user_id", "application_id", "at")
_VISIBLE = re.compile(r"[!-~]+\Z")
_LONGEST = 2_000
#: The age of the timestamp of the fault `stale_timestamp`. No receiver tolerates it.
_STALE_SECONDS = 3_600


class ManifestSigner(ControlStruct):
    """A signature over a line of text, the manifest, in one header: `ts=...,v1=<hex>`, by HMAC-SHA256.

    The signature does not cover the body.
    """

    header: _HeaderName
    """The name of the header."""
    manifest: Annotated[str, Meta(min_length=1, max_length=_LONGEST)]
    """The text, such as `id:{id};request-id:{request_id};ts:{ts};`. `{id:lower}` is the id in lower case. Parts (up to
    their `;`) with an empty value are left out."""
    unit: Literal["seconds", "milliseconds"] = "seconds"
    """The unit of `ts`, counted from 1970; `seconds` by default."""


class Template(ControlStruct):
    """Your own message.

    Its texts may contain `{id}` (of the order, payment or merchant order), `{topic}`, `{action}` (such as `paid`),
    `{event}` (the id of the notification, the same for all attempts), `{user_id}` (the seller), `{application_id}` and
    `{at}` (when it happened, by the clock of the sandbox).
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

    url: Annotated[str, Meta(max_length=_LONGEST)]
    """The http or https address that notifications are sent to by POST, on this machine or a host of `--allow-host`."""
    topics: Annotated[tuple[Topic, ...], Meta(min_length=1)] = ("orders",)
    """The topics; `orders` by default. Notifications on `payments` and `merchant_orders` are about preferences."""
    secret: Annotated[str, Meta(max_length=_LONGEST)] = ""
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


# --- checks ------------------------------------------------------------------------------------------------------


def check_webhook(request: WebhookRequest, hosts: frozenset[str]) -> None:
    """Check a registration.

    Args:
        request: The registration, with its secret.
        hosts: Hosts besides this machine that notifications may be sent to.

    Raises:
        RequestInvalid: A field is invalid. The error names it.
    """
    check_url(request.url, hosts)
    secret, signer, template = request.secret, request.signer, request.template
    keys = secret.split(" ")
    require(all(map(_VISIBLE.match, keys)) or signer == "none", "$.secret", "has a character that is not visible ASCII")
    if signer == "standard":
        require(all(map(schemes.standard_key, keys)), "$.secret", f"is not {schemes.KEY_FORM}")
    elif signer != "none":
        require(len(keys) == 1, "$.secret", "has a space: a manifest is signed with one secret")
        _check_placeholders("$.signer.manifest", signer.manifest, schemes.IN_MANIFEST)
    if isinstance(template, Template):
        map_texts(template.body, lambda text: _check_placeholders("$.template.body", text, _IN_TEMPLATE))
        map_texts(template.query, lambda text: _check_placeholders("$.template.query", text, _IN_TEMPLATE))


def check_url(url: str, hosts: frozenset[str]) -> URL:
    """Return *url* as an address on this machine or on one of *hosts*. Names below ``localhost`` count as other hosts.

    Raises:
        RequestInvalid: The address is elsewhere, or has a user, a password or an invalid character.
    """
    require(_VISIBLE.match(url), "$.url", "has a space, a line break or another character that a URL cannot have")
    require(is_http(url), "$.url", "is not an http or https address such as http://127.0.0.1:3000/webhooks")
    address = URL(url)
    host = address.host or ""
    require(address.user is None and address.password is None, "$.url", "has a user or a password")
    is_here = is_loopback(host) and not host.endswith(".localhost")  # A name server resolves these names.
    way_out = f"start the sandbox with --allow-host {host}"
    require(is_here or host in hosts, "$.url", f"{host} is not this machine; {way_out} to allow it")
    return address


def _check_placeholders(place: str, text: str, known: Collection[str]) -> None:
    """Check the placeholders and the characters of a text of a template or a manifest."""
    for name in schemes.PLACEHOLDER.findall(text):
        require(name in known, place, f"{{{name}}} is not one of {', '.join(f'{{{name}}}' for name in sorted(known))}")
    require(text.isprintable(), place, "has a line break or another control character")


# --- the message -------------------------------------------------------------------------------------------------


def new_secret(signer: str | ManifestSigner, key: str) -> str:
    """Return *key* as a secret for *signer*."""
    return schemes.PREFIX + b64encode(key.encode()).decode() if signer == "standard" else key


def make_message(
    request: WebhookRequest, values: Mapping[str, str], sent_at: float, faults: tuple[str, ...], hosts: frozenset[str]
) -> tuple[URL, Mapping[str, str], bytes]:
    """Return the URL, the headers and the body of one attempt to deliver a notification.

    Args:
        request: The registration.
        values: The values of the placeholders in templates and manifests. `ts` comes from *sent_at*.
        sent_at: Seconds since 1970 by the machine's clock. Receivers reject any other time.
        faults: The effects that hit the attempt.
        hosts: As in `check_webhook`.

    Raises:
        RequestInvalid: As in `check_url`.
    """
    url = check_url(request.url, hosts)
    template = TEMPLATES[request.template] if isinstance(request.template, str) else request.template
    texts = {name: _filled(text, values) for name, text in template.query.items()}
    body = map_texts(template.body, lambda text: _filled(text, values))
    content = b"" if template.body is None else msgspec.json.encode(body)
    if "stale_timestamp" in faults:
        sent_at -= _STALE_SECONDS
    secret = new_secret(request.signer, "wrong" * 8) if "wrong_signature" in faults else request.secret
    headers = {"Content-Type": template.content_type, "User-Agent": "paymentsdk-sandbox"}
    signer, timestamp = request.signer, str(int(sent_at))
    if signer == "standard":
        keys = (key for text in secret.split(" ") if (key := schemes.standard_key(text)))
        digests = (schemes.standard_digest(key, values["event"], timestamp, content) for key in keys)
        signatures = " ".join(f"v1,{b64encode(signature).decode()}" for signature in digests)
        headers |= zip(schemes.STANDARD, (values["event"], timestamp, signatures), strict=True)
    elif signer != "none":
        timestamp = str(int(sent_at * 1000)) if signer.unit == "milliseconds" else timestamp
        manifest, _ = schemes.manifest_text(signer.manifest, values["id"], values["request_id"], timestamp)
        signature = digest(secret.encode(), manifest.encode(), "sha256").hex()
        headers |= {signer.header: f"ts={timestamp},v1={signature}", "x-request-id": values["request_id"]}
    if "truncated" in faults:
        content = content[: len(content) // 2]
    return url.with_query([*url.query.items(), *texts.items()]) if texts else url, headers, content


def _filled(text: str, values: Mapping[str, str]) -> str:
    return schemes.PLACEHOLDER.sub(lambda match: values[match[1]], text)


def map_texts(value: object, change: Callable[[str], object]) -> object:
    """Return the JSON *value* with *change* applied to each text in it. The names of members do not change."""
    if isinstance(value, dict):
        return {name: map_texts(member, change) for name, member in value.items()}
    if isinstance(value, list):
        return [map_texts(member, change) for member in value]
    return change(value) if isinstance(value, str) else value
