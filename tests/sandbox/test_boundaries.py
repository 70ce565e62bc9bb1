"""Each bound of what a request may hold: the last value within it is taken, the first beyond it is rejected."""

from __future__ import annotations

import pytest

#: The levels of a body, and the last position in a search.
MAX_DEPTH, LARGEST_OFFSET = 64, 2**53
LARGEST = 2**63 - 1


def nested(levels: int) -> str:
    """An object in an object, *levels* deep."""
    return '{"a":' * levels + "1" + "}" * levels


async def taken(plain, metadata: str) -> bool:
    """Whether a customer is made whose metadata is *metadata*, as it stands."""
    body = b'{"email":"a%d@example.com","metadata":%s}' % (hash(metadata), metadata.encode())
    return 201 == (await plain("POST", "/v1/customers", body)).status


@pytest.mark.control("paymentsdk.sandbox._wire._LARGEST_INTEGER", LARGEST - 1)
@pytest.mark.control("paymentsdk.sandbox._wire._LARGEST_INTEGER", LARGEST + 1)
async def test_integers_have_64_bits(plain):
    """From -(2^63 - 1) to 2^63 - 1: a database has room for no other."""
    for sign in ("", "-"):
        within, beyond = [await taken(plain, f'{{"n":{sign}{number}}}') for number in (LARGEST, LARGEST + 1)]

        assert (True, False) == (within, beyond)


@pytest.mark.control("paymentsdk.sandbox._wire.MAX_DEPTH", MAX_DEPTH - 1)
@pytest.mark.control("paymentsdk.sandbox._wire.MAX_DEPTH", MAX_DEPTH + 1)
async def test_nesting_has_a_bottom(plain):
    """The body itself is one level, and what is in it each one more."""
    within, beyond = [await taken(plain, nested(levels)) for levels in (MAX_DEPTH - 2, MAX_DEPTH - 1)]

    assert (True, False) == (within, beyond)


async def test_a_string_has_whole_characters(plain):
    """Half a character and NUL are rejected, as a value and as a name; their neighbours are accepted."""
    for place in ('{"%s":1}', '{"a":["%s"]}', '{"a":{"%s":[]}}'):
        for escape in ("d800", "dbff", "dc00", "dfff", "0000"):
            assert not await taken(plain, place % f"\\u{escape}")
        for escape in ("d7ff", "e000", "0001"):
            assert await taken(plain, place % f"\\u{escape}")


@pytest.mark.control("paymentsdk.sandbox._wire.LARGEST_OFFSET", LARGEST_OFFSET - 1)
@pytest.mark.control("paymentsdk.sandbox._wire.LARGEST_OFFSET", LARGEST_OFFSET + 1)
async def test_a_position_has_an_end(plain):
    """A limit that is larger than any page is cut to one; one that no page can have is rejected."""
    search = "/preapproval_plan/search?limit="

    statuses = [(await plain("GET", f"{search}{limit}")).status for limit in (LARGEST_OFFSET, LARGEST_OFFSET + 1)]

    assert [200, 400] == statuses


@pytest.mark.control("paymentsdk.sandbox._wire._LARGEST_INTEGER", LARGEST - 1)
async def test_an_integer_may_be_written_with_a_point(plain):
    """Up to the largest one; beyond it, it is no integer of 64 bits."""
    item = '{"title":"Lamp","quantity":1,"unit_price":1}'
    bodies = [f'{{"items":[{item}],"sponsor_id":{number}.0}}'.encode() for number in (LARGEST, LARGEST + 1)]

    statuses = [(await plain("POST", "/checkout/preferences", body)).status for body in bodies]

    assert [201, 400] == statuses


@pytest.mark.parametrize("search", ["/preapproval_plan", "/authorized_payments", "/merchant_orders"])
async def test_a_filter_without_a_value_is_not_there(plain, search):
    """An empty one counts as not given; one with a value that it cannot have is rejected."""
    for query, status in (("limit=&offset=&status=", 200), ("limit=x", 400), ("offset=-1", 400)):
        assert status == (await plain("GET", f"{search}/search?{query}")).status
