"""Files that are written as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from shutil import copymode


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
