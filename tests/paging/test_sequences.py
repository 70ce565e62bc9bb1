"""Walks by page number and by cursor: no row is lost in silence, whatever a platform does to its pages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from random import Random
from typing import TypedDict
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from msgspec.structs import replace

from paymentsdk import (
    Incomplete,
    Operation,
    Pager,
    PageShape,
    PaginationStalled,
    PaymentsClient,
    PaymentsError,
    Request,
    RequestInvalid,
    Response,
    RetryClass,
)
from paymentsdk.resources.common import ResponseStruct
from paymentsdk.testing import MemoryTransport


class Row(ResponseStruct):
    id: int
    name: str | None = None


class RowPage(ResponseStruct):
    rows: list[Row] | None = None
    total: int | None = None
    next: str | None = None


class Numbers(TypedDict, total=False):
    color: str
    page: int
    per_page: int


class Cursors(TypedDict, total=False):
    after: str
    size: int


class Both(Numbers, total=False):
    offset: int


BY_NUMBER: Operation[None, RowPage] = Operation(
    name="rows.search",
    method="GET",
    path="/rows",
    retry=RetryClass.READ,
    query=Numbers,
    result=RowPage,
    page=PageShape(items="rows", total="total", page="page", size="per_page"),
)
BY_CURSOR = dataclasses.replace(
    BY_NUMBER,
    query=Cursors,
    page=PageShape(items="rows", total="total", cursor="after", next_cursor="next", size="size"),
)


class Server:
    """Rows in pages of a size, and what happens to them before each page."""

    def __init__(self, rows: int, size: int = 3, *, total: bool = True) -> None:
        self.rows, self.size, self.says_total = list(range(1, rows + 1)), size, total
        self.requests: list[dict[str, str]] = []
        self.before: Callable[[int], None] = lambda _: None
        self.change: Callable[[int, dict[str, object]], dict[str, object]] = lambda _, page: page

    def __call__(self, request: Request) -> Response:
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.url).query).items()}
        self.requests.append(query)
        self.before(len(self.requests))
        page = self.by_number(query) if "per_page" in query else self.by_cursor(query)
        page = self.change(len(self.requests), page)
        if not self.says_total:
            page.pop("total", None)
        return Response(200, {}, msgspec.json.encode(page))

    def page(self, begin: int) -> dict[str, object]:
        """The page that begins at a row."""
        rows = [{"id": row} for row in self.rows[begin : begin + self.size]]
        return {"rows": rows, "total": len(self.rows)}

    def by_number(self, query: dict[str, str]) -> dict[str, object]:
        """The page of a number."""
        return self.page((int(query.get("page", "1")) - 1) * self.size)

    def by_cursor(self, query: dict[str, str]) -> dict[str, object]:
        """The page behind a row."""
        after = query.get("after")
        begin = 0 if after is None else sum(row <= int(after.removeprefix("c")) for row in self.rows)
        page, rows = self.page(begin), self.rows[begin : begin + self.size]
        return {**page, "next": str(rows[-1]) if begin + self.size < len(self.rows) else None}

    def walk(self, operation: Operation[None, RowPage] = BY_NUMBER, **options: object) -> Pager[Row]:
        """A walk over its rows; pages are as long as they can be."""
        client = PaymentsClient("TEST-t", base_url="http://127.0.0.1:1", transport=MemoryTransport(self))
        return Pager(client, operation, **{"page_size": 100, **options})

    async def ids(self, operation: Operation[None, RowPage] = BY_NUMBER, **options: object) -> list[int]:
        """The ids that a walk returns."""
        return [row.id for row in await self.walk(operation, **options).collect()]


# --- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"total": "total", "page": "page", "cursor": "after", "next_cursor": "next"}, "two of an offset"),
        ({"total": "total", "cursor": "after"}, "needs both of cursor"),
        ({"cursor": "after", "next_cursor": "next", "immutable": frozenset({"color"})}, "needs a search by offset"),
    ],
)
def test_a_shape_that_cannot_be_walked_is_rejected(fields: dict[str, object], words: str) -> None:
    """Where it is made, in one sentence."""
    with pytest.raises(RequestInvalid, match=words):
        PageShape(items="rows", **fields)


@pytest.mark.parametrize(
    ("query", "changes", "words"),
    [
        (Numbers, {"page": "number"}, "'number', which `query` does not have"),
        (Both, {}, "names another position than the filter offset"),
        (Cursors, {"page": None, "cursor": "after", "next_cursor": "nxt", "size": "size"}, "nxt"),
    ],
)
def test_a_filter_or_field_that_does_not_exist_is_rejected(query: type, changes: dict[str, object], words: str) -> None:
    """So is an offset beside: a walk would go by one, and the platform perhaps by the other."""
    with pytest.raises(RequestInvalid, match=words):
        dataclasses.replace(BY_NUMBER, query=query, page=replace(BY_NUMBER.page, **changes))


@pytest.mark.parametrize(
    ("operation", "options", "words"),
    [
        (BY_NUMBER, {"start": 0}, "start"),
        (BY_NUMBER, {"overlap": 1}, "overlap"),
        (BY_NUMBER, {"page": 2}, "use start"),
        (BY_CURSOR, {"start": 1}, "start"),
        (BY_CURSOR, {"certify": True}, "by cursor"),
    ],
)
def test_an_option_that_a_walk_cannot_keep_is_rejected(
    operation: Operation[None, RowPage], options: dict[str, object], words: str
) -> None:
    """Before anything is sent."""
    server = Server(5)
    with pytest.raises(RequestInvalid, match=words):
        server.walk(operation, **options)
    assert [] == server.requests


def onward(walk, page, **_):
    """Go on with the next page, also where the total has fallen."""
    return replace(walk, offset=walk.offset + 1, seen=walk.seen + page.new_rows) if page.received else None


# --- by page number ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [1, 4])
async def test_pages_are_numbered_from_one(prefetch: int) -> None:
    """Up to the one with which the total is reached: no further page is asked for."""
    server = Server(8)

    assert list(range(1, 9)) == await server.ids(prefetch=prefetch, color="red")
    expected = [{"color": "red", "page": str(number), "per_page": "100"} for number in (1, 2, 3)]
    assert expected == sorted(server.requests, key=lambda query: query["page"])


async def test_without_a_total_the_end_is_an_empty_page() -> None:
    """A short page is not: a platform may leave out rows that the seller may not see."""
    server = Server(8, total=False)
    server.change = lambda count, page: {**page, "rows": page["rows"][:1]} if count == 2 else page

    assert [1, 2, 3, 4, 7, 8] == await server.ids()
    assert 4 == len(server.requests)


@pytest.mark.control("paymentsdk._paging.sequence.PageSequence.missing", lambda *_: None)
@pytest.mark.parametrize("remaining", [0, 1])
async def test_a_page_that_lacks_rows_ends_the_walk_loudly(remaining: int) -> None:
    """A short page, or an empty one, in the middle, where a total says that rows are missing."""
    server = Server(9)
    server.change = lambda count, page: {**page, "rows": page["rows"][:remaining]} if count == 2 else page

    with pytest.raises(Incomplete, match="no page follows") as caught:
        await server.ids()
    assert 9 == caught.value.total
    assert ("4" if remaining else "2") == str(caught.value.resume_point)


@pytest.mark.control("paymentsdk._paging.sequence.NumberedPage.advance", onward)
async def test_a_total_that_falls_leads_back() -> None:
    """Rows that vanish have others move up, over the edge of a page that was read."""
    server = Server(12)
    server.before = lambda count: server.rows.remove(2) if count == 2 else None

    assert list(range(1, 13)) == sorted(await server.ids())
    assert ["1", "2", "1", "2", "3", "4", "5"] == [query["page"] for query in server.requests]


@pytest.mark.parametrize("total", [-1, 0, 2])
async def test_a_total_that_is_too_low_ends_no_walk(total: int) -> None:
    """Some platforms say 0 or -1 where they do not know it: the end is an empty page then."""
    server = Server(9)
    server.change = lambda _, page: {**page, "total": total}

    assert list(range(1, 10)) == await server.ids()


async def test_a_platform_that_ignores_the_number_is_noticed() -> None:
    """It sends the first page for ever."""
    server = Server(9)
    server.change = lambda _, page: server.page(0)

    with pytest.raises(PaginationStalled, match="same page twice"):
        await server.ids()


@pytest.mark.parametrize("prefetch", [1, 3])
async def test_a_walk_goes_on_from_a_page(prefetch: int) -> None:
    """The resume point is a number, and holds for the same page size; the end is an empty page then."""
    server = Server(8)
    pages = server.walk(page_size=3).pages()
    await anext(pages)
    second = await anext(pages)
    await pages.aclose()

    assert (3, 2) == (second.offset, len(server.requests))
    assert 3 == second.resume_point
    assert [7, 8] == await server.ids(start=second.resume_point, page_size=3, prefetch=prefetch)


def changes(random: Random, server: Server, *, vanish: bool) -> Callable[[int], None]:
    """Have rows vanish, or appear in front, at random."""

    def change(count: int) -> None:
        for _ in range(random.choice([0, 0, 1, 2]) if 1 < count < 40 else 0):
            if not vanish:
                server.rows.insert(0, min(server.rows, default=0) - 1)
            elif server.rows:
                server.rows.remove(random.choice(server.rows))

    return change


@pytest.mark.parametrize(
    ("operation", "vanish"), [(BY_NUMBER, True), (BY_NUMBER, False), (BY_CURSOR, True), (BY_CURSOR, False)]
)
async def test_rows_that_stay_come_or_the_walk_raises(operation: Operation[None, RowPage], vanish: bool) -> None:
    """Whatever vanishes or appears in front, whatever the platform's page size."""
    whole = 0
    for seed in range(40):
        random = Random(seed)
        server = Server(random.randrange(30), random.randrange(1, 6))
        server.before = changes(random, server, vanish=vanish)
        there = set(server.rows)
        try:
            ids = await server.ids(operation, prefetch=random.choice([1, 1, 2, 4]))
        except PaymentsError:
            continue
        whole += 1
        assert there & set(server.rows) <= set(ids), seed
    assert whole > 20


# --- by cursor --------------------------------------------------------------------------------------------------------


async def test_each_page_gives_the_cursor_of_the_next() -> None:
    """The first one is asked for without a cursor; an empty page in the middle is not the end."""
    server = Server(8)
    server.change = lambda count, page: page if count != 2 else {"rows": [], "total": 8, "next": "03"}

    assert list(range(1, 9)) == await server.ids(BY_CURSOR, page_size=50, prefetch=4)
    assert [{"size": "50"}, *({"after": after, "size": "50"} for after in ("3", "03", "6"))] == server.requests


async def test_a_cursor_that_comes_again_leads_in_a_circle() -> None:
    """A walk would see the same pages for ever."""
    server, cursors = Server(30), iter(("3", "6", "3"))
    server.change = lambda _, page: {**page, "next": next(cursors)}

    with pytest.raises(PaginationStalled, match="twice"):
        await server.ids(BY_CURSOR)
    assert 3 == len(server.requests)


async def test_a_walk_by_cursor_that_ends_too_early_is_noticed() -> None:
    """By the total; another walk begins at the first page."""
    server = Server(9)
    server.change = lambda count, page: {**page, "next": None} if count == 2 else page

    with pytest.raises(Incomplete, match="no page follows") as caught:
        await server.ids(BY_CURSOR)
    assert (9, 0) == (caught.value.total, caught.value.resume_point)
    assert list(range(1, 10)) == await server.ids(BY_CURSOR, start=caught.value.resume_point)


async def test_a_cursor_that_cannot_be_read_is_not_the_end() -> None:
    """Rows follow, and without a total nothing else would tell."""
    server = Server(9, total=False)
    server.change = lambda _, page: {**page, "next": ["3"]}

    with pytest.raises(PaginationStalled, match=r"\$\.next, cannot be read"):
        await server.ids(BY_CURSOR)
