"""A package that is built on this one, from its public names alone, has all that this one has."""

from __future__ import annotations

import ast
import importlib
import pickle
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import paymentsdk_foo
import pytest
from msgspec import structs
from paymentsdk_foo import CREATE, FooClient, HmacAuth, Voucher, VoucherRequest, VoucherSpentError, VoucherState
from paymentsdk_foo.sandbox import FooSandbox

from docs.describe import names_of
from paymentsdk import (
    OPERATIONS,
    AuthenticationFailed,
    ErrorCode,
    Failure,
    NotFound,
    OutcomeUnknown,
    RequestInvalid,
    Response,
    RetryPolicy,
)
from paymentsdk.errors import APIError
from paymentsdk.journal import SQLiteJournal
from paymentsdk.sandbox import Documents, FaultRule, Sandbox
from paymentsdk.testing import MemoryTransport

GIFT = VoucherRequest(amount=Decimal("20.00"), reference="gift-1")


def modules() -> list[Path]:
    """Return the files of the other package."""
    return sorted(Path(paymentsdk_foo.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("file", modules(), ids=lambda file: file.name)
def test_it_is_made_of_public_names(file: Path):
    """Each name that it imports is public in its module, and no module is private."""
    hidden = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "paymentsdk":
            public = names_of(importlib.import_module(node.module))
            hidden += [alias.name for alias in node.names if alias.name not in public or "._" in node.module]

    assert [] == hidden


async def test_each_request_is_signed(sandbox):
    """Whoever signs with another secret is rejected; a token is good as well. The fixed header fields are sent."""
    async with FooClient(auth=HmacAuth("test", "wrong"), base_url=sandbox.base_url) as stranger:
        with pytest.raises(AuthenticationFailed, match="bad_signature"):
            await stranger.vouchers.create(GIFT)
    async with FooClient(sandbox.access_token, base_url=sandbox.base_url) as insider:
        assert GIFT.reference == (await insider.vouchers.create(GIFT)).reference

    transport = MemoryTransport([Response(201, {}, b'{"id": "VOU1"}')])
    async with FooClient(auth=HmacAuth("test", "any"), base_url="http://127.0.0.1:1", transport=transport) as client:
        await client.vouchers.create(GIFT)
    sent = transport.requests[0].headers
    assert {"Authorization", "Foo-Request-Id", "X-Foo-Version", "Content-Type"} <= sent.keys()
    assert "X-Idempotency-Key" not in sent


async def test_its_operations_have_state(client, sandbox):
    """What is created is there, what is redeemed is gone, and the ledger has a line for each."""
    voucher = await client.vouchers.create(GIFT)
    spent = await client.vouchers.redeem(voucher.id, Decimal("20.00"))

    assert VoucherState.SPENT == spent.state
    assert await client.vouchers.get(voucher.id) == spent
    lines = [(entry.kind, entry.amount) for entry in sandbox.ledger() if entry.kind.startswith("voucher")]
    assert [("voucher_created", 0), ("voucher_redeemed", 20)] == lines


async def test_its_writes_are_idempotent(client, sandbox):
    """The same key gives the same voucher, in the header that the operation names; another body is a conflict."""
    first = await client.vouchers.create(GIFT, idempotency_key="key-1")
    second = await client.vouchers.create(GIFT, idempotency_key="key-1")

    assert first == second
    with pytest.raises(APIError) as refused:
        await client.vouchers.create(structs.replace(GIFT, reference="gift-2"), idempotency_key="key-1")
    assert "idempotency_key_already_used" == refused.value.code
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("voucher_created")


async def test_faults_happen_to_its_operations(client, sandbox):
    """A response that is lost after the commit is fetched again with the key; the effect is there once."""
    with sandbox.faults.add(FaultRule(effect="lose_response_after_commit", operation="vouchers.*", times=1)):
        voucher = await client.vouchers.create(GIFT)

    assert GIFT.amount == voucher.left
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("voucher_created")
    with pytest.raises(ValueError, match="no operation is called 'coupons"):
        sandbox.faults.add(FaultRule(effect="hang", operation="coupons.*"))


@pytest.mark.parametrize(("status", "code"), [(400, "try_later"), (425, "too_early")])
async def test_its_own_retry_rule(client, sandbox, status: int, code: str):
    """What the platform says that it has not processed is sent again; any other 400 is final."""
    with sandbox.faults.add(FaultRule(effect="refuse", operation=CREATE.name, status=status, code=code, times=1)):
        result = await client.with_result(client.vouchers.create, GIFT)
    with (
        sandbox.faults.add(FaultRule(effect="refuse", operation=CREATE.name, status=400, code="bad_request", times=1)),
        pytest.raises(APIError) as refused,
    ):
        await client.vouchers.create(GIFT)

    assert 2 == result.attempts
    assert 1 == refused.value.attempts


async def test_its_own_error_class(client, sandbox):
    """The code of an operation raises the class that the operation names, which pickles as all errors do."""
    voucher = await client.vouchers.create(GIFT)

    with pytest.raises(VoucherSpentError) as refused:
        await client.vouchers.redeem(voucher.id, Decimal("20.01"))
    with pytest.raises(NotFound):
        await client.vouchers.get("VOU0")

    assert ("voucher_spent", 1) == (refused.value.code, refused.value.attempts)
    assert "amount: 20.00 is left" in str(refused.value.details)
    assert VoucherSpentError is type(pickle.loads(pickle.dumps(refused.value)))


async def test_its_writes_can_be_journaled(sandbox, tmp_path):
    """Who signs is known by the name of the account; recovery finds the operations of the client."""
    accounts = {"shop": HmacAuth(sandbox.KEY_ID, sandbox.SECRET)}
    settings = {"base_url": sandbox.base_url, "accounts": accounts, "retry": RetryPolicy(attempts=1)}
    lost = FaultRule(effect="lose_response_after_commit", operation=CREATE.name, times=1)
    async with FooClient(**settings, journal=SQLiteJournal(tmp_path / "j.db")) as client:
        with sandbox.faults.add(lost), pytest.raises(OutcomeUnknown):
            await client.account("shop").vouchers.create(GIFT, once="gift/1")
        with pytest.raises(RequestInvalid, match=r"client.account\(name\)"):
            await client.with_options(auth=accounts["shop"]).vouchers.create(GIFT, once="gift/2")
    async with FooClient(**settings, journal=SQLiteJournal(tmp_path / "j.db")) as client:
        summary = await client.recover()
        again = await client.account("shop").vouchers.create(GIFT, once="gift/1")

    assert summary.is_complete
    assert GIFT.amount == again.amount
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("voucher_created")


async def test_what_a_handler_did_is_taken_back_if_it_fails(sandbox, client):
    """All or nothing, also of documents that are new to this sandbox; a snapshot brings them back."""
    notes = Documents("notes", Voucher, key=lambda one: one.id)

    def fail(context: object, call: object) -> object:
        context.put(notes, Voucher(id="1"))
        raise RuntimeError

    async with FooSandbox() as second_sandbox:
        second_sandbox.platform.handlers = {
            **second_sandbox.platform.handlers,
            CREATE.name: replace(second_sandbox.platform.handlers[CREATE.name], handle=fail),
        }
        async with FooClient(
            second_sandbox.access_token, base_url=second_sandbox.base_url, retry=RetryPolicy(attempts=1)
        ) as failing:
            with pytest.raises(OutcomeUnknown):
                await failing.vouchers.create(GIFT)
        context = second_sandbox.platform.context(second_sandbox.tenant)
        assert 0 == context.count(notes)
        second_sandbox.platform.snapshot()
        context.put(notes, Voucher(id="1"))
        assert 1 == context.count(notes)
        second_sandbox.platform.restore()
        assert 0 == context.count(notes)


async def test_a_job_happens_when_its_moment_has_come(sandbox, client):
    """The clock brings it about, as it lets orders of the platform expire; what is spent does not expire."""
    first, second = await client.vouchers.create(GIFT), await client.vouchers.create(GIFT)
    await client.vouchers.redeem(second.id, GIFT.amount)

    assert [] == [event for event in sandbox.clock.advance(timedelta(days=364)) if event.kind == "voucher_expired"]
    happened = [event for event in sandbox.clock.advance(timedelta(days=2)) if event.kind == "voucher_expired"]

    assert [first.id] == [event.id for event in happened]
    assert VoucherState.EXPIRED == (await client.vouchers.get(first.id)).state
    assert VoucherState.SPENT == (await client.vouchers.get(second.id)).state


def test_an_operation_takes_the_place_of_one_of_the_platform():
    """By its name; one of another name with the same method and path is a mistake."""
    get = OPERATIONS["orders.get"]
    assert Sandbox(handlers={get: lambda context, call: None})
    with pytest.raises(ValueError, match=r"orders.mine has the same method and path as orders.get"):
        Sandbox(
            handlers={replace(get, name="orders.mine", path="/v1/orders/{id}", echoes=()): lambda context, call: None}
        )


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"key_header": "no name"}, "vouchers.create.key_header"),
        ({"fixed_headers": {"authorization": "x"}}, "vouchers.create.fixed_headers.authorization"),
        ({"fixed_headers": {"foo-request-id": "x"}}, "vouchers.create.fixed_headers.foo-request-id"),
        ({"fixed_headers": {"Accept": "text/csv"}}, "vouchers.create.fixed_headers.Accept"),
    ],
)
def test_headers_that_an_operation_cannot_declare(change: dict[str, object], place: str):
    """What the engine writes itself, or nobody can send, is rejected at the declaration."""
    with pytest.raises(RequestInvalid) as refused:
        replace(CREATE, **change)

    assert place == refused.value.path


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        ({"status": 400, "code": "x", "kind": Failure.NOT_SENT}, "NOT_SENT is not a meaning of a response"),
        ({"status": 503, "code": "*", "kind": Failure.RATE_LIMITED}, "a gateway sends 503 as well"),
        ({"status": 408, "code": "*", "kind": Failure.CLIENT_ERROR}, "a gateway sends 408 as well"),
        ({"status": 409, "code": "*", "settles": True}, "can never settle"),
    ],
)
def test_codes_that_cannot_be_declared(declared: dict[str, object], reason: str):
    """What would take a gateway's word for the platform's is rejected at the declaration."""
    with pytest.raises(RequestInvalid, match=reason):
        ErrorCode(meaning="", **declared)


# --- what could do a write twice, or tell of one wrongly --------------------------------------------------------------


@pytest.mark.parametrize("name", ["Authorization", "content-type", "Host"])
def test_a_key_header_that_is_taken(name: str):
    """What the client sets to something else cannot hold a key."""
    with pytest.raises(RequestInvalid, match="key_header"):
        replace(CREATE, key_header=name)
