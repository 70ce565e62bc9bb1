"""Whom a command speaks for: a profile of a file, with the credentials of each shop by name, or the environment."""

from __future__ import annotations

import os
import stat
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec
from msgspec import Struct

from paymentsdk.errors import RequestInvalid

if TYPE_CHECKING:
    from paymentsdk.client import PaymentsClient

_VARIABLES = ("PAYMENTSDK_BASE_URL", "PAYMENTSDK_ACCESS_TOKEN")


class _Profile(Struct, frozen=True, forbid_unknown_fields=True):
    """One table of the file."""

    base_url: str
    access_token: str
    allow_http: bool | None = None


def connect_by_profile(name: str | None) -> PaymentsClient:
    """Return the client of the profile *name*, of that which PAYMENTSDK_PROFILE names, or of the environment.

    Raises:
        RequestInvalid: There is none, or its file can be read by others.
    """
    from paymentsdk.client import PaymentsClient

    name = name or os.environ.get("PAYMENTSDK_PROFILE") or None
    if name is None:
        for variable in _VARIABLES:
            if not os.environ.get(variable):
                hint = f"Set {' and '.join(_VARIABLES)}, or use --profile with a profile of {_file()}."
                raise RequestInvalid("", f"{variable} is not set. {hint}")
        return PaymentsClient.from_env()
    file = _file()
    found = _profiles(file)
    if name not in found:
        raise RequestInvalid(str(file), f"has no profile {name!r}; it has {', '.join(found) or 'none'}")
    try:
        profile = msgspec.convert(found[name], _Profile)
        return PaymentsClient(profile.access_token, base_url=profile.base_url, allow_http=profile.allow_http)
    except (msgspec.ValidationError, RequestInvalid) as error:
        raise RequestInvalid(f"{file}: {name}", str(error)) from None


def _profiles(file: Path) -> dict[str, object]:
    """Return the profiles in *file*, by name, unchecked: a broken one leaves the others as they are.

    Raises:
        RequestInvalid: It cannot be read, or others can read or change it, or it is no regular file, or not TOML. The
            error shows nothing of what is in it.
    """
    try:
        with open(file, "rb", opener=_at_once) as opened:
            _check_private(file, os.fstat(opened.fileno()))
            return cast("dict[str, object]", msgspec.toml.decode(opened.read().removeprefix(BOM_UTF8)))
    except OSError as error:
        hint = "profiles are read from this file, or from the one that PAYMENTSDK_PROFILES names"
        raise RequestInvalid(str(file), f"{error.strerror or error}; {hint}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestInvalid(str(file), f"is not TOML: {error}") from None


def _at_once(path: str, flags: int) -> int:
    """Open a file, and wait for nobody: a FIFO without a writer would wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _file() -> Path:
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "paymentsdk", "profiles.toml")
    file = Path(os.environ.get("PAYMENTSDK_PROFILES") or usual)
    with suppress(RuntimeError):  # Of a user who does not exist.
        file = file.expanduser()
    return file


def _check_private(file: Path, found: os.stat_result) -> None:
    """Reject a file of secrets that is not its owner's alone; Windows keeps others out of a home by itself."""
    if not stat.S_ISREG(found.st_mode):
        raise RequestInvalid(str(file), "is not a regular file")
    if os.name == "nt":
        return
    if found.st_uid != os.getuid():
        raise RequestInvalid(str(file), "belongs to another user")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(found.st_mode)
        raise RequestInvalid(str(file), f"can be read or changed by others (mode {mode:04o}): run chmod 600 on it")
