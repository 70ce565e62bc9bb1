"""An event loop that skips the times in which nothing happens."""

from __future__ import annotations

import asyncio
import selectors

#: Seconds after which nothing is under way any more where client and server share a loop: loopback takes far less.
QUIET = 0.02


class SkippingSelector(selectors.DefaultSelector):
    """Waits a moment for the sockets, and takes the rest of a wait for over."""

    skipped = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready, at once or within that moment."""
        if timeout is None or timeout <= QUIET:
            return super().select(timeout)
        ready = super().select(QUIET)
        if not ready:
            self.skipped += timeout - QUIET
        return ready


class SkippingLoop(asyncio.SelectorEventLoop):
    """Has a clock that goes on by what was skipped."""

    def __init__(self) -> None:
        self.sockets = SkippingSelector()
        super().__init__(self.sockets)

    def time(self) -> float:
        """Return the time, in seconds."""
        return super().time() + self.sockets.skipped
