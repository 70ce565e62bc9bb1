"""What the sandbox says: Structs as the wire has them, and rejections in the shape of each API."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from http import HTTPStatus
from typing import TypeAlias, TypeVar

import msgspec
from msgspec import Struct, inspect
from msgspec.structs import fields

from paymentsdk._codec.type_walk import alternatives, walk
from paymentsdk._operation.operation import Operation

A = TypeVar("A", bound=Struct)

#: Numbers with a fraction are kept exactly: as floats they could change on their way through.
read_json = msgspec.json.Decoder(float_hook=Decimal).decode
write_json = msgspec.json.Encoder(decimal_format="number").encode
_write_texts = msgspec.json.Encoder(decimal_format="string").encode


class Rejected(Exception):  # noqa: N818 - it says what happened
    """The platform says no.

    Args:
        status: The HTTP status.
        code: The platform's code.
        message: What a person is told; by default what the contract says about *code*.
        details: The places in the request that break the rule.
        retry_after: Seconds to wait.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str = "",
        *,
        details: tuple[str, ...] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.details = details
        self.retry_after = retry_after

    def __str__(self) -> str:
        return " ".join(map(str, filter(None, (self.status, self.code, self.message, *self.details))))


#: Writes the body of a rejection, which is told with a message.
Shape: TypeAlias = Callable[[Rejected, str], Mapping[str, object]]


def wire_form(value: object) -> object:
    """Return *value* as plain data: moments in UTC with milliseconds, days without a time.

    A member that is ``None`` is left out, unless its Struct has no default for it: then it is sent as null.
    """
    match value:
        case Struct():
            return {
                name: member if form is None else form(member)
                for attribute, name, always, form in _members(type(value))
                if (member := getattr(value, attribute)) is not None or always
            }
        case dict():
            return {name: wire_form(member) for name, member in value.items()}
        case list() | tuple():
            return [wire_form(item) for item in value]
        case datetime():
            return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case _:
            return value


#: What has another form on the wire, or holds what has.
_OTHERWISE = (inspect.StructType, inspect.DateTimeType, inspect.DictType, inspect.AnyType, inspect.CustomType)


@cache
def _members(form: type[Struct]) -> tuple[tuple[str, str, bool, Callable[[object], object] | None], ...]:
    """Return how each member is sent: its name, that on the wire, whether also as null, and its form if it has one."""
    return tuple((one.name, one.encode_name, one.required, _form_of(one.type)) for one in fields(form))


def _form_of(kind: object) -> Callable[[object], object] | None:
    info = inspect.type_info(kind)
    if any(one.marks.get("day") for one in alternatives(info)):
        return _day
    return wire_form if any(isinstance(one.type, _OTHERWISE) for one in walk(info)) else None


def _day(value: object) -> object:
    return value.date().isoformat() if isinstance(value, datetime) else value


def dates_as_sent(response: object, sent: object, names: Collection[str]) -> object:
    """Return *response* with the dates, which have these *names*, that *sent* has in the same places."""
    match response, sent:
        case dict(), dict():
            return {
                name: sent[name] if name in names else dates_as_sent(member, sent.get(name), names)
                for name, member in response.items()
            }
        # Cards of a customer that were sent are none that they have.
        case list(), list() if len(response) == len(sent):
            return [dates_as_sent(*pair, names) for pair in zip(response, sent, strict=True)]
        case _:
            return response


def encode(value: object, *, decimal_strings: bool = False) -> bytes:
    """Return *value* as the bytes of a response."""
    return (_write_texts if decimal_strings else write_json)(wire_form(value))


def media_type(operation: Operation[object, object]) -> str:
    """Return what the body of a success is."""
    return "application/octet-stream" if operation.accept == "*/*" else operation.accept.partition(";")[0]


def rejection(rejected: Rejected, operation: Operation[object, object] | None, shape: Shape) -> bytes:
    """Return the body of a rejection in *shape*."""
    message = rejected.message or (operation.meanings.get(rejected.code) if operation else None)
    return msgspec.json.encode(shape(rejected, message or phrase(rejected.status).lower()))


def phrase(status: int) -> str:
    """Return what *status* is called; a fault may ask for one that has no name."""
    return HTTPStatus(status).phrase if status in set(HTTPStatus) else f"Status {status}"


def errors(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Write a list of errors."""
    entry: dict[str, object] = {"code": rejected.code, "message": message}
    if rejected.details:
        entry["details"] = rejected.details
    return {"errors": [entry]}


def cause(rejected: Rejected, message: str) -> Mapping[str, object]:
    """Write a general error and its cause; so does each API that has no shape of its own."""
    entry: dict[str, object] = {"code": rejected.code, "description": message}
    if rejected.details:
        entry["data"] = ", ".join(rejected.details)
    return {"message": message, "error": rejected.code, "status": rejected.status, "cause": [entry]}


#: The shapes that a policy can choose for all.
SHAPES: Mapping[str, Shape] = {
    "cause": cause,
    "errors": errors,
    "flat": lambda rejected, message: {"code": rejected.code, "message": message},
}


def structs_in(types: Iterable[type]) -> Iterator[inspect.StructType]:
    """Yield *types* and every Struct inside them."""
    seen: set[type] = set()
    for kind in types:
        for found in walk(inspect.type_info(kind)):
            if isinstance(found.type, inspect.StructType) and found.type.cls not in seen:
                seen.add(found.type.cls)
                yield found.type


def echo(body: Struct, form: type[A], **members: object) -> A:
    """Return the response Struct *form* with the members that it shares with the request *body*, and *members*."""
    shared = msgspec.to_builtins(body, builtin_types=(Decimal, datetime))
    response = msgspec.convert({**shared, **dict.fromkeys(members), "id": members.get("id", "")}, form)
    return msgspec.structs.replace(response, **members)
