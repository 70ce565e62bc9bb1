"""A till of the seller, in a process of its own: it sells until it is killed, and another one goes on where it was."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

from paymentsdk import PaymentsClient
from paymentsdk.cli._demo.seller import Seller
from paymentsdk.journal import SQLiteJournal

if TYPE_CHECKING:
    from paymentsdk.sandbox import Sandbox

#: The number of its first sale: those of the others are smaller.
FIRST = 50_000
#: Sales that it has under way.
AT_ONCE = 4
#: Seconds that have passed for the journal when the next till begins: the leases of the dead one have ended.
LATER = 120.0

_PROGRAM = f"from {__name__} import main; main()"


async def sell_and_die(sandbox: Sandbox, token: str, journal: Path, sales: int) -> list[bytes]:
    """Start a till, kill it in the middle of *sales*, and return the ids of those that it has made known."""
    environment = {"PAYMENTSDK_BASE_URL": sandbox.base_url, "PAYMENTSDK_ACCESS_TOKEN": token}
    till = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM, str(journal), sandbox.external_pos_id, str(sales)),
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
    )
    said = cast("asyncio.StreamReader", till.stdout)
    try:
        return [await said.readline() for _ in range(sales // 2)]
    finally:
        till.kill()
        # Reads on: what it has said since was not heard by anybody.
        await till.communicate()


async def sell(journal: str, external_pos_id: str, sales: int) -> None:
    """Make *sales*, and print a line for each."""
    async with PaymentsClient.from_env(journal=SQLiteJournal(journal)) as client:
        sell_once, numbers = Seller(client, external_pos_id).sell_once, range(FIRST, FIRST + sales)
        async for sold in client.map(sell_once, numbers, concurrency=AT_ONCE):
            print(sold.value.id, flush=True)


def main() -> None:
    """Sell as the arguments say: the journal, the point of sale, and the number of sales."""
    asyncio.run(sell(sys.argv[1], sys.argv[2], int(sys.argv[3])))
