"""The pager, which fetches the pages of a search on demand or ahead, and shares them among the tasks that read them.

`cursor.py` decides where the next page begins and which page is the last; `sequence.py` does so for pages by number or
cursor. `certified.py` reads all rows of a search with `certify=True`. Rows whose ids came recently are left out.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from copy import copy
from dataclasses import dataclass, field
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

T = TypeVar("T")
#: Fetches the page at an offset, page number or cursor.
Fetch = Callable[[object], "Coroutine[object, object, Result[object]]"]

MOST_PREFETCH = 64
#: The number of ids that a walk remembers to recognise repeated rows; it bounds the memory of a long walk.
REMEMBERED = 10_000


class WalkOptions(TypedDict, total=False):
    """The options of a walk over a search."""

    page_size: int | None
    """Rows to request per page, 1 to 1,000,000; by default, the platform decides. It may return fewer."""
    start: int | None
    """The offset of the first row, 0 to 2**53, such as the `resume_point` of an earlier walk. In a search by page
    number, it is the number of the first page, from 1, and needs *page_size*. A search by cursor always begins at its
    first page."""
    prefetch: int
    """Pages in flight or waiting, 1 to 64; 1 by default. With 1, a page is fetched when the previous page is used up.
    The walk always does so with *overlap* or *certify*, because more rows could slide while pages wait. A search by
    cursor always does so, because each page has the cursor of the next."""
    overlap: int
    """Rows to read again at every page and before *start*, in a search by offset; 0 by default, and less than the rows
    of a page. It finds rows that slide over a page's edge when as many vanish as appear. Without it, a walk notices
    only a total that falls."""
    certify: bool
    """Return the rows, as one `Page`, only after the platform's totals prove that no row is missing; `False` by
    default. If 5 tries cannot prove it, raise `Incomplete`. A search with a window of creation needs the end of the
    window, and no filter by values that can change, such as `status`. Several pages are certified only if the window
    ended at least 15 minutes ago and each row has a date. Any other search, and a search by page number, is certified
    only if all its rows are on one page. A search of 1,000 rows or more is never certified:
    `paymentsdk.reconcile.walk` certifies larger ones. A search by cursor is rejected."""


class Page(Struct, Generic[T], frozen=True, kw_only=True):
    """One page of a search."""

    items: tuple[T, ...]
    """The rows, without those that the walk has seen before."""
    total: int | None
    """The number of rows that the search has, if the platform says so; it may change from page to page."""
    offset: int
    """The offset of the page, in rows. By page number or cursor: the rows that this walk has seen before the page."""
    resume_point: ResumePoint | None
    """Pass it to `search(start=)` to continue after this page; `None` after the last page and in a search by cursor."""
    anomalies: tuple[Anomaly, ...] = ()
    """The parts of the response that did not follow the contract."""


class Pager(Generic[T]):
    """A search that fetches its pages on demand. Each ``async for`` starts a new walk.

    A walk that fails raises an error; it never just ends early. An empty page before the total raises `Incomplete`. If
    an empty page has no total, the last known total counts. If the total falls, the walk goes back by as many rows.
    Rows that slide while the total stays are found with `overlap=` or `certify=True`.

    All pages are of one seller: if a later token belongs to another seller than the first token, the walk raises
    `RequestInvalid` and does not send the later token. To continue after an error, pass its ``resume_point`` to
    ``search(start=)``. If rows have vanished meanwhile, the rows behind them have moved up, so the new walk begins that
    many rows earlier. Some rows may then come twice: recognise them by their ids.

    Several tasks may share the iterator of one walk. Each row goes to one of them. A failure goes to all, after every
    row before it has been delivered. If the iterator is closed before its end, the next request for a row raises
    `ClientClosed`.

    Args:
        engine: Makes the calls; a client is accepted, too.
        operation: The search.
        page_size: Rows per page. `WalkOptions` describes this and the next four arguments.
        start: Where the walk begins.
        prefetch: Pages to fetch ahead.
        overlap: Rows to read again at every page.
        certify: Whether the walk has to prove that no row is missing.
        **filters: The filters of the search.

    Raises:
        RequestInvalid: An option is out of bounds, a filter is unknown, empty or of the wrong type, or *operation* is
            not a search, or has placeholders in its path. With *certify*: a filter is by a value that can change, the
            end of the window is missing, or the walk does not begin at the first row.
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

        def walk(engine: "Engine") -> Pages[T]:
            # A token of another seller may come into the store during the walk, and would mix the rows of both.
            caller = engine.for_one_seller()

            async def fetch(offset: object) -> "Result[object]":
                return await caller.call(operation, query=query(offset))

            certified = CertifiedSearch(shape, filters, lambda row: fetch(row + first)) if certify else None
            return Pages(fetch, operation, engine.settings.account, begun(), 1 if overlap else prefetch, certified)

        self._text = f"<Pager of {operation.name} from {'page' if shape.page else 'row'} {start or first}>"
        self._engine: Engine = engine_of(engine)
        self._walk: Callable[[Engine], Pages[T]] = walk

    def __repr__(self) -> str:
        return self._text

    def __aiter__(self) -> "Items[T]":
        return Items(self.pages())

    def pages(self) -> "Pages[T]":
        """Start a walk, and return its pages."""
        return self._walk(self._engine)

    def _copy(self, engine: "Engine") -> Self:
        clone: Self = copy(self)
        clone._engine = engine
        return clone

    async def first(self) -> T | None:
        """Return the first row, or ``None`` if the search has none.

        Makes one call, or more if the first page has only entries that cannot be read as rows.
        """
        return await anext(aiter(self), None)

    async def collect(self, limit: int | None = None) -> list[T]:
        """Return the rows as a list: all of them, or the first *limit* (0 or more).

        Raises:
            Incomplete: A page before the total was empty.
            PaymentsError: A page could not be read. No rows are returned, because a short list would look complete.
        """
        most = LARGEST_OFFSET if limit is None else check_within("limit", limit, 0, LARGEST_OFFSET)
        rows: list[T] = []
        async with aclosing(self.pages()) as walk:
            while len(rows) < most and (page := await anext(walk, None)):
                rows += page.items
        del rows[most:]
        return rows

    async def export(self, path: str | PathLike[str], *, progress: Callable[[Page[T]], None] | None = None) -> int:
        """Write all rows to a file, whole or not at all, and return their number.

        A `.parquet` or `.csv` file has a column for each declared member, such as `payment.id`. A `.jsonl` file has a
        line for each row, with the declared members that the platform sent. Undeclared members are left out. Parquet
        stores amounts as DECIMAL(36, 18), timestamps in UTC, ids as text, and lists. CSV stores lists as JSON.

        Args:
            path: The file; an existing file is replaced.
            progress: Called with each page. The page's `anomalies` list the values that could not be read.

        Raises:
            RequestInvalid: *path* has another suffix, or no member of a row is declared.
            ImportError: Parquet needs the extra `export`.
            ValueError: A value does not fit its column in Parquet. The error names the row and the column.
        """
        from paymentsdk._paging.export import write_pages  # most programs do not need it

        async with aclosing(self.pages()) as pages:
            return await write_pages(path, pages.operation, pages, progress)


class Items(AsyncIterator[T]):
    """The rows of a walk, one by one."""

    __slots__ = ("_cut", "_page", "_pages", "_turn")

    def __init__(self, pages: "Pages[T]") -> None:
        self._pages = pages
        self._page: deque[T] = deque()
        self._turn = asyncio.Lock()
        #: Whether it was closed before all rows of a page were delivered.
        self._cut = False

    async def __anext__(self) -> T:
        if not self._page:
            async with self._turn:
                while not self._page:  # Another task may have fetched the page while this one waited.
                    if self._cut:
                        raise _closed(self._pages)
                    self._page.extend((await self._pages.__anext__()).items)
        return self._page.popleft()

    async def aclose(self) -> None:
        """End the walk and the fetches in flight."""
        if self._page:
            self._cut = True
            self._page.clear()
        await self._pages.aclose()


@dataclass(eq=False, repr=False)
class Pages(AsyncIterator[Page[T]]):
    """The pages of a walk. Leaving the loop by ``break`` or by an error cancels the fetches in flight."""

    _fetch: Fetch
    operation: Operation[None, object]
    """The search."""
    account: str | None
    """The name of its seller."""
    _cursor: Place | None
    """The position of the walk; ``None`` after the last page."""
    _prefetch: int
    _certified: CertifiedSearch | None
    """Reads all rows if they have to be certified."""
    _ahead: deque[tuple[int, "asyncio.Task[Result[object]]"]] = field(default_factory=deque)
    _cancelled: list["asyncio.Task[Result[object]]"] = field(default_factory=list)
    """Fetches that were cancelled but may still be running."""
    _seen: OrderedDict[object, None] = field(default_factory=OrderedDict)
    """The ids of the latest rows, the oldest first."""
    _nameless: tuple[T, ...] = ()
    """The rows of the last page, if no row has an id."""
    _returned: int = 0
    """The number of rows that were returned."""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _failure: PaymentsError | None = None

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
            # The next request must raise the error again, and not look like the end.
            self._failure = copy(error)
            self._cancel_prefetch()
            await wait_for_end(self._cancelled)
            raise
        except BaseException:
            # After a cancellation, too, no fetch may outlive the walk.
            self._cancel_prefetch()
            raise

    async def aclose(self) -> None:
        """End the walk, and wait until the fetches ahead have ended. Closing twice is allowed."""
        if self._cursor is not None and self._failure is None:
            # Another task that reads the walk gets an error, so that it does not see this as the end of the search.
            self._failure = _closed(self)
            self._failure.resume_point = self._cursor.resume_point
        self._cancel_prefetch()
        await wait_for_end(self._cancelled)

    def __del__(self) -> None:
        # `break` does not close an async iterator, but its tasks must stop. The last reference may go in any thread,
        # and after the loop was closed.
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
        """Return the page at *cursor*, which may have been requested already, and request the pages behind it."""
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
        """Raise the error of the walk if it has failed or another task has closed it."""
        if self._failure is not None:
            raise copy(self._failure)

    def _prefetch_pages(self, cursor: Cursor | NumberedPage) -> None:
        """Keep ``prefetch`` pages in flight or waiting, but request no page beyond the total."""
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
        """Add a page to the walk, and return what the caller gets of it.

        Raises:
            Incomplete: The page is empty before the total, or the search has only one page and not all rows are on it.
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
                reason = "the search has no filter offset, so only its first page can be read"
                raise Incomplete(0, total, ResumePoint(0, total), reason)
        if following is None and missing is not None:
            raise Incomplete(self._returned, missing, ResumePoint(cursor.resume_point or 0, missing), reason)
        if following is None or following.size != cursor.size:
            # The pages ahead begin at wrong offsets, or behind the last page. The next request waits until they have
            # ended: if the wait were here, a cancellation would lose this page.
            self._cancel_prefetch()
        # From here on nothing can fail, so no page is lost.
        self._remember(ids)
        self._nameless = () if any(ids) else rows
        self._returned += len(fresh)
        self._cursor = following
        point = None if following is None else following.resume_point
        return Page(items=fresh, total=total, offset=row, resume_point=point, anomalies=anomalies)

    def _remember(self, ids: tuple[object, ...]) -> None:
        """Add *ids* to those that were seen, and forget the oldest."""
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
