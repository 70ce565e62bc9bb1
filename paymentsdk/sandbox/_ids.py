"""Identifiers and credentials in the forms that the contract gives them; the same ones again for the same seed."""

from __future__ import annotations

from datetime import datetime
from random import Random
from uuid import UUID

#: Crockford's alphabet: no letters that look like digits.
_BASE32 = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_TIME_LENGTH, _CHANCE_LENGTH = 10, 16


class SeededRandom(Random):
    """Numbers that come again with the same seed, on purpose: nothing in a sandbox is worth guessing."""


class Ids:
    """Makes identifiers.

    Args:
        seed: What they are derived from. A store that lives on takes another seed at every start.
    """

    def __init__(self, seed: int | str) -> None:
        self._random = SeededRandom(seed)

    def sortable(self, prefix: str, now: datetime) -> str:
        """Return *prefix* and 26 characters that sort by time: ``ORD``, ``PAY``, ``REF``."""
        time, rest = int(now.timestamp() * 1000), self._random.getrandbits(5 * _CHANCE_LENGTH)
        return prefix + _base32(time, _TIME_LENGTH) + _base32(rest, _CHANCE_LENGTH)

    def number(self, digits: int = 10) -> int:
        """Return a number of *digits* digits."""
        return self._random.randrange(10 ** (digits - 1), 10**digits)

    def token(self, length: int = 32) -> str:
        """Return *length* hexadecimal digits."""
        return f"{self._random.getrandbits(4 * length):0{length}x}"

    def uuid(self) -> str:
        """Return a random UUID."""
        return str(UUID(int=self._random.getrandbits(128), version=4))


def _base32(number: int, length: int) -> str:
    return "".join([_BASE32[number >> place & 31] for place in range(5 * (length - 1), -1, -5)])
