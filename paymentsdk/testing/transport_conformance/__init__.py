"""The rules that every transport keeps, as a suite that you can run.

With pytest and pytest-asyncio::

    import pytest
    from paymentsdk.testing.transport_conformance import CASES

    def make_transport(*, ca=None, limit=100):
        return MyTransport(...)

    @pytest.mark.parametrize("case", CASES, ids=str)
    async def test_conformance(case):
        await case.run(make_transport)

Every case uses servers on 127.0.0.1 that misbehave in all known ways. The cases about TLS need the package ``trustme``.
If your transport cannot keep a rule, declare the rule with the reason. The suite then checks that it is broken::

    DEVIATIONS = {"surplus_bytes_end_the_connection_garbage": "the parser of ... fails the whole response"}
    ...
        await case.run(make_transport, DEVIATIONS)
"""

from __future__ import annotations

from collections.abc import Mapping

# Importing these adds their rules to CASES.
from paymentsdk.testing.transport_conformance import _connections, _requests, _responses  # noqa: F401 - see above
from paymentsdk.testing.transport_conformance._case import CASES, Case, MakeTransport

__all__ = ["AIOHTTP_DEVIATIONS", "CASES", "Case", "MakeTransport"]

_LINE_FEED = "aiohttp accepts a line feed as the end of a line"
_CHUNK_END = "aiohttp accepts a line feed as the end of a chunk, of its extension or of a trailer"
_FOLDED = "aiohttp joins the lines of a folded field"
_CONTROL = "aiohttp rejects only null bytes, and only in values"
_SURPLUS = "aiohttp fails the complete response before the surplus bytes, and the request counts as sent"
_BEGUN = (
    "aiohttp keeps the beginning of a further response. If the rest arrives during the next request, that request "
    "fails and counts as sent"
)


#: The rules that `AiohttpTransport` does not keep, each with its reason: aiohttp's parser decides, and no public
#: option makes it stricter. Without the C extension of aiohttp, another parser deviates from other rules.
AIOHTTP_DEVIATIONS: Mapping[str, str] = {
    "a_bare_line_feed_is_no_response": _LINE_FEED,
    "a_bare_line_feed_within_the_head_is_no_response": _LINE_FEED,
    "a_line_feed_behind_a_chunk_is_no_response": _CHUNK_END,
    "a_line_feed_behind_a_chunk_extension_is_no_response": _CHUNK_END,
    "a_line_feed_behind_a_trailer_is_no_response": _CHUNK_END,
    "a_chunk_that_is_one_byte_short_is_no_response": "aiohttp accepts a line feed as the end of a chunk: a "
    "chunk that is one byte short ends with the carriage return",
    "a_space_before_the_colon_is_no_response": "aiohttp drops a space before the colon",
    "a_folded_field_is_no_response": _FOLDED,
    "a_field_folded_by_a_carriage_return_is_no_response": _FOLDED,
    "a_control_character_in_a_value_is_no_response": _CONTROL,
    "a_control_character_in_the_reason_is_no_response": _CONTROL,
    "surplus_bytes_end_the_connection_garbage": _SURPLUS,
    "a_body_where_there_is_none": _SURPLUS,
    "surplus_bytes_end_the_connection_the_beginning_of_a_response": _BEGUN,
    "the_beginning_of_a_head_on_an_idle_connection_ends_it": _BEGUN,
}
