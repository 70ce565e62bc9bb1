"""Structs of somebody else's that a tag tells apart, as msgspec has them: nothing is read as what its tag denies."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any

import pytest
from msgspec import Meta

from paymentsdk import Echo, Operation, RequestInvalid, RetryClass
from paymentsdk.resources.common import RequestStruct, ResponseStruct


class Card(ResponseStruct, tag="card"):
    """A way to pay, with an amount."""

    id: str
    amount: Decimal | None = None
    sale: str | None = None


class Cash(ResponseStruct, tag="cash"):
    """Another, with other members."""

    id: str
    till: str | None = None


class Sale(ResponseStruct):
    """Something paid for."""

    id: str
    paid: Card | Cash | None = None
    parts: list[Card | Cash] | None = None
    card: Card | None = None
    mixed: Card | Cash | str | None = None


def operation(result: type[ResponseStruct], *echoes: Echo) -> Operation[None, ResponseStruct]:
    """A write whose response is a *result*."""
    path = "/sales/{sale}"
    return Operation(name="sales.pay", method="POST", path=path, retry=RetryClass.KEYED, result=result, echoes=echoes)


SALE = operation(Sale)
CASH, CARD = Cash(id="C1", till="7"), Card(id="D1", amount=Decimal("1.50"))
AS_JSON = {CASH: '{"type": "cash", "id": "C1", "till": "7"}', CARD: '{"type": "card", "id": "D1", "amount": 1.50}'}


@pytest.mark.parametrize("sale_id", ['"S1"', "1"], ids=["exact", "repaired"])
@pytest.mark.parametrize("payment", [CASH, CARD], ids=["cash", "card"])
def test_a_tag_says_what_is_read(payment: Card | Cash, sale_id: str) -> None:
    """It is never read as another Struct of its union, whether something beside it has to be repaired or not."""
    body = f'{{"id": {sale_id}, "paid": {AS_JSON[payment]}, "parts": [{", ".join(AS_JSON.values())}]}}'

    value, anomalies = SALE.decode(body.encode())

    assert Sale(id=sale_id.strip('"'), paid=payment, parts=[CASH, CARD]) == value
    assert [] == [anomaly.path for anomaly in anomalies if anomaly.path != "$.id"]


@pytest.mark.parametrize("member", ["paid", "mixed"])
@pytest.mark.parametrize("payment", ['"type": "cash", "id": 1', '"type": "card", "id": "1", "amount": "NaN"'])
def test_one_of_several_that_is_malformed_is_dropped(member: str, payment: str) -> None:
    """Nothing of it is guessed at; an amount that cannot be used is malformed as well."""
    value, anomalies = SALE.decode(f'{{"id": "S1", "{member}": {{{payment}}}}}'.encode())

    assert Sale(id="S1") == value
    assert [(f"$.{member}", True)] == [(anomaly.path, anomaly.dropped) for anomaly in anomalies]


@pytest.mark.parametrize("tag", ['"type": "wallet", ', "", '"type": ["cash"], ', '"type": null, '])
def test_what_no_tag_is_known_of_is_dropped(tag: str) -> None:
    """Nobody can say what it is; the rest of the response is read."""
    value, anomalies = SALE.decode(f'{{"id": "S1", "paid": {{{tag}"id": "C1"}}, "parts": [{AS_JSON[CASH]}]}}'.encode())

    assert Sale(id="S1", parts=[CASH]) == value
    assert [("$.paid", True)] == [(anomaly.path, anomaly.dropped) for anomaly in anomalies]


class CashRequest(RequestStruct, tag="cash"):
    """One without."""

    till: str


class VoucherRequest(RequestStruct, tag="voucher"):
    """Another."""

    code: Annotated[str, Meta(max_length=5)]


class SaleRequest(RequestStruct):
    """Something to pay for."""

    paid: VoucherRequest | CashRequest | str
    parts: list[VoucherRequest | CashRequest] | None = None


PAY = Operation(name="sales.pay", method="POST", path="/sales", retry=RetryClass.UNKEYED, body=SaleRequest, result=Sale)


@pytest.mark.parametrize(
    ("payment", "sent"),
    [
        (VoucherRequest(code="TEN"), b'{"type":"voucher","code":"TEN"}'),
        (CashRequest(till="7"), b'{"type":"cash","till":"7"}'),
        ("by hand", b'"by hand"'),
    ],
    ids=str,
)
def test_a_request_may_have_any_of_several(payment: Any, sent: bytes) -> None:
    """Each is checked as what its tag says."""
    parts = [CashRequest(till="7"), VoucherRequest(code="TEN")]

    encoded = PAY.encoder.encode(SaleRequest(paid=payment, parts=parts))

    assert b'{"paid":' + sent + b',"parts":[{"type":"cash","till":"7"},{"type":"voucher","code":"TEN"}]}' == encoded
    with pytest.raises(RequestInvalid, match="length <= 5") as rejected:
        PAY.encoder.encode(SaleRequest(paid=payment, parts=[*parts, VoucherRequest(code="TWELVE")]))
    assert "$.parts[2].code" == rejected.value.path
