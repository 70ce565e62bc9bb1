"""What docs/how-to/when-something-is-wrong.md quotes is what a reader sees who makes the mistake."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import ssl
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trustme

from paymentsdk import AiohttpTransport, Http11Transport, PaymentsClient, Response, RetryPolicy, Timeout
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.sandbox import FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport
from tests.faults import FaultServer

PAGE = Path(__file__).parents[2].joinpath("docs/how-to/when-something-is-wrong.md").read_text(encoding="utf-8")
ONCE = RetryPolicy(attempts=1)
#: What carries the requests of the mistakes that are about connections.
KIND: ContextVar[type[AiohttpTransport | Http11Transport]] = ContextVar("kind", default=AiohttpTransport)


def quoted(page: str) -> list[str]:
    """Return what the first column of each table on *page* quotes."""
    cells = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    return [text for cell in cells for _, text in re.findall(r"(`+)(.+?)\1", cell) if text != "`"]


def is_seen(text: str, message: str) -> bool:
    """Whether *text*, in which ``...`` stands for anything, is in what was *said*."""
    return re.search(".*".join(map(re.escape, text.split("..."))), message) is not None


def order(price: Any = Decimal("10.00"), **more: Any) -> OrderRequest:
    """Return an order of one payment."""
    payments = TransactionsRequest(payments=[PaymentRequest(amount=price)])
    return OrderRequest(external_reference="A-1", total_amount=price, transactions=payments, **more)


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """The platform that the mistakes are made with."""
    async with Sandbox() as running:
        yield running


Mistake = Callable[[Sandbox, PaymentsClient], Awaitable[object]]


async def _no_await(sandbox: Sandbox, client: PaymentsClient) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        forgotten: Any = client.orders.get("ORD1")
        try:
            printed = forgotten.status
        except AttributeError as error:
            printed = str(error)
        del forgotten
        gc.collect()
    raise AssertionError(f"{printed}; {caught[0].message}")


async def _no_coroutine(sandbox: Sandbox, client: PaymentsClient) -> None:
    compile("await client.orders.get('ORD1')", "program", "exec")


async def _awaited_search(sandbox: Sandbox, client: PaymentsClient) -> None:
    rows: Any = client.plans.search()
    await rows


async def _plain_loop(sandbox: Sandbox, client: PaymentsClient) -> None:
    rows: Any = client.plans.search()
    for _ in rows:
        pass


async def _plain_with(sandbox: Sandbox, client: PaymentsClient) -> None:
    opened: Any = client
    with opened:
        pass


async def _walked_value(sandbox: Sandbox, client: PaymentsClient) -> None:
    value: Any = client.orders.get("ORD1")
    try:
        async for _ in value:
            pass
    finally:
        value.close()


async def _not_closed(sandbox: Sandbox, client: PaymentsClient) -> None:
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(context["message"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        forgotten = PaymentsClient("TEST-x", base_url=sandbox.base_url)
        await forgotten.with_options(access_token=sandbox.access_token).plans.search().first()
        del forgotten
        gc.collect()
    raise AssertionError("; ".join(messages))


def run_without_plugin() -> str:
    """Return what pytest says of an asynchronous test that no plugin runs."""
    with TemporaryDirectory() as directory:
        Path(directory, "test_it.py").write_text("async def test_it(): ...\n", encoding="utf-8")
        alone = ["-p", "no:asyncio", "-p", "no:anyio", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir=."]
        command = [sys.executable, "-m", "pytest", *alone, "test_it.py"]
        process = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=50, check=False)
    return process.stdout


async def _no_plugin(sandbox: Sandbox, client: PaymentsClient) -> None:
    raise AssertionError(await asyncio.to_thread(run_without_plugin))


async def _no_address(sandbox: Sandbox, client: PaymentsClient) -> None:
    with pytest.MonkeyPatch.context() as here:
        here.delenv("PAYMENTSDK_BASE_URL", raising=False)
        PaymentsClient.from_env()


async def _plain_http(sandbox: Sandbox, client: PaymentsClient) -> None:
    PaymentsClient("TEST-x", base_url="http://sandbox:8787", allow_http=False)


async def _a_float(sandbox: Sandbox, client: PaymentsClient) -> None:
    await client.orders.create(order(10.1))


async def _no_zone(sandbox: Sandbox, client: PaymentsClient) -> None:
    moment = datetime(2026, 1, 1)  # noqa: DTZ001 - the mistake
    await client.merchant_orders.search(last_updated_from=moment).first()


async def _nobody_listens(sandbox: Sandbox, client: PaymentsClient) -> None:
    async with PaymentsClient("TEST-x", base_url="http://127.0.0.1:9", transport=KIND.get()(), retry=ONCE) as lost:
        await lost.orders.get("ORD1")


async def _no_such_host(sandbox: Sandbox, client: PaymentsClient) -> None:
    base_url = "https://nobody.invalid"
    async with PaymentsClient("TEST-x", base_url=base_url, transport=KIND.get()(), retry=ONCE) as lost:
        await lost.orders.get("ORD1")


async def _unknown_authority(sandbox: Sandbox, client: PaymentsClient) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)

    async def nothing(peer: object) -> None:
        """Nobody comes as far as that."""

    async with FaultServer(nothing, tls=context) as server:
        base_url = server.url("")
        async with PaymentsClient("TEST-x", base_url=base_url, transport=KIND.get()(), retry=ONCE) as wary:
            await wary.orders.get("ORD1")


async def _full_pool(sandbox: Sandbox, client: PaymentsClient) -> None:
    transport = KIND.get()(limit=1, drain=0)
    short = Timeout(connect=0.05)
    async with PaymentsClient(
        sandbox.access_token, base_url=sandbox.base_url, transport=transport, timeout=short, retry=ONCE
    ) as narrow:
        with sandbox.faults.add(FaultRule(effect="hang", operation="*")):
            first = asyncio.create_task(narrow.orders.get("ORD1"))
            await asyncio.sleep(0)
            try:
                await narrow.orders.get("ORD1")
            finally:
                first.cancel()
                await asyncio.wait([first])


async def _another_loop(sandbox: Sandbox, client: PaymentsClient) -> None:
    await client.plans.search().first()
    await asyncio.to_thread(asyncio.run, client.plans.search().first())


async def _strange_token(sandbox: Sandbox, client: PaymentsClient) -> None:
    await client.with_options(access_token="TEST-x").plans.search().first()


async def _real_token(sandbox: Sandbox, client: PaymentsClient) -> None:
    await client.with_options(access_token="APP_USR-1-010100-x-1").orders.create(order())


async def _a_fee(sandbox: Sandbox, client: PaymentsClient) -> None:
    await client.orders.create(order(marketplace_fee=Decimal(1)))


async def _one_key(sandbox: Sandbox, client: PaymentsClient) -> None:
    await client.orders.create(order(), idempotency_key="k")
    await client.orders.create(order(Decimal(11)), idempotency_key="k")


async def _too_many(sandbox: Sandbox, client: PaymentsClient) -> None:
    sandbox.faults.add(FaultRule(effect="rate_limit", operation="*", retry_after=60))
    await client.plans.search().first()


async def _empty_page(sandbox: Sandbox, client: PaymentsClient) -> None:
    page = Response(200, {}, b'{"paging":{"offset":0,"limit":10,"total":5},"results":[]}')
    async with PaymentsClient("TEST-x", base_url=sandbox.base_url, transport=MemoryTransport([page])) as capped:
        await capped.invoices.search().collect()


async def _lost_answer(sandbox: Sandbox, client: PaymentsClient) -> None:
    sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="*"))
    await client.with_options(retry=ONCE).orders.create(order())


MISTAKES: dict[str, Mistake] = {
    "coroutine '...' was never awaited": _no_await,
    "'coroutine' object has no attribute '...'": _no_await,
    "'await' outside function": _no_coroutine,
    "object Pager can't be used in 'await' expression": _awaited_search,
    "'Pager' object is not iterable": _plain_loop,
    "'PaymentsClient' object does not support the context manager protocol": _plain_with,
    "'async for' requires an object with __aiter__ method, got coroutine": _walked_value,
    "async def functions are not natively supported": _no_plugin,
    "Unclosed connector": _not_closed,
    "PAYMENTSDK_BASE_URL: is not set in the environment": _no_address,
    "base_url: is plain http, and ... is another machine": _plain_http,
    "an amount is a Decimal, not float": _a_float,
    "a datetime needs a time zone": _no_zone,
    "no connection to the server (...): Connection refused": _nobody_listens,
    "the host name was not resolved (...)": _no_such_host,
    "the server's certificate does not verify (...)": _unknown_authority,
    "all connections that the pool may have are in use": _full_pool,
    "the client belongs to another event loop": _another_loop,
    "401 ... the access token is not known": _strange_token,
    "the sandbox takes no APP_USR token": _real_token,
    "400 marketplace_not_valid ...": _a_fee,
    "409 idempotency_key_already_used ...": _one_key,
    "429 ... [retry after ... s]": _too_many,
    "incomplete: the page at offset ... is empty": _empty_page,
    "outcome unknown after ...": _lost_answer,
}


def test_every_symptom_is_tried():
    """Each text that the page quotes is one that a test below looks for."""
    assert list(MISTAKES) == quoted(PAGE)


@pytest.mark.parametrize(
    ("text", "mistake"), MISTAKES.items(), ids=[mistake.__name__.strip("_") for mistake in MISTAKES.values()]
)
async def test_a_mistake_says_what_the_page_quotes(sandbox: Sandbox, text: str, mistake: Mistake):
    """A reader who searches the page for what is on the screen finds it."""
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - its text is what counts
            await mistake(sandbox, client)

    assert is_seen(text, str(caught.value)), caught.value


CONNECTING = (_nobody_listens, _no_such_host, _unknown_authority, _full_pool)


@pytest.mark.parametrize(
    ("text", "mistake"), [(text, mistake) for text, mistake in MISTAKES.items() if mistake in CONNECTING]
)
async def test_the_fast_transport_says_what_the_page_quotes(sandbox: Sandbox, text: str, mistake: Mistake):
    """What goes wrong with a connection is told in the same words over both transports."""
    KIND.set(Http11Transport)  # For this test alone: each has a context of its own.
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - as above
            await mistake(sandbox, client)

    assert is_seen(text, str(caught.value)), caught.value


def test_a_text_that_is_not_seen_is_found():
    """Negative control: another text, or the parts of one in another order, does not pass for what is seen."""
    message = "401 unauthorized the access token has expired"

    assert is_seen("401 ... has expired", message)
    assert not is_seen("401 ... is not known", message)
    assert not is_seen("has expired ... 401", message)


async def test_an_unpaid_order_is_in_no_search(sandbox: Sandbox):
    """What the page says of a row that is missing: it comes with the payment."""
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        new_order = await client.orders.create(order())
        before = await client.merchant_orders.search().collect()
        sandbox.buyer.pay(new_order)
        after = await client.merchant_orders.search().collect()

    assert [[], ["A-1"]] == [before, [row.external_reference for row in after]]
