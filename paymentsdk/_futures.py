"""Futures that nobody waits for any more."""

from __future__ import annotations

import asyncio
from typing import Any


def retrieve_exception(ended: asyncio.Future[Any]) -> None:
    """Look how *ended* has ended: else asyncio would log, perhaps much later, that nobody did."""
    if not ended.cancelled():
        ended.exception()
