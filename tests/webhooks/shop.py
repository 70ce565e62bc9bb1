"""A shop whose handler works in the database of its inbox."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime

from paymentsdk.webhooks import Look


class Shop:
    """A handler's own table, with one row for each piece of work, and its own connections."""

    def __init__(self, database: str) -> None:
        self.database = database

    async def start(self) -> None:
        """Make the table."""
        await self.run("CREATE TABLE sale (id text, state text)")

    async def run(self, *statements: str) -> list[tuple[object, ...]]:
        """Run statements in one transaction, and return the rows of the last."""
        if self.database.startswith("postgresql://"):
            import asyncpg

            connection = await asyncpg.connect(self.database)
            try:
                async with connection.transaction():
                    rows = [await connection.fetch(statement) for statement in statements][-1]
            finally:
                await connection.close()
            return [tuple(row) for row in rows]
        with closing(sqlite3.connect(self.database, timeout=30)) as file, file:
            return [file.execute(statement).fetchall() for statement in statements][-1]

    async def work(self, look: Look, state: str, updated: datetime | None = None) -> None:
        """Do the work for a state: the fence first, in the same transaction."""
        await self.run(look.fence(state, updated), f"INSERT INTO sale VALUES ('{look.id}', '{state}')")

    async def sales(self) -> list[tuple[object, ...]]:
        """Return the work that was done."""
        return await self.run("SELECT id, state FROM sale")
