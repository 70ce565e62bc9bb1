"""Writes that take effect exactly once, even if the process dies.

A record is one business fact that you name: ``create(..., once="table-7/1")``. The journal keeps it before the first
byte is sent, with its idempotency key and its exact bytes. The key is derived from the name, so it is the same in every
process.
"""

from __future__ import annotations

from paymentsdk.journal._journal import Journal, RecordResolved, RecordsOpen, RecoverySummary, derive_key
from paymentsdk.journal._record import (
    Action,
    Record,
    RecordState,
    Resolution,
    StoredResponse,
    begin_record,
    claim_record,
    renew_lease,
    resolve_record,
    tombstone,
)
from paymentsdk.journal._table import PostgresJournal, SQLiteJournal

__all__ = [
    "Action",
    "Journal",
    "PostgresJournal",
    "Record",
    "RecordResolved",
    "RecordState",
    "RecordsOpen",
    "RecoverySummary",
    "Resolution",
    "SQLiteJournal",
    "StoredResponse",
    "begin_record",
    "claim_record",
    "derive_key",
    "renew_lease",
    "resolve_record",
    "tombstone",
]
