"""What the default transport does not keep, and why."""

from __future__ import annotations

from paymentsdk.testing.transport_conformance._case import Deviation

_PARSER = "aiohttp's parser decides, and nothing public makes it stricter: "
_POOL = "the pool is that of the session's owner: "


def _deviations(because: str, reasons: dict[str, tuple[str, ...]]) -> tuple[Deviation, ...]:
    return tuple(Deviation(name, because + reason) for reason, names in reasons.items() for name in names)


#: The rules that `AiohttpTransport` does not keep.
AIOHTTP_DEVIATIONS = _deviations(
    _PARSER,
    {
        "it takes a line feed for the end of a line": (
            "a_bare_line_feed_is_no_response",
            "a_bare_line_feed_within_the_head_is_no_response",
        ),
        "it takes a line feed for the end of a chunk, of its extension or of a trailer": (
            "a_line_feed_behind_a_chunk_is_no_response",
            "a_line_feed_behind_a_chunk_extension_is_no_response",
            "a_line_feed_behind_a_trailer_is_no_response",
        ),
        "it takes a line feed for the end of a chunk: one that is a byte short ends with the carriage return": (
            "a_chunk_that_is_one_byte_short_is_no_response",
        ),
        "it drops a space before the colon": ("a_space_before_the_colon_is_no_response",),
        "it joins the lines of a folded field": (
            "a_folded_field_is_no_response",
            "a_field_folded_by_a_carriage_return_is_no_response",
        ),
        "it looks for null bytes in values alone, and for nothing in the reason": (
            "a_control_character_in_a_value_is_no_response",
            "a_control_character_in_the_reason_is_no_response",
        ),
        "it fails the response that the surplus bytes are behind, which counts as sent": (
            "surplus_bytes_end_the_connection_garbage",
            "a_body_where_there_is_none",
        ),
        "it keeps the beginning of a further response to itself. If the rest follows later, the next request fails and "
        "counts as sent": ("surplus_bytes_end_the_connection_the_beginning_of_a_response",),
    },
)
#: The rules that `AiohttpTransport(session=...)` does not keep.
INJECTED_SESSION_DEVIATIONS = AIOHTTP_DEVIATIONS + _deviations(
    _POOL,
    {
        "aiohttp sends a GET, PUT or DELETE once more when its connection ends": (
            "closed_before_the_response",
            "reset_before_the_response",
            "cut_off_within_the_head",
            "nothing_is_sent_again",
            "a_failure_gives_its_place_back",
        ),
        "a kept connection may be taken where a fresh one is asked for": ("a_fresh_connection_is_new", "tls_works"),
        "nobody watches its idle connections": (
            "a_stray_response_does_no_lasting_harm",
            "bytes_on_an_idle_connection_end_it",
            "bytes_that_nobody_has_read_yet",
        ),
        "the next requests empty it, but the first of them may go out on the discarded connection": (
            "a_discarded_connection_takes_no_request",
        ),
        "who asks again can pass by who waits": ("waiting_requests_are_served_in_turn",),
        "it is not closed with the transport": ("closing_ends_the_wait_for_a_connection",),
    },
)
