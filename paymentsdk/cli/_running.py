"""A sandbox that runs on this machine, and what it is asked through its control API."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from paymentsdk.cli._arguments import address

if TYPE_CHECKING:
    from http.client import HTTPConnection

T = TypeVar("T")

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8787
#: Seconds to be let in: everything is on this machine.
_TO_CONNECT = 10.0
#: Seconds to wait for what was asked for: ten years of invoices take their time.
_TO_ANSWER = 600.0
_OK = 200
_VARIABLE = "PAYMENTSDK_BASE_URL"


class SandboxError(OSError):
    """The sandbox could not be asked, or rejected."""


class NoResponseError(SandboxError):
    """The sandbox was asked, and nobody knows what came of it."""


class _Rejection(Struct):
    """What the control API says when it rejects."""

    code: str
    message: str


class Running:
    """A sandbox that runs on this machine.

    Args:
        url: Where; ``PAYMENTSDK_BASE_URL`` by default, or else where ``paymentsdk sandbox`` listens.


    Raises:
        argparse.ArgumentTypeError: That is no address.
    """

    def __init__(self, url: str | None) -> None:
        said = address(url) if url else _from_environment()
        self.named: bool = said is not None
        """Whether somebody said where it is."""
        self.url: str = (said or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}").rstrip("/")
        """Where it is."""

    def ask(self, form: type[T], method: str, path: str, body: object = None) -> T:
        """Ask the control API, and return the response as *form*.

        Raises:
            NoResponseError: It was asked, and has not responded.
            SandboxError: Nobody is there, or it rejected.
        """
        status, told = self._request(method, path, b"" if body is None else msgspec.json.encode(body))
        try:
            if status == _OK:
                return msgspec.json.decode(told, type=form)
            rejection = msgspec.json.decode(told, type=_Rejection)
        except ValueError:
            raise SandboxError(f"what responds at {self.url} is not a sandbox (status {status})") from None
        raise SandboxError(f"{status} {rejection.code}: {rejection.message}")

    def _request(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        from http.client import HTTPException

        connection = self._connected()
        target = f"{quote(urlsplit(self.url).path, safe='/%')}/_sandbox/{path}"
        try:
            connection.request(method, target, body or None, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()
        except TimeoutError:
            words = f"the sandbox at {self.url} has not responded within {_TO_ANSWER:.0f} s, and may still be at work"
            raise NoResponseError(words) from None
        except OSError as error:
            words = f"the sandbox at {self.url} has gone without a response ({error}), and may have done what was asked"
            raise NoResponseError(words) from None
        except HTTPException:
            raise SandboxError(f"what responds at {self.url} is not a sandbox") from None
        finally:
            connection.close()

    def _connected(self) -> HTTPConnection:
        from http.client import HTTPConnection, HTTPSConnection

        parts = urlsplit(self.url)
        # Straight there, past any proxy of the environment: that one knows nothing of this machine.
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TO_CONNECT)
        try:
            connection.connect()
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that none can be.
            # In a second terminal the variable is easily forgotten.
            elsewhere = "" if self.named else f", or say where it is with --url or {_VARIABLE}"
            # Without it a new one would not listen where this one is looked for.
            there = f" --port {parts.port}" if parts.port not in (None, DEFAULT_PORT) else ""
            words = f"no sandbox at {self.url} ({error}); start one with: paymentsdk sandbox{there}{elsewhere}"
            raise SandboxError(words) from None
        connection.sock.settimeout(_TO_ANSWER)
        return connection


def _from_environment() -> str | None:
    said = os.environ.get(_VARIABLE)
    try:
        return address(said) if said else None
    except ArgumentTypeError as error:
        raise ArgumentTypeError(f"{_VARIABLE}: {error}") from None
