"""The other package: its platform, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from paymentsdk_foo import FooClient, HmacAuth
from paymentsdk_foo.sandbox import FooSandbox

from paymentsdk import RetryPolicy


@pytest.fixture
async def sandbox() -> AsyncIterator[FooSandbox]:
    """The platform with vouchers."""
    async with FooSandbox(seed=1) as sandbox:
        yield sandbox


@pytest.fixture
async def client(sandbox) -> AsyncIterator[FooClient]:
    """A client of the other package, which signs."""
    auth = HmacAuth(sandbox.KEY_ID, sandbox.SECRET)
    async with FooClient(auth=auth, base_url=sandbox.base_url, retry=RetryPolicy(base_delay=0)) as client:
        yield client
