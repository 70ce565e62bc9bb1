"""A sandbox that runs on this machine, and what it is asked through its control API."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    from urllib.error import HTTPError

__all__ = ["DEFAULT_HOST", "DEFAULT_PORT", "Running", "SandboxError"]

T = TypeVar("T")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
#: Seconds to wait for an answer: everything is on this machine.
_PATIENCE = 10


class SandboxError(OSError):
    """The sandbox could not be asked, or refused."""


class Running:
    """A sandbox that runs on this machine.

    Args:
        url: Where; ``PAYMENTSDK_BASE_URL`` unless given, or else where ``paymentsdk sandbox`` listens.

    Attributes:
        named: Whether somebody said where it is.
        url: Where it is.
    """

    def __init__(self, url: str | None) -> None:
        said = url or os.environ.get("PAYMENTSDK_BASE_URL")
        self.named: bool = bool(said)
        self.url: str = (said or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}").rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise SandboxError(f"{self.url} is no http or https address")

    def ask(self, form: type[T], method: str, path: str, body: object = None) -> T:
        """Ask the control API, and return the answer as *form*.

        Raises:
            SandboxError: Nobody answers there, or it refused.
        """
        from http.client import HTTPException  # noqa: PLC0415 - `paymentsdk --help` does without
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import ProxyHandler, Request, build_opener  # noqa: PLC0415

        content = None if body is None else msgspec.json.encode(body)
        url, headers = f"{self.url}/_sandbox/{path}", {"Content-Type": "application/json"}
        request = Request(url, data=content, headers=headers, method=method)  # noqa: S310 - http or https, see above
        try:
            # A proxy for the rest of the world knows nothing of this machine.
            with build_opener(ProxyHandler({})).open(request, timeout=_PATIENCE) as answer:
                return msgspec.json.decode(answer.read(), type=form)
        except HTTPError as error:
            raise SandboxError(_refusal(error)) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise SandboxError(f"no sandbox at {self.url} ({reason}); start one with: paymentsdk sandbox") from None
        except ValueError:
            raise SandboxError(f"what answers at {self.url} is no sandbox") from None


def _refusal(error: HTTPError) -> str:
    with error:
        try:
            said = json.load(error)
            return f"{error.code} {said['code']}: {said['message']}"
        except (ValueError, KeyError, TypeError):
            return f"{error.code} from {error.url}; is it a sandbox?"
