"""Check that a response belongs to its request: it must repeat parts of the request.

Bytes left on a connection become the response to the next request, and such a shifted response can be a success of
another call. Each write declares what its response repeats. The members that are present must agree. A response that
repeats nothing is accepted only if it has no field that its type does not declare, and gets an `Anomaly`.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, Never, TypeAlias, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Struct, structs

from paymentsdk._codec import amounts
from paymentsdk._codec.anomaly import Anomaly
from paymentsdk._codec.decode import replace_lone_surrogates
from paymentsdk._codec.type_walk import compile_function
from paymentsdk.errors import RequestInvalid

_ERROR_STATUS = 400
#: So many members of a write's response must agree with the request; then its bytes need no further check.
CERTAIN = 2
#: Members of an error response. A result with one is no success, unless its type declares it.
_OF_ERRORS = ("error", "message")
_ERROR_MEMBER = re.compile(rb'"(?:error|message|status"\s*:\s*[45"])')
_INDEX = r"\[\d*\]"
_UNSET: tuple[object, ...] = (None, "", [], {})

_Read: TypeAlias = Callable[[object], object]
_Agrees: TypeAlias = Callable[[Any, Any], bool | None]


def _equal(sent: object, echoed: object) -> bool | None:
    # An empty string counts as unset. Not `in (None, "")`: comparing an amount with another type is slow.
    return None if not echoed and type(echoed) is str else sent == echoed


class Echo(Struct, frozen=True):
    """A field of the response that repeats a field of the request."""

    member: str
    """Its path in the response, such as `total_amount`. `[]` stands for each entry of a list, as in
    `transactions.payments[].amount`."""
    of: str = ""
    """The repeated value: a path in the body (by default the same path as `member`), or a placeholder of the URL such
    as `{order_id}`. Two lists are compared entry by entry. A list is compared with a single value in each entry. A
    single value may repeat any entry of a list."""
    agrees: Callable[[Never, Never], bool | None] = _equal
    """Compares the requested value (`None` if unset) with the received value (never `None`). It returns `None` if they
    cannot tell. If it raises, the field counts as not compared, and the result has an `Anomaly`. Equality by
    default."""
    always: str | tuple[str, ...] | None = None
    """The text of this field in every response to this operation, or the possible texts. Replaces `of` and `agrees`."""
    fallback: bool = False
    """Compare it only if nothing else identifies the response. It can show a mismatch, but identifies nothing."""
    shared: bool = False
    """Objects of other kinds may have the same value, such as a preference and an order for one basket. It can show a
    mismatch, but does not identify a response on its own."""
    whole: bool = False
    """Pass `agrees` the list of all entries. Some may be `None`."""


class Addition(Struct, frozen=True):
    """The list in the response to which the write adds an entry, such as the refunds of an order.

    At least one entry must agree with the body on the fields that both have.
    """

    member: str
    """The path of the list in the response."""
    echoes: tuple[Echo, ...] = ()
    """The members that an entry repeats. Values that the request does not set are not compared."""


class Comparison(Struct, frozen=True, gc=False):
    """The result of comparing the members of a response with the request."""

    agreed: int = 0
    """How many members are present and agree. 0 if nothing identifies the response."""
    mismatch: str | None = None
    """Why this is not the response to the request."""
    anomalies: tuple[Anomaly, ...] = ()
    """Members that could not be compared, or a response that nothing identifies."""


#: Compares the body and the path of a request with the decoded response.
_Compare: TypeAlias = Callable[[object, Mapping[str, object], object], Comparison]


class Identity:
    """Compares responses with their requests, as the operation declares it.

    Raises:
        RequestInvalid: The declaration is wrong: a member or a placeholder does not exist.
    """

    def __init__(
        self,
        echoes: Collection[Echo],
        addition: Addition | None,
        *,
        body: type | None,
        result: type,
        placeholders: Collection[str],
    ) -> None:
        self._echoes = [echo for echo in echoes if not echo.fallback]
        self._fallback = [echo for echo in echoes if echo.fallback]
        self._addition = addition
        places = {echo: _check_echo(echo, body, result, placeholders) for echo in echoes}
        #: The places of the compared members in a response, spelt as in anomalies.
        self._places = [places[echo] + "." for echo in self._echoes]
        if addition is not None:
            place = member_place(addition.member, result, "the result")
            entry = struct_at(addition.member, result)
            self._places += [place + _check_echo(echo, body, entry, ())[1:] + "." for echo in addition.echoes]

    @cached_property
    def compare(self) -> _Compare:
        """Compares the body and the path of a request with the decoded response.

        Compiled at the first response, since most programs use few operations.
        """
        compare_echoes, addition = compile_comparison(self._echoes), self._addition
        if addition is None:
            return compare_echoes
        compare_entry = compile_comparison(addition.echoes, of_entry=True)

        def compare(body: object, path: Mapping[str, object], value: object) -> Comparison:
            compared, entries = compare_echoes(body, path, value), reader(addition.member)(value)
            if compared.mismatch is not None:
                return compared
            if not isinstance(entries, Sequence) or not entries:
                return Comparison(anomalies=compared.anomalies)
            agrees = any(compare_entry(body, {}, entry).mismatch is None for entry in entries if entry is not None)
            mismatch = None if agrees else f"no entry of {addition.member} in the response is about this request"
            return Comparison(compared.agreed + 1, mismatch, compared.anomalies)

        return compare

    def verify(self, compared: Comparison, value: object, content: bytes, anomalies: tuple[Anomaly, ...]) -> Comparison:
        """Complete *compared* for the response to a write: look for signs of an error or of another response.

        Args:
            compared: The result of `compare`, without a mismatch. With `CERTAIN` members and without anomalies, it is
                complete: an error response does not agree twice.
            value: The decoded response.
            content: The bytes of the response.
            anomalies: The anomalies of decoding.
        """
        if anomalies and (lost := next(filter(self.unreadable, anomalies), None)):
            return Comparison(mismatch=f"the response cannot be compared with the request: {lost.path}: {lost.reason}")
        # Searching the bytes takes as long as all comparisons.
        if compared.agreed and not anomalies and not _ERROR_MEMBER.search(content):
            return compared
        raw = _object(content)
        declared: tuple[str, ...] = getattr(value, "__struct_encode_fields__", ())
        if _is_error(raw, declared):
            return Comparison(mismatch="the response has the fields of an error")
        if compared.agreed:
            return compared
        for echo in self._fallback:
            if (echoed := reader(echo.member)(value)) is not None and agreement(echo)(None, echoed) is False:
                reason = f"nothing in the response repeats the request, and {echo.member} contradicts it"
                return Comparison(mismatch=reason)
        if (member := next(undeclared(raw, value, "$"), None)) is not None:
            return Comparison(
                mismatch=f"nothing in the response repeats the request, and {member} is not one of its fields"
            )
        unidentified = Anomaly("$", None, "unidentified response: nothing in it repeats the request")
        return structs.replace(compared, anomalies=(*compared.anomalies, unidentified))

    def unreadable(self, anomaly: Anomaly) -> bool:
        """Return whether *anomaly* is about a member to compare that could not be read, or about what contains it."""
        if not anomaly.dropped or anomaly.value in _UNSET:
            return False
        place = f"{re.sub(_INDEX, '', anomaly.path)}."
        return place != "$." and any(member.startswith(place) for member in self._places)


# --- the declaration, checked and compiled ----------------------------------------------------------------------------


def _check_echo(echo: Echo, body: type | None, result: type | None, placeholders: Collection[str]) -> str:
    """Return the place of the compared member in the JSON of a response.

    Raises:
        RequestInvalid: The declaration names something that the result, the body or the path does not have.
    """
    place, source = member_place(echo.member, result, "the result"), echo.of or echo.member
    if source.startswith("{"):
        if source[1:-1] not in placeholders:
            raise RequestInvalid("echoes", f"{source} is not a placeholder of the path")
    elif not echo.fallback and echo.always is None:
        member_place(source, body, "the body")
    return place


def member_place(path: str, cls: type | None, owner: str, declaration: str = "echoes") -> str:
    """Return the place of the member *path* in the JSON of the Struct *cls* (`$.paging.total`).

    Raises:
        RequestInvalid: The Struct has no such member. The error calls the Struct *owner*, and names the *declaration*.
    """
    place, holder, parent = "$", cls, ""
    for name in path.replace("[]", "").split("."):
        if parent:  # Only below the first member, since reading the types of a Struct takes up to 0.3 ms.
            holder = _parts(holder).get(parent)
        struct = _struct(holder)
        names = () if struct is None else zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
        wire_name = dict(names).get(name)
        if wire_name is None:
            raise RequestInvalid(declaration, f"{path!r} is not a field of {owner}")
        place, parent = f"{place}.{wire_name}", name
    return place


def struct_at(path: str, cls: type | None) -> type | None:
    """Return the Struct at the member *path* of the Struct *cls*, or in its entries; `None` if it has no Struct."""
    for name in path.replace("[]", "").split("."):
        cls = _parts(cls).get(name)
    return cls


@cache
def _parts(cls: type | None) -> Mapping[str, type | None]:
    """Return the members of the Struct *cls*, each with the Struct in its type."""
    fields = () if cls is None or _struct(cls) is None else structs.fields(cast("type[Struct]", cls))
    return {field.name: next(_structs_in(field.type), None) for field in fields}


def _struct(kind: object) -> type[Struct] | None:
    """Return the class of *kind*, a Struct or a generic Struct with its parameters; `None` for other types."""
    cls = get_origin(kind) or kind
    return cls if isinstance(cls, type) and issubclass(cls, Struct) else None


def _structs_in(kind: object) -> Iterator[type]:
    """Yield the Structs in the annotation *kind*."""
    if _struct(kind) is not None:
        yield cast("type", kind)
    for part in get_args(kind):
        yield from _structs_in(part)


def compile_comparison(echoes: Sequence[Echo], *, of_entry: bool = False) -> _Compare:
    """Compile the comparison of all *echoes*: every response is compared, and has few members to compare.

    In an added entry, values that the request does not set are not compared.
    """
    scope: dict[str, object] = {
        "agreed_on": tuple(Comparison(agreed=count) for count in range(len(echoes) + 1)),
        "Comparison": Comparison,
        "raised": _raised,
        "UNSET": UNSET,
    }
    lines = ["agreed, anomalies = 0, ()"]
    for i, echo in enumerate(echoes):
        scope[f"other{i}"] = Comparison(mismatch=f"the response is about another {echo.member}")
        scope[f"agrees{i}"] = agrees = agreement(echo)
        of = echo.of or echo.member
        if of.startswith("{"):
            reading = [f"sent = path[{of[1:-1]!r}]"]
        else:
            reading = ["sent = None"] if echo.always is not None else list(_reading("sent", "body", of))
        lines += [
            *_reading("echoed", "value", echo.member),
            "if echoed is not None:",
            "    try:",
            *("        " + line for line in reading),
            # Written inline, as nearly all echoes are compared this way.
            "        same = " + _comparison(echo, agrees, f"agrees{i}"),
            *(["        same = None if sent is None else same"] if of_entry else ()),
            "    except Exception as error:",
            f"        anomalies += (raised({echo.member!r}, error),)",
            "    else:",
            "        if same:",
            f"            agreed += {int(not echo.shared)}",
            "        elif same is not None:",
            f"            return other{i}",
        ]
    lines.append("return Comparison(agreed, None, anomalies) if anomalies else agreed_on[agreed]")
    compiled = compile_function("body, path, value", lines, scope)
    return cast("_Compare", compiled)


def _comparison(echo: Echo, agrees: _Agrees, name: str) -> str:
    """Return the source that compares the requested value with the received value; *name* is *agrees* in the source."""
    if agrees is _equal:
        return "sent == echoed if echoed or echoed.__class__ is not str else None"
    # Most lists agree and have one entry. Only if that is not clear immediately, the entries are compared.
    in_lists = echo.agrees is _equal and not echo.whole and "[]" in echo.member and "[]" in (echo.of or echo.member)
    return ("True if sent == echoed and all(echoed) and echoed else " if in_lists else "") + f"{name}(sent, echoed)"


def _raised(member: str, error: Exception) -> Anomaly:
    # An error in an operation's own comparison must not cost the result.
    return Anomaly(f"$.{member}", None, f"comparing it raised {type(error).__name__}")


def agreement(echo: Echo) -> _Agrees:
    """Return a comparison of the values that *echo* names: the requested and the received value."""
    if echo.always is not None:
        texts = (echo.always,) if isinstance(echo.always, str) else echo.always
        return lambda _, echoed: (echoed in texts) if echoed else None
    agrees = cast("_Agrees", echo.agrees)
    asks_list, shows_list = "[]" in (echo.of or echo.member), "[]" in echo.member
    if echo.whole or echo.fallback or not (asks_list or shows_list):
        return agrees
    if not shows_list:
        return lambda sent, echoed: any(agrees(entry, echoed) is not False for entry in sent or ())
    if asks_list:
        # The request sets it in no entry, but the response may still have it, as an empty text.
        return lambda sent, echoed: _each_agrees(agrees, sent or [None] * len(echoed), echoed)
    return lambda sent, echoed: _each_agrees(agrees, [sent] * len(echoed), echoed)


@cache
def reader(path: str) -> _Read:
    """Compile a function that reads *path*; it returns `None` if any part of the path is missing."""
    return cast(
        "_Read", compile_function("value", [*_reading("member", "value", path), "return member"], {"UNSET": UNSET})
    )


def _reading(name: str, of: str, path: str, depth: int = 0) -> Iterator[str]:
    """Yield the source that reads *path* of the variable *of* into *name*."""
    head, _, tail = path.partition("[]")
    if "." not in head:
        yield f"{name} = None if {of} is None else {of}.{head}"
    else:
        yield "try:"
        yield f"    {name} = {of}.{head}"
        yield "except AttributeError:"  # The declaration was checked: a part of the path is None.
        yield f"    {name} = None"
    yield f"if {name} is UNSET: {name} = None"
    if tail:
        entries, entry = f"entries{depth}", f"entry{depth}"
        yield f"if {name} is not None:"
        yield f"    {entries} = []"
        yield f"    for {entry} in {name}:"
        yield from (f"        {line}" for line in _reading(entry, entry, tail[1:], depth + 1))
        yield f"        {entries}.append({entry})"
        yield f"    {name} = None"
        yield f"    for {entry} in {entries}:"
        yield f"        if {entry} is not None:"
        yield f"            {name} = {entries}"


def _each_agrees(agrees: _Agrees, sent: Sequence[object], echoed: Sequence[object]) -> bool | None:
    """Return whether all present entries agree; `None` if they cannot tell."""
    if len(sent) != len(echoed):
        return False
    agreed = None
    for value, entry in zip(sent, echoed, strict=True):
        same = None if entry is None else agrees(value, entry)
        if same is False:
            return False
        agreed = same or agreed
    return agreed


# --- the bytes of a response that nothing identifies ------------------------------------------------------------------


def _object(content: bytes) -> dict[str, object]:
    """Return the members of the object in *content*; an empty dict for anything else, such as an empty body."""
    try:
        # Read it as far as possible: decoded parts may have half characters, and skipped parts may be invalid UTF-8 or
        # have a number that is too large for a float.
        raw = amounts.read_untyped(str(replace_lone_surrogates(content)[0], "utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return {}
    return raw if isinstance(raw, dict) else {}


def _is_error(raw: dict[str, object], declared: Collection[str]) -> bool:
    status = str(raw.get("status"))
    if status.isdecimal() and int(status) >= _ERROR_STATUS:
        return True
    return any(raw.get(name) not in _UNSET and name not in declared for name in _OF_ERRORS)


def undeclared(raw: object, value: object, place: str) -> Iterator[str]:
    """Yield the places where *raw* has a member that the Struct *value*, which was read from it, does not declare."""
    if isinstance(raw, list) and isinstance(value, list | tuple):
        for i, (raw_entry, entry) in enumerate(zip(raw, value, strict=False)):
            yield from undeclared(raw_entry, entry, f"{place}[{i}]")
    elif isinstance(raw, dict) and isinstance(value, Struct):
        members = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        for name, member in raw.items():
            if name not in members:
                if name != value.__struct_config__.tag_field:
                    yield f"{place}.{name}"
            else:
                yield from undeclared(member, getattr(value, members[name]), f"{place}.{name}")
