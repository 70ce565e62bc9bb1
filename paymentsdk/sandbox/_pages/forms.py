"""The form of a payment: a token that binds it to its page, and what comes back."""

from __future__ import annotations

import asyncio
import hmac
import os
from typing import Annotated

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from paymentsdk.resources.preferences import MOST_INSTALLMENTS
from paymentsdk.sandbox import _control
from paymentsdk.sandbox._buyer import Outcome, PaymentMethod
from paymentsdk.sandbox._responses import Rejected


class FormKey:
    """Makes and checks the tokens of forms. They end with the process, as the key does."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def token(self, page: str) -> str:
        """Return the token of the form on *page*."""
        return hmac.digest(self._key, page.encode(errors="replace"), "sha256").hex()

    def check(self, page: str, token: str) -> None:
        """Reject a form that was not on *page*.

        Raises:
            Rejected: Its token is another.
        """
        if not hmac.compare_digest(self.token(page).encode(), token.encode(errors="replace")):
            raise Rejected(403, "forbidden", "This form is not from this page, or the sandbox has restarted since.")


class PaymentForm(Struct, frozen=True, kw_only=True):
    """What a buyer sends."""

    form_token: str = ""
    method: PaymentMethod = "account_money"
    installments: Annotated[int, Meta(ge=1, le=MOST_INSTALLMENTS)] = 1
    outcome: Outcome = "approved"


async def read(request: web.Request) -> PaymentForm:
    """Return the form in *request*.

    Raises:
        Rejected: It is no form, too large, or has a value that the page does not offer.
    """
    if request.content_type != "application/x-www-form-urlencoded":
        raise Rejected(415, "unsupported_media_type", "This is not the form of the page.")
    try:
        async with asyncio.timeout(_control.READ_TIMEOUT):
            return msgspec.convert(dict(await request.post()), PaymentForm, strict=False)
    except web.HTTPRequestEntityTooLarge:
        raise Rejected(413, "request_too_large", "The form is too large.") from None
    except (ValueError, LookupError):  # Half a character, an unknown charset, a value of its own.
        raise Rejected(400, "bad_request", "The form has a value that the page does not offer.") from None
