"""Files that only their owner can read, and in which SQLite holds locks."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path

_MAKING = threading.Lock()


def make_private(path: Path) -> None:
    """Make the empty file *path* for its owner alone (mode 0600), unless it is there; its folder has to be.

    SQLite would make it as the umask allows. One that is there is not opened: to close it again would drop every lock
    that this process has on it. Another process would then take a database that is in use for one that nobody uses,
    and remove its write-ahead log, or roll back what is being written.
    """
    # One at a time: else the first could close the file after the second has found it, and SQLite has locked it.
    with _MAKING, suppress(FileExistsError):
        os.close(os.open(os.path.realpath(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
