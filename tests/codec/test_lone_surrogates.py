"""Half an emoji, as whoever cuts a text in the middle writes it: no reason to lose the order, the page or the walk."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paymentsdk import OPERATIONS, Anomaly, BadRequest, NoAnswer, OutcomeUnknown, PaymentsClient, Response
from paymentsdk.resources.orders import OrderRequest, PaymentRequest, TransactionsRequest
from paymentsdk.testing import FakeClock, MemoryTransport

SEARCH = OPERATIONS["merchant_orders.search"]
ORDER = OrderRequest(
    external_reference="A-1",
    total_amount=Decimal("5.00"),
    transactions=TransactionsRequest(payments=[PaymentRequest(amount=Decimal("5.00"))]),
)
MADE = {"id": "ORD01J67CQQH5904WDBVZEM4JMEP3", "external_reference": "A-1", "total_amount": "5.00"}
ONE = Anomaly("$", r"\ud83d", "has 1 escape(s) of half a character; each read as U+FFFD")
NO_REPLACEMENT = ("paymentsdk._codec.decode.replace_lone_surrogates", lambda body: (body, []))


def client(status: int, body: bytes) -> PaymentsClient:
    """A client that gets *body*, whatever it asks for."""
    transport = MemoryTransport(lambda request: Response(status, {}, body))
    return PaymentsClient("TEST-t", base_url="http://127.0.0.1", clock=FakeClock(), transport=transport)


def page(*rows: dict[str, object]) -> bytes:
    """A page of *rows*."""
    return json.dumps({"elements": rows, "next_offset": 0, "total": len(rows)}).encode()


def fetched(body: bytes) -> tuple[object, tuple[Anomaly, ...]]:
    """Decode *body* as a client does that has other tasks."""
    result = asyncio.run(client(200, body).call(SEARCH))
    return result.value, result.anomalies


@pytest.mark.control(*NO_REPLACEMENT, raises=OutcomeUnknown)
async def test_an_order_that_was_made_is_an_order() -> None:
    """It is sent once, and what was read otherwise is reported."""
    body = json.dumps({**MADE, "description": "lunch \ud83d"}).encode()

    caller = client(201, body)

    result = await caller.with_result(caller.orders.create, ORDER)

    assert ("lunch \ufffd", 1, (ONE,)) == (result.value.description, result.attempts, result.anomalies)


@pytest.mark.control("paymentsdk._contract.error_response.replace_lone_surrogates", lambda body: (body, []))
async def test_a_rejection_keeps_its_code_and_hides_what_it_repeats() -> None:
    """Half an emoji in its message hides neither what the platform says, nor a token that has escapes in it."""
    body = rb'{"error": "invalid_order", "message": "lunch \ud83d for \u0054EST-secret-token"}'
    transport = MemoryTransport([Response(400, {}, body)])
    async with PaymentsClient("TEST-secret-token", base_url="http://127.0.0.1", transport=transport) as caller:
        with pytest.raises(BadRequest) as caught:
            await caller.orders.create(ORDER)

    assert ("invalid_order", "lunch \ufffd for ***") == (caught.value.code, caught.value.message)
    assert b"secret" not in caught.value.raw


@pytest.mark.parametrize(
    ("read", "size", "extra"), [(SEARCH.decode, 50, {}), (fetched, 1_000, {"total_amount": "abc"})]
)
@pytest.mark.control(*NO_REPLACEMENT, raises=(ValueError, NoAnswer))
def test_one_row_costs_no_other(read: Callable[[bytes], tuple], size: int, extra: dict[str, object]) -> None:
    """Nor does it cost its own other members."""
    text = "x" * 120
    rows: list[dict[str, object]] = [{"id": number, "additional_info": text} for number in range(size)]
    rows[7] = {"id": 7, "additional_info": "lunch \ud83d", "external_reference": "A-7", **extra}

    value, anomalies = read(page(*rows))

    assert [*range(size)] == [row.id for row in value.elements]
    assert ("lunch \ufffd", "A-7") == (value.elements[7].additional_info, value.elements[7].external_reference)
    assert {text} == {row.additional_info for row in value.elements if row.id != 7}
    assert (ONE, len(extra)) == (anomalies[0], len(anomalies) - 1)


@pytest.mark.control("paymentsdk._contract.identity.replace_lone_surrogates", lambda body: (body, []))
async def test_an_error_sent_as_a_success_is_rejected() -> None:
    """What has half a character is still looked at for what an error has."""
    body = json.dumps({**MADE, "status": 400, "message": "lunch \ud83d"}).encode()

    text = None
    try:
        await client(201, body).orders.create(ORDER)
    except OutcomeUnknown as error:
        text = str(error)

    assert text is not None
    assert "the response has the fields of an error" in text


#: What a text may have in it as JSON writes it: escaped backslashes before what then is no escape, pairs, and halves.
PIECES = st.lists(
    st.sampled_from([r"\\", r"\ud83d", r"\uD83D", r"\ude00", r"\uDE00", r"\n", r"\"", "u", "ud83d", r"\u00e9"])
).map("".join)


@pytest.mark.control("paymentsdk._codec.decode._LONE_SURROGATE", rb"(?!)()|\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
@given(text=PIECES)
def test_pairs_and_escaped_backslashes_stay(text: str) -> None:
    """The text is the one that JSON means, with a replacement character for each half."""
    body = f'{{"elements": [{{"id": 1, "additional_info": "{text}"}}], "next_offset": 0, "total": 1}}'
    meant = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(body)["elements"][0]["additional_info"])

    assert meant == SEARCH.decode(body.encode())[0].elements[0].additional_info


@pytest.mark.parametrize("text", [r"\ud8", r"\ud83d\u12", r"\ud83", r"\ud83d\q"])
def test_what_is_no_json_stays_none(text: str) -> None:
    """Half a character does not make the rest of the body better."""
    with pytest.raises(ValueError, match="the body is not JSON"):
        SEARCH.decode(page({"id": 1, "additional_info": "?"}).replace(b"?", text.encode()))
