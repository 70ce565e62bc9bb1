"""A package that is built on this one, from its public names alone, has all that this one has."""

from __future__ import annotations

import ast
import asyncio
import importlib
import pickle
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import aiohttp
import paymentsdk_foo
import pytest
from openapi_spec_validator import validate
from paymentsdk_foo import (
    CREATE,
    PRINT,
    REDEEM,
    FooClient,
    HmacAuth,
    Voucher,
    VoucherRequest,
    Vouchers,
    VoucherSpentError,
    VoucherState,
)
from paymentsdk_foo.sandbox import VOUCHERS, FooSandbox

from docs.describe import names_of
from paymentsdk import (
    OPERATIONS,
    ErrorCode,
    Failure,
    NotFound,
    NotSent,
    OutcomeUnknown,
    PaymentsClient,
    RequestInvalid,
    Response,
    RetryPolicy,
    Timeout,
)
from paymentsdk.errors import APIError, NoAnswer
from paymentsdk.journal import SQLiteJournal
from paymentsdk.sandbox import Documents, FaultRule, Sandbox
from paymentsdk.testing import FakeClock, MemoryTransport

GIFT = VoucherRequest(amount=Decimal("20.00"), reference="gift-1")
#: What is told twice or not at all is seen at once.
AT_ONCE = RetryPolicy(base_delay=0)


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


async def test_its_operations_have_state(client, sandbox):
    """What is created is there, what is redeemed is gone, and the ledger has a line for each."""
    voucher = await client.vouchers.create(GIFT)
    spent = await client.vouchers.redeem(voucher.id, Decimal("20.00"))

    assert VoucherState.SPENT == spent.state
    assert await client.vouchers.get(voucher.id) == spent
    lines = [(entry.kind, entry.amount) for entry in sandbox.ledger() if entry.kind.startswith("voucher")]
    assert [("voucher_created", 0), ("voucher_redeemed", 20)] == lines


async def test_its_searches_are_walked(client):
    """A pager walks the documents of a handler, with its filters, page by page."""
    vouchers = [await client.vouchers.create(replace_reference(number)) for number in range(5)]
    await client.vouchers.redeem(vouchers[0].id, Decimal("20.00"))

    active = await client.vouchers.search(state=VoucherState.ACTIVE, page_size=2).collect()

    assert [voucher.id for voucher in vouchers[1:]] == [voucher.id for voucher in active]


def replace_reference(number: int) -> VoucherRequest:
    """Return a voucher of its own."""
    return VoucherRequest(amount=GIFT.amount, reference=f"gift-{number}")


async def test_its_writes_are_idempotent(client, sandbox):
    """The same key gives the same voucher, in the header that the operation names; another body is a conflict."""
    first = await client.vouchers.create(GIFT, idempotency_key="key-1")
    second = await client.vouchers.create(GIFT, idempotency_key="key-1")

    assert first == second
    with pytest.raises(APIError) as refused:
        await client.vouchers.create(replace_reference(2), idempotency_key="key-1")
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


async def test_a_raw_body(client):
    """Bytes come as they are, asked for as what they are."""
    voucher = await client.vouchers.create(GIFT)

    result = await client.with_result(client.vouchers.print, voucher.id)

    assert result.value == result.raw == b"%PDF-1.7\n% " + voucher.id.encode()
    assert "application/pdf" == result.headers["Content-Type"]


@pytest.mark.parametrize("effect", ["html", "truncate"])
async def test_a_raw_body_that_is_not_what_was_asked_for(client, sandbox, effect: str):
    """The page of a proxy, or half of a file, is no file: the read is repeated, and fails if nothing better comes."""
    voucher = await client.vouchers.create(GIFT)
    page = FaultRule(effect=effect, operation=PRINT.name, **({"status": 599} if effect == "html" else {}))

    with sandbox.faults.add(page), pytest.raises((NoAnswer, APIError)) as failed:
        await client.vouchers.print(voucher.id)

    assert 4 == failed.value.attempts


async def test_a_file_of_another_type_is_not_trusted():
    """A 200 of a proxy has a type of its own; one with none is taken, and so is any where any was asked for."""
    kinds = iter(["text/html; charset=utf-8", "application/pdf; x=y", "text/html"])
    transport = MemoryTransport(lambda _: Response(200, {"content-type": next(kinds)}, b"<html>"))
    async with FooClient("TEST-token", base_url="http://127.0.0.1:1", transport=transport, retry=AT_ONCE) as client:
        result = await client.call(PRINT, voucher_id="VOU1")
        anything = await client.call(replace(PRINT, accept="*/*"), voucher_id="VOU1")

    assert (2, 1) == (result.attempts, anything.attempts)
    assert ["application/pdf", "application/pdf", "*/*"] == [
        request.headers["Accept"] for request in transport.requests
    ]


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


async def test_the_openapi_document_has_its_operations(sandbox, client):
    """They are described like all others, with their own key header; a file is binary; the document is valid."""
    async with aiohttp.ClientSession() as session, session.get(f"{sandbox.base_url}/openapi.json") as response:
        described = await response.json()

    validate(described)
    create, printed = described["paths"]["/foo/vouchers"]["post"], described["paths"][PRINT.path]["get"]
    assert ["Foo-Request-Id"] == [parameter["name"] for parameter in create["parameters"]]
    assert {"application/pdf"} == printed["responses"]["200"]["content"].keys()
    assert {"vouchers.Voucher", "vouchers.VoucherRequest", "Order"} <= described["components"]["schemas"].keys()


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


def test_an_unknown_job_cannot_be_scheduled(sandbox):
    """It would never happen."""
    context = sandbox.platform.context(sandbox.tenant)
    with pytest.raises(ValueError, match=r"there is no job 'voucher\.melt'; there are .*voucher\.expire"):
        context.schedule(context.now, "voucher.melt", "1")


async def test_a_file_outlives_the_program_whose_jobs_it_has(tmp_path: Path):
    """Without them nothing happens to its things, and everything else goes on."""
    file = str(tmp_path / "foo.db")
    async with Sandbox(db=file, jobs={"foo.end": lambda context, id_: "foo_ended"}) as sandbox:
        context = sandbox.platform.context(sandbox.tenant)
        context.schedule(context.now + timedelta(days=1), "foo.end", "1")
    async with Sandbox(db=file) as sandbox:
        assert "foo_ended" not in {event.kind for event in sandbox.clock.advance(timedelta(days=2))}


def test_a_client_shows_itself_by_its_own_name():
    """A log of two clients tells them apart."""
    assert "<FooClient https://x>" == repr(FooClient(auth=HmacAuth("k", "s"), base_url="https://x"))


@pytest.mark.parametrize("status", [99, 600, 200, "404", True])
def test_a_rejection_with_no_status_of_one(status: object):
    """A misprint would never be found."""
    with pytest.raises(RequestInvalid, match="is not the status of a rejection, 400 to 599"):
        ErrorCode(status, "x", "y")


async def test_a_number_for_a_document_is_one_that_was_not_used(sandbox):
    """Also before there is any document."""
    tills = Documents("tills", Voucher, key=lambda one: one.id)
    context = sandbox.context(sandbox.tenant)
    numbers = [context.number(tills, 1)]
    for digit in range(1, 9):
        context.put(tills, Voucher(id=str(digit)))
    numbers += [context.number(tills, 1) for _ in range(20)]

    assert numbers[0] in range(1, 10)
    assert {9} == {*numbers[1:]}


async def test_documents_belong_to_a_seller(sandbox):
    """Two sellers may have documents of one key, and neither sees, counts or removes those of the other."""
    first = sandbox.platform.context(sandbox.tenant)
    second = sandbox.platform.context(sandbox.create_tenant())
    first.put(VOUCHERS, Voucher(id="1", reference="one"))
    second.put(VOUCHERS, Voucher(id="1", reference="two"))

    assert ("one", "two") == (first.get(VOUCHERS, "1").reference, second.get(VOUCHERS, "1").reference)
    assert (True, False) == (first.remove(VOUCHERS, "1"), first.remove(VOUCHERS, "1"))
    assert (0, 1) == (first.count(VOUCHERS), second.count(VOUCHERS))


async def test_a_question_that_documents_cannot_answer_is_rejected(sandbox):
    """A misspelt column would be ignored, and numbers compared digit by digit: 9 would be above 10."""
    context = sandbox.context(sandbox.tenant)
    context.put(VOUCHERS, Voucher(id="1", reference="one"))

    with pytest.raises(KeyError, match="stat"):
        context.find(VOUCHERS, order="stat")
    with pytest.raises(KeyError, match="stat"):
        context.count(VOUCHERS, [("stat", "=", "new")])
    with pytest.raises(TypeError, match="state is compared as text"):
        context.find(VOUCHERS, [("state", ">", 9)])
    assert [] == context.find(VOUCHERS, [("state", ">", "new")], order="state")


@pytest.mark.parametrize("word", ["", "no name", "x; DROP TABLE ledger", "Vouchers"])
def test_what_documents_cannot_be_called(word: str):
    """A name that no table can have is rejected when it is declared."""
    with pytest.raises(ValueError, match="is not a word"):
        Documents(word, Voucher, key=lambda one: one.id)


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


async def test_the_key_is_not_a_header_of_a_call():
    """A call that set it by hand would have another key than the one that is told."""
    async with FooClient("TEST-t", base_url="http://127.0.0.1:1", transport=MemoryTransport()) as client:
        with pytest.raises(RequestInvalid, match="set by the client itself"):
            await client.call(CREATE, GIFT, headers={"foo-request-id": "mine"})


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


async def test_a_code_comes_before_any_code():
    """What is declared for the code itself wins over what holds for all of its status."""
    errors = (
        ErrorCode(409, "*", "", kind=Failure.RATE_LIMITED),
        ErrorCode(409, "voucher_spent", "", kind=Failure.CLIENT_ERROR, raises=VoucherSpentError),
    )
    spent = Response(409, {}, b'{"code": "voucher_spent", "message": "no"}')
    transport = MemoryTransport([Response(409, {}, b"busy"), spent])
    async with FooClient("TEST-t", base_url="http://127.0.0.1:1", transport=transport, retry=AT_ONCE) as client:
        body = paymentsdk_foo.RedemptionRequest(amount=Decimal(1))
        with pytest.raises(VoucherSpentError) as refused:
            await client.call(replace(REDEEM, errors=errors), body, voucher_id="VOU1")

    assert 2 == refused.value.attempts


async def test_bytes_go_out_as_they_are():
    """A body of bytes is sent as what it is said to be; anything else is rejected."""
    upload = replace(CREATE, name="vouchers.upload", body=bytes, content_type="image/png", echoes=())
    transport = MemoryTransport([Response(201, {}, b'{"id": "VOU1"}')])
    async with FooClient("TEST-t", base_url="http://127.0.0.1:1", transport=transport) as client:
        await client.call(upload, b"\x89PNG")
        with pytest.raises(RequestInvalid, match=r"\$: expected bytes, got str"):
            await client.call(upload, "PNG")

    [request] = transport.requests
    assert (b"\x89PNG", "image/png") == (request.body, request.headers["Content-Type"])


async def test_options_of_one_call(client, sandbox):
    """A resource calls with other options, and stays what it is; an unknown option is a mistake."""
    rule = FaultRule(effect="fail_before_commit", operation="vouchers.*", times=1)
    impatient = client.vouchers.with_options(retry=RetryPolicy(attempts=1), timeout=Timeout(5))

    with sandbox.faults.add(rule), pytest.raises(OutcomeUnknown) as failed:
        await impatient.create(GIFT)
    with sandbox.faults.add(rule):
        await client.vouchers.create(GIFT)

    assert 1 == failed.value.attempts
    with pytest.raises(TypeError, match="no option patience"):
        client.vouchers.with_options(patience=3)


async def test_the_whole_result_of_any_method(client):
    """It has what the method returns, and how the last call was made; of tasks, each has its own."""
    results = await asyncio.gather(
        *(client.with_result(client.vouchers.create, replace_reference(i)) for i in range(3))
    )

    assert [f"gift-{i}" for i in range(3)] == [result.value.reference for result in results]
    assert 3 == len({result.idempotency_key for result in results})
    first = await client.with_result(client.vouchers.search().first)
    assert (first.value.reference, 200) == ("gift-0", first.status)

    class Idle(Vouchers):
        async def nothing(self) -> None:
            """Make no call."""

    for method in (Idle(client).nothing, asyncio.sleep):
        with pytest.raises(RequestInvalid, match=r"made no call|nothing was called"):
            await client.with_result(method)


def test_a_client_knows_its_own_operations():
    """Beside those of the platform, by name; a plain client knows those alone."""
    operations = FooClient("TEST-t", base_url="http://127.0.0.1:1").operations

    assert operations.keys() - OPERATIONS.keys() == {
        f"vouchers.{name}" for name in ("create", "get", "redeem", "search", "print")
    }
    assert OPERATIONS.keys() == PaymentsClient("TEST-t", base_url="http://127.0.0.1:1").operations.keys()


# --- what could do a write twice, or tell of one wrongly --------------------------------------------------------------


async def test_a_result_is_told_to_each_who_asked(sandbox, client):
    """A method that asks for the whole result of its call can be asked for it as well: it has made that call."""

    class Issuing(Vouchers):
        async def issue(self) -> Voucher:
            return (await client.with_result(self.create, GIFT)).value

    result = await client.with_result(Issuing(client).issue)

    assert (201, "gift-1") == (result.status, result.value.reference)


async def test_a_signature_has_no_key_of_its_own(sandbox):
    """With another key at each attempt, a write would be done at each."""

    class Replacing(HmacAuth):
        def sign(self, request, now):
            return {**super().sign(request, now), CREATE.key_header.lower(): str(request.attempt)}

    auth = Replacing(sandbox.KEY_ID, sandbox.SECRET)
    async with FooClient(auth=auth, base_url=sandbox.base_url, retry=AT_ONCE) as client:
        with pytest.raises((NotSent, RequestInvalid), match="is set by the client itself"):
            await client.vouchers.create(GIFT)


async def test_an_own_key_header_is_sent_once():
    """Also where the client has a header of that name, in another case."""
    transport = MemoryTransport(lambda _: Response(503))
    async with FooClient(
        auth=HmacAuth("key", "secret"),
        base_url="http://127.0.0.1:1",
        transport=transport,
        retry=RetryPolicy(attempts=1),
        headers={CREATE.key_header.lower(): "mine"},
    ) as client:
        with pytest.raises(OutcomeUnknown):
            await client.vouchers.create(GIFT, idempotency_key="gift-1")

    [request] = transport.requests
    assert ["gift-1"] == [value for name, value in request.headers.items() if name.lower() == CREATE.key_header.lower()]


@pytest.mark.parametrize("name", ["Authorization", "content-type", "Host"])
def test_a_key_header_that_is_taken(name: str):
    """What the client sets to something else cannot hold a key."""
    with pytest.raises(RequestInvalid, match="key_header"):
        replace(CREATE, key_header=name)


async def test_a_program_that_ends_in_an_observer():
    """What ends the program passes, and leaves no deadline behind that would cancel what the task does next."""
    clock = FakeClock()

    def observer(_: object) -> None:
        raise SystemExit

    transport = MemoryTransport(lambda _: Response(200))
    async with PaymentsClient("token", base_url="http://127.0.0.1:1", transport=transport, clock=clock) as client:
        with pytest.raises(SystemExit):
            await client.with_options(observers=[observer]).orders.get("ORD1")
        clock.advance(3600.0)
        await asyncio.sleep(0)

    assert [] == transport.requests
    assert 0 == asyncio.current_task().cancelling()
