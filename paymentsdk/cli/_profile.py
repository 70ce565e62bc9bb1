"""Whom a command speaks for: a profile in a file that nobody else can read, or the environment."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

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


def connect(name: str | None) -> PaymentsClient:
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
    profile = found[name]
    return PaymentsClient(profile.access_token, base_url=profile.base_url, allow_http=profile.allow_http)


def _profiles(file: Path) -> dict[str, _Profile]:
    """Return the profiles in *file*, by name.

    Raises:
        RequestInvalid: It cannot be read, or others can read or change it, or it is no regular file, or holds something
            else. The error shows nothing of what is in it.
    """
    try:
        with open(file, "rb", opener=_at_once) as opened:
            _check_private(file, os.fstat(opened.fileno()))
            return msgspec.toml.decode(opened.read(), type=dict[str, _Profile])
    except OSError as error:
        raise RequestInvalid(str(file), error.strerror or str(error)) from None
    except msgspec.ValidationError as error:
        raise RequestInvalid(str(file), str(error)) from None
    except ValueError as error:
        raise RequestInvalid(str(file), f"is not TOML: {error}") from None


def _at_once(path: str, flags: int) -> int:
    """Open a file, and wait for nobody: a FIFO without a writer would wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _file() -> Path:
    given = os.environ.get("PAYMENTSDK_PROFILES")
    return Path(
        given or Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config", "paymentsdk", "profiles.toml")
    ).expanduser()


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
