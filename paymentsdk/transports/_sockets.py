"""What both transports of this package do with their sockets."""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable

#: The most bytes of one read.
_READ = 64 * 1024


def shared_buffer() -> memoryview:
    """Return what all connections of a pool read into, one after the other.

    asyncio would ask the system for 256 KiB at each read.
    """
    return memoryview(bytearray(_READ))


def unread_on(wire: socket.socket | None) -> Callable[[int], object]:
    """Return what says, called with 0, whether there are bytes on *wire*, or its end, that nobody has read yet."""
    if wire is not None and sys.platform == "win32":
        return lambda _: select.select([wire.fileno()], [], [], 0)[0]
    if wire is None or not hasattr(select, "poll"):
        return lambda _: None
    poll = select.poll()  # Registered once: a new one per request costs more than the question.
    poll.register(wire.fileno(), select.POLLIN)
    return poll.poll
