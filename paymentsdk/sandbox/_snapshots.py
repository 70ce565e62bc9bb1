"""Snapshots of everything in a sandbox, as the bytes of a file."""

import sqlite3

import msgspec
from msgspec import Struct

from paymentsdk.sandbox._faults import FaultState
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._store import check_file

#: The bytes in a database's header that say whether it has a write-ahead log. A copy of such a file says so, too, but
#: a database in memory cannot be read with it.
_WRITTEN_HOW, _WITHOUT_LOG = slice(18, 20), b"\1\1"


class Settings(Struct, forbid_unknown_fields=True):
    """The part of a snapshot that is not in its database."""

    policies: Policies
    """The policies in force, including values given at the start."""
    faults: tuple[FaultState, ...]
    """The faults in force."""


def write_snapshot(documents: sqlite3.Connection, settings: Settings) -> bytes:
    """Return the database *documents* and *settings* as the bytes of a file, which `read_snapshot` reads."""
    with documents:
        written = msgspec.json.encode(settings)
        documents.execute("INSERT OR REPLACE INTO settings VALUES ('snapshot', ?)", (written,))
    content = bytearray(documents.serialize())
    content[_WRITTEN_HOW] = _WITHOUT_LOG
    return bytes(content)


def read_snapshot(content: bytes) -> tuple[sqlite3.Connection, Settings]:
    """Read the result of `write_snapshot`. The caller closes the database.

    Raises:
        ValueError: *content* is not a snapshot, is damaged, or comes from another version.
    """
    documents = sqlite3.connect(":memory:", check_same_thread=False)
    try:
        documents.deserialize(content)
        check_file(documents)
        [(written,)] = documents.execute("SELECT value FROM settings WHERE name = 'snapshot'").fetchall() or [(b"",)]
        return documents, msgspec.json.decode(written, type=Settings)
    except (sqlite3.Error, MemoryError, ValueError) as error:
        documents.close()
        reason = f"it is not a snapshot ({error})" if isinstance(error, ValueError) else str(error) or "it is empty"
        raise ValueError(f"cannot load the snapshot: {reason}; save another one with this version") from None
