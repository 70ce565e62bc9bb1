"""A search as its pages and rows: fetched when they are needed, or ahead, and shared by the tasks that read them.

`cursor.py` decides where the next page begins and when the last one has come, and `sequence.py` does so for pages that
are asked for by a number or a cursor. `certified.py` reads all rows of a search with `certify=True`. Rows that were
seen shortly before, as far as their ids tell, are left out.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from copy import copy
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Generic, Self, TypedDict, TypeVar, cast

from msgspec import Struct

from paymentsdk._call.engine import Caller, Engine, engine_of
from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._contract.identity import member_place
from paymentsdk._contract.operation import Operation, PageShape
from paymentsdk._futures import retrieve_exception, running_loop, wait_for_end
from paymentsdk._paging.certified import CertifiedSearch, check_filters
from paymentsdk._paging.cursor import LARGEST_OFFSET, Cursor, PageSummary, dropped_entries
from paymentsdk._paging.sequence import CursorPage, NumberedPage, Place, begin, check_names
from paymentsdk._resume_point import ResumePoint
from paymentsdk._validate import check_bool, check_within
from paymentsdk.errors import ClientClosed, Incomplete, PaginationStalled, PaymentsError, RequestInvalid

if TYPE_CHECKING:
    from paymentsdk._call.response import Result
    from paymentsdk._paging.export import PageChange

T = TypeVar("T")
#: Fetches the page at an offset, of a number or behind a cursor.
Fetch = Callable[[object], "Coroutine[object, object, Result[object]]"]

MOST_PREFETCH = 64
#: How many ids of past rows a walk remembers, to leave out what it sees twice. It bounds the memory of a long walk.
REMEMBERED = 10_000


class WalkOptions(TypedDict, total=False):
    """How a search is walked."""

    page_size: int | None
    """Rows to ask for per page, 1 to 1,000,000; the platform's own number by default. It may give fewer."""
    start: int | None
    """The offset of the first row, 0 to 2**53, such as the `resume_point` of an earlier walk. By page number, it is the
    number of the first page, from 1, and needs *page_size*; a search by cursor always begins at its first page."""
    prefetch: int
    """Pages in flight or waiting, 1 to 64. With 1, the default, and always with *overlap* or *certify*, a page is
    fetched when the page before is used up: while pages wait, more rows could slide than are read again. So is each
    page of a search by cursor, which the page before names."""
    overlap: int
    """Rows to read again at every page, and before *start*, in a search by offset; fewer than the rows of a page, and
    0 by default. It finds rows that slide over a page's edge when as many vanish as appear; without it, a walk notices
    only a total that falls."""
    certify: bool
    """Return rows only once the platform's own count proves that these are all, on one `Page`; `False` by default. If
    that cannot be proved in 5 tries, raise `Incomplete`. A search with a window of creation needs an end of it, and no
    filter by what can change, such as `status`. On several pages, it is certified only if that end was 15 minutes ago
    or earlier, and each row has a date. Any other search is certified only if all its rows are on one page. A search of
    1,000 rows or more is never certified: `paymentsdk.reconcile.walk` certifies larger ones. By page number, only a
    single page is certified; a search by cursor is rejected."""


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a search."""

    items: tuple[T, ...]
    """The rows, without those that the walk has seen before."""
    total: int | None
    """How many rows the search has, if the platform says so; it may change from page to page."""
    offset: int
    """Where the page began, in rows; by page number or cursor, how many rows this walk has seen before it."""
    resume_point: ResumePoint | None
    """Pass it to `search(start=)` to go on after this page; `None` after the last, and in a search by cursor."""
    anomalies: tuple[Anomaly, ...] = ()
    """What in the response did not follow the contract."""


class Pager(Generic[T]):
    """A search that fetches its pages as they are needed. Each ``async for`` starts a new walk.

    A walk that fails raises; it never ends early. A walk that comes to an empty page before the total of that page, or
    before the last known total if that page gives none, raises `Incomplete`. If the total falls, the walk goes back by
    as many rows. Rows that slide while the total stays are found with `overlap=` or `certify=True`.

    All pages are of one seller: if a token names another seller than the first token, the walk raises `RequestInvalid`
    before it is sent. Pass the error's ``resume_point`` to ``search(start=)`` to go on from there. If rows have
    vanished meanwhile, the rows behind them have moved up, so the walk begins that many rows earlier. Some rows may
    then come twice: recognise them by their ids.

    Several tasks may share the iterator of one walk: each row goes to one of them, and a failure to all, once every row
    before it has been handed out. If the iterator is closed before its end, the next request for a row raises
    `ClientClosed`.

    Args:
        engine: Makes the calls; a client is one.
        operation: The search.
        page_size: See `WalkOptions`, as for the next three.
        start: Where the walk begins.
        prefetch: How far it looks ahead.
        overlap: How many rows it reads again.
        certify: Whether it has to prove that it is whole.
        **filters: What is searched for.

    Raises:
        RequestInvalid: An option is out of bounds, a filter is unknown, empty or of the wrong type, or *operation* is
            not a search, or has placeholders in its path. With *certify*: a filter can change, the end of the window is
            missing, or the walk does not begin at the first row.
    """

    def __init__(
        self,
        engine: "Engine | Caller",
        operation: Operation[None, object],
        *,
        page_size: int | None = None,
        start: int | None = None,
        prefetch: int = 1,
        overlap: int = 0,
        certify: bool = False,
        **filters: object,
    ) -> None:
        if not isinstance(operation, Operation) or operation.page is None or operation.path_names:
            reason = "must be a search without placeholders in its path, such as OPERATIONS['invoices.search']"
            raise RequestInvalid("operation", reason)
        shape, position = operation.page, operation.page.position_in(operation.query)
        check_names(shape, position, filters)
        first = 1 if shape.page else 0
        begun = partial(begin, shape, position, first if start is None else start, page_size, overlap)
        check_within("prefetch", prefetch, 1, MOST_PREFETCH)
        check_bool("certify", certify)
        size = {} if page_size is None else {shape.size: page_size}

        def query(offset: object) -> Mapping[str, object]:
            return {**filters, **size} if position is None else {**filters, position: offset, **size}

        # A bad filter is rejected here, not at the first row.
        operation.query_encoder.encode(query(begun().offset))
        if certify:
            check_filters(shape, filters)
            check_within("start", start or first, first, first)

        def walk(engine: "Engine", *, change: "PageChange | None" = None) -> Pages[T]:
            # All pages are of one seller: a token of another, put into the store meanwhile, would mix their rows.
            caller = engine.for_one_seller()

            async def fetch(offset: object) -> "Result[object]":
                result = await caller.call(operation, query=query(offset))
                return result if change is None else change(shape, result)

            return Pages(
                fetch,
                operation,
                engine.settings.account,
                begun(),
                prefetch=1 if overlap else prefetch,
                certified=CertifiedSearch(shape, filters, lambda row: fetch(row + first)) if certify else None,
            )

        self._text = f"<Pager of {operation.name} from {'page' if shape.page else 'row'} {start or first}>"
        self._engine: Engine = engine_of(engine)
        self._walk: Callable[..., Pages[T]] = walk

    def __repr__(self) -> str:
        return self._text

    def __aiter__(self) -> "Items[T]":
        return Items(self.pages())

    def pages(self) -> "Pages[T]":
        """Walk page by page."""
        return self._walk(self._engine)

    def _copy(self, engine: "Engine") -> Self:
        clone: Self = copy(self)
        clone._engine = engine
        return clone

    async def first(self) -> T | None:
        """Return the first row, or ``None`` if the search has none.

        Makes one call; more only if the entries on the first page are no rows, and others follow.
        """
        return await anext(aiter(self), None)

    async def collect(self, limit: int | None = None) -> list[T]:
        """Return the rows as a list: all of them, or the first *limit* (0 or more).

        Raises:
            Incomplete: A page before the total was empty.
            PaymentsError: A page could not be had. Nothing is returned then: a short list would look like a whole one.
        """
        if limit is not None:
            check_within("limit", limit, 0, LARGEST_OFFSET)
        rows: list[T] = []
        if limit == 0:
            return rows
        async with aclosing(self.pages()) as walk:
            async for page in walk:
                rows.extend(page.items)
                if limit is not None and len(rows) >= limit:
                    del rows[limit:]
                    break
        return rows

    async def export(self, path: str | PathLike[str], *, progress: Callable[[Page[T]], None] | None = None) -> int:
        """Write all rows to a file, as a whole or not at all, and return how many there are.

        A `.parquet` or `.csv` file has a column for each declared member, such as `payment.id`; members that are not
        declared are left out. A `.jsonl` file has a line for each row, with all members as the platform sent them.
        Parquet has DECIMAL(36, 18), timestamps in UTC, ids as text, and lists. CSV has lists as JSON.

        Args:
            path: The file; one that exists is replaced.
            progress: Called with each page; its `anomalies` say what could not be read.

        Raises:
            RequestInvalid: *path* has another suffix, or no member of a row is declared.
            ImportError: Parquet needs the extra `export`.
            ValueError: A value does not fit its column in Parquet; the error names the row and the column.
        """
        from paymentsdk._paging.export import page_change, write_pages  # most programs do not need it

        async with aclosing(self._walk(self._engine, change=page_change(path))) as pages:
            return await write_pages(path, pages.operation, pages, progress)


class Items(AsyncIterator[T]):
    """The rows of a walk, one by one."""

    __slots__ = ("_cut", "_page", "_pages", "_turn")

    def __init__(self, pages: "Pages[T]") -> None:
        self._pages = pages
        self._page: deque[T] = deque()
        self._turn = asyncio.Lock()
        #: Whether it was closed while it had rows that nobody had taken.
        self._cut = False

    async def __anext__(self) -> T:
        if not self._page:
            async with self._turn:
                while not self._page:  # Another task may have got the page while this one waited.
                    if self._cut:
                        raise _closed(self._pages)
                    self._page.extend((await self._pages.__anext__()).items)
        return self._page.popleft()

    async def aclose(self) -> None:
        """End the walk, and the fetches that are under way."""
        if self._page:
            self._cut = True
            self._page.clear()
        await self._pages.aclose()


class Pages(AsyncIterator[Page[T]]):
    """The pages of a walk. Leaving it, by ``break`` or by an error, cancels the fetches that are under way."""

    def __init__(
        self,
        fetch: Fetch,
        operation: Operation[None, object],
        account: str | None,
        begin: Place,
        *,
        prefetch: int,
        certified: CertifiedSearch | None,
    ) -> None:
        self._ahead: deque[tuple[int, asyncio.Task[Result[object]]]] = deque()
        #: Fetches that were cancelled, and may not have ended yet.
        self._cancelled: list[asyncio.Task[Result[object]]] = []
        self._fetch = fetch
        #: The search.
        self.operation = operation
        #: The name of its seller.
        self.account = account
        self._prefetch = prefetch
        #: Reads all rows, if they have to be certified.
        self._certified = certified
        #: Where it stands; ``None`` after the last page.
        self._cursor: Place | None = begin
        #: The ids of the last rows, the oldest first.
        self._seen: OrderedDict[object, None] = OrderedDict()
        #: The rows of the last page, if none has an id.
        self._nameless: tuple[T, ...] = ()
        #: How many rows it has returned.
        self._returned = 0
        self._turn = asyncio.Lock()
        self._failure: PaymentsError | None = None

    async def __anext__(self) -> Page[T]:
        async with self._turn:
            return await self._next()

    async def _next(self) -> Page[T]:
        self._check_open()
        cursor = self._cursor
        if cursor is None:
            await wait_for_end(self._cancelled)
            raise StopAsyncIteration
        try:
            if self._certified is not None:
                return await self._take_all(self._certified)
            return self._accept(cursor, await self._take(cursor))
        except PaymentsError as error:
            error.operation, error.account = self.operation.name, self.account
            if error.resume_point is None:
                error.resume_point = cursor.resume_point
            # Whoever asks next must not take it for the end.
            self._failure = copy(error)
            self._cancel_prefetch()
            await wait_for_end(self._cancelled)
            raise
        except BaseException:
            # Cancelled, or worse: the fetches ahead must not outlive the walk.
            self._cancel_prefetch()
            raise

    async def aclose(self) -> None:
        """End the walk, and wait until the fetches ahead are gone. Closing twice is allowed."""
        if self._cursor is not None and self._failure is None:
            # Another task may read it as well, and must not take this for its end, now or when it next asks.
            self._failure = _closed(self)
            self._failure.resume_point = self._cursor.resume_point
        self._cancel_prefetch()
        await wait_for_end(self._cancelled)

    def __del__(self) -> None:
        # `break` does not close an async iterator; its tasks must not go on fetching. Nobody knows in which thread the
        # last reference goes, nor when: a loop that is closed has no more turn for them.
        with suppress(RuntimeError):
            loop = self._ahead[0][1].get_loop() if self._ahead else None
            if loop is None or loop.is_closed() or loop is running_loop():
                self._cancel_prefetch()
            else:
                loop.call_soon_threadsafe(self._cancel_prefetch)

    def _cancel_prefetch(self) -> None:
        tasks = [task for _, task in self._ahead]
        self._ahead.clear()
        for task in tasks:
            if task.done():
                retrieve_exception(task)
            else:
                task.cancel()
                task.add_done_callback(retrieve_exception)
        self._cancelled = [task for task in (*self._cancelled, *tasks) if not task.done()]

    async def _take(self, cursor: Place) -> "Result[object]":
        """Return the page where *cursor* stands, which may have been asked for already, and ask for those behind it."""
        if self._ahead and self._ahead[0][0] != cursor.offset:
            self._cancel_prefetch()
        if self._prefetch == 1 or isinstance(cursor, CursorPage) or not cursor.size:
            result = await self._fetch(cursor.offset)
            self._check_open()
            return result
        self._prefetch_pages(cursor)
        task = self._ahead[0][1]
        await asyncio.wait((task,))
        self._check_open()
        result = task.result()
        self._ahead.popleft()
        return result

    def _check_open(self) -> None:
        """Fail again if the walk has failed, or another task has closed it."""
        if self._failure is not None:
            raise copy(self._failure)

    def _prefetch_pages(self, cursor: Cursor | NumberedPage) -> None:
        """Keep ``prefetch`` pages in flight or waiting, none of them beyond the total."""
        if isinstance(cursor, NumberedPage):
            stride, end = 1, 1 - (-(cursor.total or 0) // cursor.size)
        else:
            stride, end = max(1, cursor.size - cursor.overlap), cursor.total or 0
        following = self._ahead[-1][0] + stride if self._ahead else cursor.offset
        while len(self._ahead) < self._prefetch and (following < end or following == cursor.offset):
            task = asyncio.ensure_future(self._fetch(following))
            self._ahead.append((following, task))
            following += stride

    async def _take_all(self, certified: CertifiedSearch) -> Page[T]:
        """Return all rows as one page."""
        rows = cast("tuple[T, ...]", tuple(await certified.rows()))
        self._check_open()
        self._cursor = None
        return Page(items=rows, total=len(rows), offset=0, resume_point=None, anomalies=tuple(certified.anomalies))

    def _accept(self, cursor: Place, result: "Result[object]") -> Page[T]:
        """Take a page into the walk.

        Raises:
            Incomplete: The page is empty, and before the total; or it is the only one of its search, and not all.
            PaginationStalled: The platform repeats itself, or its cursor cannot be read.
        """
        shape = cast("PageShape", self.operation.page)
        items, total, _, proposed, next_cursor = shape.read(result.value)
        rows = cast("tuple[T, ...]", tuple(items or ()))
        ids = tuple([_id_of(row) for row in rows])
        # A row without an id is always new.
        fresh = tuple(
            [row for row, row_id in zip(rows, ids, strict=True) if row_id is None or row_id not in self._seen]
        )
        anomalies = result.anomalies
        dropped = dropped_entries(anomalies, shape.places(result.value)[0]) if anomalies else 0
        if next_cursor is None and shape.next_cursor and anomalies:
            place = member_place(shape.next_cursor, type(result.value), "the result")
            if any(anomaly.dropped and f"{place}.".startswith(f"{anomaly.path}.") for anomaly in anomalies):
                raise PaginationStalled(f"the cursor of the next page, {place}, cannot be read")
        is_repeated = bool(rows) and not any(ids) and rows == self._nameless
        page = PageSummary(
            ids=ids,
            dropped=dropped,
            total=total,
            proposed=proposed,
            next_cursor=next_cursor,
            has_new_rows=bool(fresh) and not is_repeated,
            new_rows=0 if is_repeated else len(fresh),
        )
        following: Place | None
        if isinstance(cursor, Cursor):
            following = cursor.advance(page, looks_ahead=bool(self._ahead))
            row, missing, reason = cursor.offset, page.missing(cursor.offset, cursor.total), ""
        else:
            following = cursor.advance(page)
            row, missing, reason = cursor.skipped + cursor.seen, cursor.missing(page), "no page follows"
        if shape.position_in(self.operation.query) is None:
            following = None
            if total is not None and total > page.received:
                reason = "the search has no filter offset, so that it shows one page"
                raise Incomplete(0, total, ResumePoint(0, total), reason)
        if following is None and missing is not None:
            raise Incomplete(self._returned, missing, ResumePoint(cursor.resume_point or 0, missing), reason)
        if following is None or following.size != cursor.size:
            # Pages ahead begin where those of the old size would have ended, or behind the last one. Whoever asks next
            # waits until they are gone: here, a cancellation of the wait would take the page along.
            self._cancel_prefetch()
        # Nothing can fail from here on: the page is taken.
        self._remember(ids)
        self._nameless = () if any(ids) else rows
        self._returned += len(fresh)
        self._cursor = following
        point = None if following is None else following.resume_point
        return Page(items=fresh, total=total, offset=row, resume_point=point, anomalies=anomalies)

    def _remember(self, ids: tuple[object, ...]) -> None:
        """Remember *ids* in place of the oldest."""
        for row_id in ids:
            if row_id is not None and row_id not in self._seen:
                self._seen[row_id] = None
        while len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)


def _id_of(row: object) -> int | str | None:
    row_id = getattr(row, "id", None)
    return row_id if isinstance(row_id, int | str) and row_id != "" else None


def _closed(walk: Pages[T]) -> ClientClosed:
    error = ClientClosed("the walk was closed")
    error.operation, error.account = walk.operation.name, walk.account
    return error
