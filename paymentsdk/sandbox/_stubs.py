"""Stubs: endpoints beyond the contract that respond from a template in a TOML file."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Annotated, Literal

import msgspec
from aiohttp import web
from msgspec import Meta, field

from paymentsdk.resources.common import require
from paymentsdk.sandbox._seed import blaming, read_file
from paymentsdk.sandbox._signers import fill
from paymentsdk.sandbox._wire import ControlStruct

_SEGMENT = r"[A-Za-z0-9._~-]+|\{[a-z_][a-z0-9_]*\}"
_Path = Annotated[str, Meta(pattern=rf"\A(/({_SEGMENT}))+/?\Z(?#must have a / before each word or {{placeholder}})")]
_HEADER = re.compile(r"[A-Za-z0-9-]{1,64}:[ -~]*\Z")
_NAME = re.compile(r"\{(\w+)\}")
#: Statuses whose response has no body.
_BODILESS = frozenset({204, 205, 304})


class Stub(ControlStruct):
    """An endpoint that the contract does not have."""

    path: _Path
    """The path, such as `/v1/payments/{id}`."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    """The HTTP method; `GET` by default."""
    status: Annotated[int, Meta(ge=200, le=599)] = 200
    """The status of the response; 200 by default."""
    headers: dict[str, str] = field(default_factory=dict)
    """The headers of the response. The default Content-Type is `text/plain` for a text, else `application/json`."""
    body: object = None
    """The body of the response; none by default. A text is sent as it is, any other value as JSON. Texts may contain
    the placeholders of `path`."""

    def __post_init__(self) -> None:
        require(self.body is None or self.status not in _BODILESS, "$.body", f"cannot go with the status {self.status}")
        for name, value in self.headers.items():
            require(_HEADER.match(f"{name}:{value}"), f"$.headers.{name}", "is not a header of visible ASCII")
        fill("$.body", self.body, dict.fromkeys(_NAME.findall(self.path), ""))

    def respond(self, values: Mapping[str, str]) -> web.Response:
        """Return the response to a request whose path has the placeholders' *values*."""
        kind, content = "application/json", b"" if self.body is None else fill("$.body", self.body, values)
        if isinstance(self.body, str):
            kind, content = "text/plain; charset=utf-8", msgspec.json.decode(content, type=str).encode()
        response = web.Response(status=self.status, body=content, headers={"Content-Type": kind} if content else {})
        response.headers.update(self.headers)
        return response


class _StubFile(ControlStruct):
    """A file with stubs."""

    stubs: tuple[Stub, ...] = ()
    """The endpoints."""


def add_stubs(
    router: web.UrlDispatcher, path: str, respond: Callable[[Stub, web.Request], Awaitable[web.StreamResponse]]
) -> None:
    """Add routes for the stubs in the file *path*, which *respond* handles.

    Raises:
        InvalidFile: The file is not TOML, or has an unknown key, an invalid value or a path that is already in use.
        OSError: The file cannot be read.
    """
    added: set[tuple[str, str]] = set()
    for number, stub in enumerate(read_file(_StubFile, path).stubs):
        with blaming(path, f"$.stubs[{number}]"):
            for route in router.routes():
                taken = route.resource.canonical if route.resource else ""
                # The router prefers words to placeholders, whichever stub comes first in the file.
                apart = (route.method, taken) in added and _words(stub.path) != _words(taken)
                if route.method == stub.method and _meet(stub.path, taken) and not apart:
                    _reject(stub, f"{route.method} {taken}")
            if stub.path.startswith("/_sandbox"):
                _reject(stub, "the control API, /_sandbox")
            for place in (stub.path.rstrip("/") + ending for ending in ("", "/")):
                router.add_route(stub.method, place, partial(respond, stub))
                added.add((stub.method, place))


def _words(path: str) -> list[str]:
    """Return the segments of *path* before its first placeholder."""
    return [word for word in path.partition("{")[0].split("/") if word]


def _meet(path: str, taken: str) -> bool:
    """Return whether an address can match both paths."""
    parts = [text.strip("/").split("/") for text in (path, taken)]
    return len(parts[0]) == len(parts[1]) and all(
        first == second or "{" in first + second for first, second in zip(*parts, strict=True)
    )


def _reject(stub: Stub, taken: str) -> None:
    way_out = "give the stub another path, or replace an operation of the contract with Sandbox(handlers=)"
    raise ValueError(f"{stub.method} {stub.path} is taken by {taken}: {way_out}")
