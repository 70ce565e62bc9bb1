"""The driver of PostgreSQL for `_database.py`; `_psycopg.py` has the connection.

No setting and no lock outlasts a transaction, and no statement is prepared behind a pooler. So a pooler, such as
PgBouncer, may use transaction mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeGuard, cast

from msgspec import Struct, structs

from paymentsdk._database import Trouble
from paymentsdk._secrets import masked
from paymentsdk._validate import check_seconds
from paymentsdk.errors import RequestInvalid, import_extra

if TYPE_CHECKING:
    from paymentsdk._database import Connection

#: Classes of SQLSTATE after which the same work may succeed on a new connection: lost connections, a server that is
#: being stopped, transactions that were rolled back because of others, and too many connections.
_PASSING = ("08", "57", "40", "53300")
#: The errors of psycopg without an SQLSTATE for a connection that was lost, or could not be made.
_LOST = frozenset({"OperationalError", "InterfaceError", "ConnectionTimeout"})
#: The SQLSTATE of a lock that was not available in time.
_LOCKED = "55P03"


class Table(Struct, frozen=True):
    """A table of this package."""

    name: str
    version: str
    """The comment of the table: its owner and its version."""
    statements: tuple[str, ...]
    """Statements that make the table."""


class Postgres(Struct, frozen=True):
    """A table of a PostgreSQL server.

    Raises:
        RequestInvalid: *dsn* is not an address of PostgreSQL, or *timeout* is not above 0 and at most a day.
    """

    dsn: str
    """``postgresql://user:password@host:port/database``. It is never shown."""
    timeout: float
    """Seconds that a work may wait and take, including new connections."""
    table: Table
    is_durable: bool = True
    """Whether a commit has to be on the disk."""
    now: Callable[[], float] | None = None
    """The store time; by default the clock of the server."""

    joins = False
    place = "PostgreSQL"

    def __post_init__(self) -> None:
        if not is_dsn(self.dsn):
            raise RequestInvalid("dsn", "must be postgresql://user:password@host:port/database")
        structs.force_setattr(self, "dsn", masked(self.dsn))
        structs.force_setattr(self, "timeout", float(check_seconds("timeout", self.timeout)))

    def connect(self, deadline: float) -> Connection:
        """See `Driver.connect`."""
        library = import_extra("paymentsdk._psycopg", "postgres", "it needs psycopg")
        return cast("Connection", library.connect(self, deadline))

    def trouble(self, error: Exception) -> Trouble:
        """See `Driver.trouble`. psycopg may not be installed, so its classes are recognized by their names."""
        state = getattr(error, "sqlstate", None) or ""
        if isinstance(error, OSError) or state.startswith(_PASSING) or (not state and type(error).__name__ in _LOST):
            return Trouble.PASSING
        if state == _LOCKED:
            return Trouble.LOCKED
        is_of_value = state.startswith("22") or isinstance(error, ValueError) or type(error).__name__ == "DataError"
        return Trouble.VALUE if is_of_value else Trouble.LASTING


def is_dsn(text: object) -> TypeGuard[str]:
    """Return whether *text* is the address of a PostgreSQL server."""
    return isinstance(text, str) and text.startswith(("postgresql://", "postgres://"))
