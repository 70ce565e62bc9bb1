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
    """Yield a path to write to; after that, *path* is replaced as a whole or not at all, even if the machine stops.

    The owner alone can read a *private* file (mode 0600). Any other file keeps its mode.

    Raises:
        OSError: The file is read-only, or its folder allows no new file to replace it.
    """
    target = path.resolve()  # A link stays, and still points to the file.
    if path.exists() and not target.is_file():
        yield path  # A pipe, a terminal or an open file without a name is written directly.
        return
    if path.exists():
        path.open("ab").close()  # Otherwise an error would name the unfinished file.
    # A unique name: two processes that write the file at the same time must not write into each other's file.
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
        return  # Windows cannot open a directory, and needs no fsync of it.
    with suppress(OSError):  # Some file systems cannot sync a folder, and some folders are unreadable.
        descriptor = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _replaceable(path: Path) -> Iterator[None]:
    """Explain why a file cannot be written: the folder may forbid new files even if the file itself is writable."""
    try:
        yield
    except OSError as error:
        reason = f"its folder allows no new file to replace it ({error.strerror})"
        raise OSError(error.errno, f"cannot write {path}: {reason}; choose a file in another folder") from None
