"""What an operation declares to compare either works or is rejected at once."""

from __future__ import annotations

from decimal import Decimal

import pytest

from paymentsdk import (
    Addition,
    Echo,
    Operation,
    OutcomeUnknown,
    PaymentsClient,
    RequestInvalid,
    Response,
    RetryClass,
    RetryPolicy,
)
from paymentsdk._contract.identity import Comparison
from paymentsdk.resources.common import PositiveAmount, RequestStruct, ResponseStruct
from paymentsdk.testing import MemoryTransport


class Line(RequestStruct):
    """A part of the request."""

    sku: str | None = None


class Asked(RequestStruct):
    """The request."""

    name: str | None = None
    lines: list[Line] | None = None


class ToldLine(ResponseStruct):
    """A part of the response."""

    sku: str | None = None


class Told(ResponseStruct):
    """The response."""

    id: str
    name: str | None = None
    lines: tuple[ToldLine | None, ...] | None = None


def declare(*echoes: Echo, addition: Addition | None = None) -> Operation:
    """Declare an operation that compares *echoes*."""
    return Operation(name="things.create", method="POST", path="/things/{id}", section="", summary="",
                     retry=RetryClass.KEYED, body=Asked, result=Told, status=201,
                     echoes=echoes, addition=addition)  # fmt: skip


WRONG = [
    (lambda: declare(Echo("id", of="{order_id}")), "{order_id} is not a placeholder of the path"),
    (lambda: declare(Echo("reference")), "'reference' is not a field of the result"),
    (lambda: declare(Echo("lines[].sku", of="lines[].code")), "'lines[].code' is not a field of the body"),
    (lambda: declare(addition=Addition("lines", (Echo("code"),))), "'code' is not a field of the result"),
]


@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_a_declaration_that_cannot_work_is_rejected(wrong, reason):
    """A typing mistake shows when the module is imported, and not when money has moved."""
    with pytest.raises(RequestInvalid) as rejection:
        wrong()

    assert reason in str(rejection.value)
    assert rejection.value.path.startswith("things.create.")


OF_ANOTHER = [b'{"id":"1","lines":[{"sku":"other"}]}', b'{"id":"1","lines":[null]}']


def agrees(_):
    """Take every response for one that agrees with its request."""
    return property(lambda _: lambda *_: Comparison(agreed=2))


@pytest.mark.control("paymentsdk._contract.identity.Identity.compare", around=agrees)
@pytest.mark.parametrize(("content", "observers"), [(OF_ANOTHER[0], []), (OF_ANOTHER[1], [lambda event: None])])
async def test_a_response_without_the_added_entry_is_not_believed(client_over, content, observers):
    """The list has to have an entry that agrees, also where the first attempt is made inline."""
    operation = declare(Echo("id", of="{id}"), addition=Addition("lines", (Echo("sku", of="name"),)))
    right = Response(201, {}, b'{"id":"1","lines":[{"sku":"other"},{"sku":"a"}]}')
    transport = MemoryTransport([Response(201, {}, content), right])

    result = await client_over(transport, observers=observers).call(operation, Asked(name="a"), id="1")

    assert right.body == result.raw
    assert [False, True] == [request.fresh for request in transport.requests]


def broken(requested: str, echoed: str) -> bool:
    """A comparison with a defect."""
    raise LookupError(requested)


async def test_a_comparison_that_raises_does_not_cost_the_result(client_over):
    """The write was done: a defect in the comparison is an anomaly that names it, and no unknown outcome."""
    operation = declare(Echo("name", agrees=broken))
    transport = MemoryTransport([Response(201, {}, b'{"id":"1","name":"a"}')])

    result = await client_over(transport).call(operation, Asked(name="a"), id="1")

    assert "1" == result.value.id
    assert ("$.name", "comparing it raised LookupError") in [
        (anomaly.path, anomaly.reason) for anomaly in result.anomalies
    ]


@pytest.mark.parametrize(("lines", "is_ours"), [
    ('[{"sku":"a"},{"sku":"b"}]', True), ('[{},{"sku":"b"}]', True), ('[{"sku":"b"},{"sku":"a"}]', False),
    ('[{"sku":"a"}]', False), ("[]", True), ("null", True),
])  # fmt: skip
def test_two_lists_are_compared_entry_by_entry(lines, is_ours):
    """What an entry leaves out says nothing; another number of entries is another request."""
    operation = declare(Echo("lines[].sku"))
    decoded, _ = operation.decode(b'{"id":"1","lines":' + lines.encode() + b"}")

    compared = operation.identity.compare(Asked(lines=[Line(sku="a"), Line(sku="b")]), {"id": "1"}, decoded)

    assert is_ours is (compared.mismatch is None)


# --- values that cannot be read ---------------------------------------------------------------------------------------


class Renamed(ResponseStruct, rename="camel"):
    """A part of a response whose members have other names in JSON."""

    id: str
    line_price: Decimal | None = None


class ToldInCamelCase(ResponseStruct, rename="camel"):
    """A response of the same kind."""

    id: str
    total_amount: Decimal | None = None
    all_lines: list[Renamed] | None = None


class AskedForAmounts(RequestStruct):
    """A request whose amounts are repeated."""

    total_amount: PositiveAmount
    line_price: PositiveAmount


@pytest.mark.parametrize(
    ("response", "place"),
    [
        ('{"id": "7", "totalAmount": "abc", "allLines": [{"id": "1", "linePrice": 2}]}', "$.totalAmount"),
        ('{"id": "7", "totalAmount": 5, "allLines": [{"id": "1", "linePrice": "abc"}]}', "$.allLines[0].linePrice"),
        ('{"id": "7", "totalAmount": 5, "allLines": 8}', "$.allLines"),
    ],
)
async def test_an_unreadable_value_cannot_be_compared_under_any_name(response: str, place: str) -> None:
    """A write is in doubt where what its response repeats is unreadable, also where JSON has another name for it."""
    operation: Operation[AskedForAmounts, ToldInCamelCase] = Operation(
        name="things.create",
        method="POST",
        path="/things/{id}",
        retry=RetryClass.KEYED,
        body=AskedForAmounts,
        result=ToldInCamelCase,
        echoes=(Echo("id", of="{id}"), Echo("total_amount"), Echo("all_lines[].line_price", of="line_price")),
    )
    transport = MemoryTransport([Response(200, {}, response.encode())])
    async with PaymentsClient("token", base_url="https://x", transport=transport, retry=RetryPolicy(1)) as client:
        with pytest.raises(OutcomeUnknown, match="cannot be compared with the request") as unknown:
            await client.call(operation, AskedForAmounts(total_amount=Decimal(5), line_price=Decimal(2)), id="7")

    assert place in unknown.value.reason
