"""Bodies that are not JSON: bytes, as they come and go."""

from __future__ import annotations

from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.decode import ResponseDecoder
from paymentsdk._codec.encode import BodyEncoder
from paymentsdk.errors import RequestInvalid


class RawEncoder(BodyEncoder[bytes]):
    """Takes a body of bytes for what it is."""

    def __init__(self) -> None:
        """Nothing has to be compiled."""

    def encode(self, body: bytes) -> bytes:
        """Return *body*.

        Raises:
            RequestInvalid: It is something else.
        """
        if not isinstance(body, bytes):
            raise RequestInvalid("$", f"expected bytes, got {type(body).__name__}", "type")
        return body

    def decode(self, body: bytes) -> bytes:
        """Return *body*."""
        return body


class RawDecoder(ResponseDecoder[bytes]):
    """Takes a response of bytes for what it is."""

    def __init__(self) -> None:
        """Nothing has to be compiled."""

    def decode(self, body: bytes) -> tuple[bytes, tuple[Anomaly, ...]]:
        """Return *body*, in which nothing can have to be repaired."""
        return bytes(body), ()

    async def decode_in_turns(self, body: bytes) -> tuple[bytes, tuple[Anomaly, ...]]:
        """Do what `decode` does."""
        return self.decode(body)
