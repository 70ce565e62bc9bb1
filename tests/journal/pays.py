"""A process that charges a wallet, and is killed meanwhile: `python -m tests.journal.pays FILE URL TOKEN`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from decimal import Decimal

from paymentsdk import PaymentsClient
from paymentsdk.journal import SQLiteJournal
from paymentsdk.resources.wallet_payments import WalletChargeRequest, WalletPayerRequest, WalletPaymentRequest

PAYMENT = WalletPaymentRequest(
    wallet_payment=WalletChargeRequest(transaction_amount=Decimal(5), external_reference="ride-7"),
    payer=WalletPayerRequest(token="the-payers-token", type_token="wallet"),
)


def sealed(body: bytes) -> bytes:
    """Encrypt, or decrypt, as far as a test needs that."""
    return body[::-1]


def journal_at(file: str, now: Callable[[], float] = time.time) -> SQLiteJournal:
    """Open a journal that keeps the credentials of payers."""
    return SQLiteJournal(file, seal=sealed, unseal=sealed, now=now)


async def run(file: str, base_url: str, token: str) -> None:
    """Charge the wallet."""
    async with PaymentsClient(token, base_url=base_url, journal=journal_at(file)) as client:
        await client.wallet_payments.create(PAYMENT, once="ride-7")


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:4]))
