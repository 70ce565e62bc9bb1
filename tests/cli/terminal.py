"""What a terminal shows."""

from __future__ import annotations

import os


def read(terminal: int, until: bytes | None = None) -> bytes:
    """Return what the terminal shows, to its end or to some words."""
    output = b""
    while until is None or until not in output:
        try:
            part = os.read(terminal, 65_536)
        except OSError:  # Linux says so that nobody is at the other end any more.
            break
        if not part:
            break
        output += part
    return output
