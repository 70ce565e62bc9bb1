"""Snapshots of everything in a sandbox, in memory or as the bytes of a file."""

import sqlite3
from typing import NamedTuple

import msgspec
from msgspec import Struct

from paymentsdk.sandbox._faults import FaultState
from paymentsdk.sandbox._policies import Policies
from paymentsdk.sandbox._store import check_file

#: The bytes in a database's header that say whether it has a write-ahead log. A copy of such a file says so, too, but
#: a database in memory cannot be read with it.
_WRITTEN_HOW, _WITHOUT_LOG = slice(18, 20), b"\1\1"


class _Rest(Struct, forbid_unknown_fields=True):
    """What the database does not contain."""

    policies: Policies
    faults: tuple[FaultState, ...]


class Snapshot(NamedTuple):
    """The state of a sandbox at one moment."""

    documents: sqlite3.Connection
    """The database, with the clock."""
    policies: Policies
    """The policies in force, including values given at the start."""
    faults: tuple[FaultState, ...]
    """The faults in force."""

    def to_bytes(self) -> bytes:
        """Return the snapshot as the bytes of a file, which `from_bytes` reads."""
        rest = msgspec.json.encode(_Rest(self.policies, self.faults))
        with self.documents:
            self.documents.execute("INSERT OR REPLACE INTO settings VALUES ('snapshot', ?)", (rest,))
        content = bytearray(self.documents.serialize())
        content[_WRITTEN_HOW] = _WITHOUT_LOG
        return bytes(content)

    @classmethod
    def from_bytes(cls, content: bytes) -> "Snapshot":
        """Read the result of `to_bytes`.

        Raises:
            ValueError: *content* is not a snapshot, is damaged, or comes from another version.
        """
        documents = sqlite3.connect(":memory:", check_same_thread=False)
        try:
            documents.deserialize(content)
            check_file(documents)
            [(rest,)] = documents.execute("SELECT value FROM settings WHERE name = 'snapshot'").fetchall() or [(b"",)]
            return cls(documents, *msgspec.structs.astuple(msgspec.json.decode(rest, type=_Rest)))
        except (sqlite3.Error, MemoryError, ValueError) as error:
            documents.close()
            reason = f"it is not a snapshot ({error})" if isinstance(error, ValueError) else str(error) or "it is empty"
            raise ValueError(f"cannot load the snapshot: {reason}; save another one with this version") from None
