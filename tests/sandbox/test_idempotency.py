"""Idempotency keys, to the letter of the contract."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from paymentsdk import OPERATIONS, IdempotencyConflict
from paymentsdk.sandbox import FaultRule
from tests.sandbox.conftest import at_once

REPLAYED = "X-Idempotency-Replayed"
WALLET = {"wallet_payment": {"transaction_amount": 80}, "payer": {"token": "t", "type_token": "wallet"}}


async def test_the_same_request_gets_the_same_bytes_again(plain, sandbox, data):
    """Same status, same body, one effect; a header says that it is a replay."""
    first = await plain("POST", "/v1/orders", data(), key="k")
    sandbox.clock.advance("PT1H")
    again = await plain("POST", "/v1/orders", data(), key="k")

    assert (first.status, first.raw) == (again.status, again.raw)
    assert REPLAYED not in first.headers
    assert "true" == again.headers[REPLAYED]
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("order_created")


async def test_a_key_that_comes_twice_at_once_has_one_effect(plain, sandbox, data):
    """The second request finds the response of the first, even if that is not committed yet."""
    await plain("POST", "/v1/orders", data(), key="earlier")  # reads what later ones find in memory
    responses = await at_once(sandbox, *[("POST", "/v1/orders", "k", data())] * 2)

    assert [b"HTTP/1.1 201 Created"] * 2 == [response.partition(b"\r\n")[0] for response in responses]
    assert 1 == len({response.partition(b"\r\n\r\n")[2] for response in responses})
    assert 2 == [entry.kind for entry in sandbox.ledger()].count("order_created")


async def test_spaces_and_order_of_members_do_not_matter(plain, data):
    """The same JSON is the same request, however it is written."""
    body = data()
    first = await plain("POST", "/v1/orders", body, key="k")
    again = await plain("POST", "/v1/orders", dict(reversed(body.items())), key="k")

    assert first.raw == again.raw


async def test_another_body_is_a_conflict(plain, data, client, order):
    """409 `idempotency_key_already_used`, which the client raises as its own error."""
    await plain("POST", "/v1/orders", data(), key="k")

    response = await plain("POST", "/v1/orders", data("51.00"), key="k")
    with pytest.raises(IdempotencyConflict):
        await client.orders.create(order("52.00"), idempotency_key="k")

    assert (409, "idempotency_key_already_used") == (response.status, response.code)


async def test_large_amounts_are_told_apart(plain):
    """Two bodies that differ in a digit that a float cannot hold are two requests."""
    await plain("POST", "/v1/advanced_payments", _wallet(b"9007199254740993.01"), key="k")

    response = await plain("POST", "/v1/advanced_payments", _wallet(b"9007199254740993.02"), key="k")

    assert (409, "idempotency_key_already_used") == (response.status, response.code)


async def test_an_amount_and_its_text_are_told_apart(plain, data):
    """A key that was used with an amount as a number conflicts with the amount as text, and the reverse."""
    order = json.dumps(data("50.00")).encode()
    await plain("POST", "/v1/orders", order, key="k")
    await plain("POST", "/v1/advanced_payments", _wallet(b"80.25"), key="w")

    number = await plain("POST", "/v1/orders", order.replace(b'"50.00"', b"50.00"), key="k")
    text = await plain("POST", "/v1/advanced_payments", _wallet(b'"80.25"'), key="w")

    assert [(409, "idempotency_key_already_used")] * 2 == [(answer.status, answer.code) for answer in (number, text)]


def _wallet(amount: bytes) -> bytes:
    return b'{"wallet_payment": {"transaction_amount": %s}, "payer": {"token": "t", "type_token": "w"}}' % amount


async def test_another_operation_or_another_order_is_a_conflict(plain, client, sandbox, order):
    """A key belongs to one request: operation, path and body."""
    first, second = await client.orders.create(order()), await client.orders.create(order())
    await plain("POST", f"/v1/orders/{first.id}/cancel", key="k")

    conflicts = [
        await plain("POST", f"/v1/orders/{second.id}/cancel", key="k"),
        await plain("POST", f"/v1/orders/{first.id}/refund", key="k"),
        await plain("POST", "/v1/advanced_payments", WALLET, key="k"),
    ]

    assert [409] * 3 == [response.status for response in conflicts]
    assert "created" == (await client.orders.get(second.id)).status


async def test_bytes_are_the_same_to_the_last_one(start, plain_to):
    """An operation without JSON compares the raw bytes: one more blank is another request."""
    wallet = OPERATIONS["wallet_payments.create"]
    upload = replace(wallet, name="uploads.create", path="/uploads", body=bytes, result=bytes, echoes=(), errors=())
    sandbox = await start(handlers={upload: lambda context, request: request.body})
    bodies = (b'{"a": 1}', b'{"a": 1}', b'{ "a": 1}', b"")

    first, again, *conflicts = [await plain_to(sandbox)("POST", "/uploads", body, key="k") for body in bodies]

    assert [(201, bodies[0])] * 2 == [(answer.status, answer.raw) for answer in (first, again)]
    assert [(409, "idempotency_key_already_used")] * 2 == [(answer.status, answer.code) for answer in conflicts]


async def test_a_cancellation_and_a_refund_are_replayed_after_the_state_has_changed(plain, client, sandbox, order):
    """What was saved is given again, although a new request would be rejected by now. An empty body is no body."""
    new_order = await client.orders.create(order())
    bodies = (None, {}, b"", b" \n", b" { } ")
    canceled = [await plain("POST", f"/v1/orders/{new_order.id}/cancel", body, key="c") for body in bodies]
    paid = await client.orders.create(order())
    sandbox.buyer.pay(paid)
    refunded = [await plain("POST", f"/v1/orders/{paid.id}/refund", body, key="r") for body in bodies]

    assert [200] * 5 == [response.status for response in canceled]
    assert [201] * 5 == [response.status for response in refunded]
    assert [1, 1] == [len({response.raw for response in responses}) for responses in (canceled, refunded)]
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("refund")


async def test_a_key_is_forgotten_after_24_hours(plain, sandbox, data):
    """By the sandbox's clock, to the millisecond; then the same key is a new request."""
    first = await plain("POST", "/v1/orders", data(), key="k")
    sandbox.clock.advance("PT23H59M59.999S")
    remembered = await plain("POST", "/v1/orders", data(), key="k")
    sandbox.clock.advance("PT0.001S")
    new = await plain("POST", "/v1/orders", data("60.00"), key="k")

    assert first.raw == remembered.raw
    assert 201 == new.status
    assert first.json["id"] != new.json["id"]


async def test_keys_are_1_to_128_visible_characters(plain, data):
    """400 for any other character, and for more, with a code of their own where the contract has one."""
    for key in ("a b", "é", "a\tb"):
        assert 400 == (await plain("POST", "/v1/orders", data(), key=key)).status
    for key in ("7", "7" * 128, "".join(map(chr, range(33, 127)))):
        assert 201 == (await plain("POST", "/v1/orders", data(), key=key)).status
    codes = {"/v1/orders": "invalid_idempotency_key_length", "/v1/advanced_payments": "bad_request"}
    for path, code in codes.items():
        long = await plain("POST", path, data(), key="7" * 129)
        assert (400, code) == (long.status, long.code)


async def test_keys_belong_to_a_seller(plain, sandbox, data):
    """Two sellers may use the same key."""
    second_seller = sandbox.create_tenant()

    first = await plain("POST", "/v1/orders", data(), key="k")
    second = await plain("POST", "/v1/orders", data("99.00"), key="k", token=second_seller.access_token)

    assert (201, 201) == (first.status, second.status)


async def test_a_keyed_write_needs_a_key(plain):
    """400 `empty_required_header`, for an empty key too; and before anything else is looked at."""
    order = "/v1/orders/ORD" + "0" * 26
    for path, body in (("/v1/orders", {}), (f"{order}/cancel", None), (f"{order}/refund", None)):
        for headers in ({}, {"X-Idempotency-Key": ""}):
            response = await plain("POST", path, body, headers=headers)
            assert (400, "empty_required_header") == (response.status, response.code)


async def test_reads_and_unkeyed_writes_ignore_a_key(plain, client, order, data):
    """A key on a GET or on a preference changes nothing."""
    new_order = await client.orders.create(order())
    body = {"items": [{"title": "t", "quantity": 1, "unit_price": 1}]}

    assert 200 == (await plain("GET", f"/v1/orders/{new_order.id}", key="k")).status
    first, second = [await plain("POST", "/checkout/preferences", body, key="k") for _ in range(2)]
    assert first.json["id"] != second.json["id"]
    assert 201 == (await plain("POST", "/v1/orders", data("2.00"), key="k")).status


async def test_a_failed_request_is_not_remembered(plain, sandbox, data):
    """What had no effect does not use up its key, whatever was wrong, a 4xx by itself included."""
    rules = [{"effect": "fail_before_commit"}, {"effect": "rate_limit"}]
    rules += [{"effect": "refuse", "status": 400, "code": "property_value"}]
    for number, rule in enumerate(rules):
        with sandbox.faults.add(FaultRule(**rule)):
            assert (await plain("POST", "/v1/orders", data("49.00"), key=f"{number}")).status >= 400
        assert 201 == (await plain("POST", "/v1/orders", data(), key=f"{number}")).status

    assert 400 == (await plain("POST", "/v1/orders", data(type="online"), key="k")).status
    assert 201 == (await plain("POST", "/v1/orders", data(), key="k")).status


@pytest.mark.parametrize(("policy", "status"), [("conflict", 409), ("locked", 423)])
async def test_a_concurrent_twin_gets_a_defined_response(start, plain_to, data, until, end_delays, policy, status):  # noqa: PLR0917
    """While the first is on its way, the second is rejected; then it gets the same response, and one order is made."""
    sandbox = await start(policies={"concurrent_twin": policy})
    plain = plain_to(sandbox)
    with sandbox.faults.add(FaultRule(effect="delay_before_commit", seconds=3600, times=1)) as delay:
        first = asyncio.create_task(plain("POST", "/v1/orders", data(), key="k"))
        await until(lambda: delay.hits)
        twin = await plain("POST", "/v1/orders", data(), key="k")
        end_delays(sandbox)
        response = await first
    again = await plain("POST", "/v1/orders", data(), key="k")

    assert (status, "resource_locked") == (twin.status, twin.code)
    assert (201, response.raw) == (response.status, again.raw)
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("order_created")


async def test_many_twins_make_one_order(plain, sandbox, data):
    """Fifty at once: one effect, and the same bytes for all."""
    responses = await asyncio.gather(*(plain("POST", "/v1/orders", data(), key="k") for _ in range(50)))

    assert {201} == {response.status for response in responses}
    assert 1 == len({response.raw for response in responses})
    assert 1 == [entry.kind for entry in sandbox.ledger()].count("order_created")
