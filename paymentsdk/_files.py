"""Files that only their owner can read, in which SQLite holds locks, and files that are written as a whole."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import copymode

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


@contextmanager
def whole(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield where to write what is *path* in the end: as a whole or not at all, also if the machine stops.

    A *private* file is for its owner alone (mode 0600); any other keeps its mode.

    Raises:
        OSError: It is read-only, or its folder takes no new file that it could be replaced by.
    """
    target = path.resolve()  # A link stays, and leads to it.
    if path.exists() and not target.is_file():
        yield path  # A pipe, a terminal or an open file without a name takes what comes.
        return
    if path.exists():
        path.open("ab").close()  # Else the error would name the other file.
    # Its own name, so that of two who write the file at once none writes into what the other has not finished.
    unfinished = target.with_name(f"{target.name}.{token_hex(4)}.unfinished")
    with _replaceable(path):
        unfinished.touch(0o600 if private else 0o666, exist_ok=False)
    try:
        if target.exists() and not private:
            copymode(target, unfinished)
        yield unfinished
        with unfinished.open("rb+") as file:
            os.fsync(file.fileno())
        with _replaceable(path):
            unfinished.replace(target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if os.name == "nt":
        return  # It opens no directories, and writes their names by itself.
    with suppress(OSError):  # Not every file system can, and not every folder may be read. The file is replaced.
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _replaceable(path: Path) -> Iterator[None]:
    """Say why a file cannot be written: it may well be one that is there, and that everybody may write to."""
    try:
        yield
    except OSError as error:
        why = f"its folder takes no new file that could replace it as a whole ({error.strerror})"
        raise OSError(error.errno, f"cannot write {path}: {why}; name one in another folder") from None
