"""An asyncio SDK for a payments platform.

    >>> from paymentsdk import PaymentsClient
    >>> async with PaymentsClient(access_token="...", base_url="http://127.0.0.1:8787") as client:
    ...     order = await client.orders.get("ORD01J67CQQH5904WDBVZEM4JMEP3")

``paymentsdk.resources`` has the requests and answers of each resource, ``paymentsdk.sandbox`` the platform itself, for
localhost, and ``paymentsdk.testing`` the tools for tests.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paymentsdk import journal as journal
    from paymentsdk import resources as resources
    from paymentsdk import sandbox as sandbox
    from paymentsdk import testing as testing
    from paymentsdk._auth.schemes import Auth, Exchange, RefreshingToken, StaticToken
    from paymentsdk._auth.token_store import (
        FileTokenStore,
        LockingTokenStore,
        MemoryTokenStore,
        TokenPair,
        TokenStore,
    )
    from paymentsdk._clock import Clock
    from paymentsdk._codec.anomaly import Anomaly
    from paymentsdk._engine.events import Attempt
    from paymentsdk._engine.result import Result
    from paymentsdk._engine.retry import RetryPolicy
    from paymentsdk._engine.settings import Timeout
    from paymentsdk._operation.identity import Addition, Echo
    from paymentsdk._operation.operation import Limits, Operation, PageShape
    from paymentsdk._operation.rules import ErrorCode, RetryClass
    from paymentsdk._paging.pager import Page, Pager, WalkOptions
    from paymentsdk._resume_point import ResumePoint
    from paymentsdk._version import __version__
    from paymentsdk.client import PaymentsClient
    from paymentsdk.errors import (
        APIError,
        AuthenticationFailed,
        BadRequest,
        ClientClosed,
        Conflict,
        Deferred,
        ErrorDetail,
        IdempotencyConflict,
        Incomplete,
        InProgress,
        JournalUnavailable,
        NoAnswer,
        NotFound,
        NotSent,
        NotWhole,
        OutcomeUnknown,
        PaginationStalled,
        PaymentsError,
        PermissionDenied,
        RateLimited,
        ReauthorizationRequired,
        RecordConflict,
        RefreshFailed,
        RequestInvalid,
        ServerError,
    )
    from paymentsdk.resources import OPERATIONS
    from paymentsdk.transports.aiohttp import AiohttpTransport
    from paymentsdk.transports.base import DiscardingTransport, Headers, Request, Response, SendFailed, Transport
    from paymentsdk.transports.http11 import Http11Transport

__all__ = [  # noqa: RUF022 - as `sorted` has it
    "APIError",
    "Addition",
    "AiohttpTransport",
    "Anomaly",
    "Attempt",
    "Auth",
    "AuthenticationFailed",
    "BadRequest",
    "ClientClosed",
    "Clock",
    "Conflict",
    "Deferred",
    "DiscardingTransport",
    "Echo",
    "ErrorCode",
    "ErrorDetail",
    "Exchange",
    "FileTokenStore",
    "Headers",
    "Http11Transport",
    "IdempotencyConflict",
    "InProgress",
    "Incomplete",
    "JournalUnavailable",
    "Limits",
    "LockingTokenStore",
    "MemoryTokenStore",
    "NoAnswer",
    "NotFound",
    "NotSent",
    "NotWhole",
    "OPERATIONS",
    "Operation",
    "OutcomeUnknown",
    "Page",
    "PageShape",
    "Pager",
    "PaginationStalled",
    "PaymentsClient",
    "PaymentsError",
    "PermissionDenied",
    "RateLimited",
    "ReauthorizationRequired",
    "RecordConflict",
    "RefreshFailed",
    "RefreshingToken",
    "Request",
    "RequestInvalid",
    "Response",
    "Result",
    "ResumePoint",
    "RetryClass",
    "RetryPolicy",
    "SendFailed",
    "ServerError",
    "StaticToken",
    "Timeout",
    "TokenPair",
    "TokenStore",
    "Transport",
    "WalkOptions",
    "__version__",
]

#: Where the names above live. A name is looked for in this order when it is first asked for, and the modules on the way
#: are imported: those that most programs need come first. So ``import paymentsdk`` itself costs nothing, which matters
#: to pytest: it imports the plugin of every installed package, and this one with it.
_HOMES = (
    "_version",
    "errors",
    "_engine.settings",
    "_engine.retry",
    "client",
    "resources",
    "_auth.schemes",
    "_auth.token_store",
    "_clock",
    "_codec.anomaly",
    "_operation.identity",
    "_engine.result",
    "_operation.operation",
    "_operation.rules",
    "_paging.pager",
    "_engine.events",
    "transports.base",
    "transports.aiohttp",
)
#: Names whose homes need an extra: only who asks for them has to have it.
_EXTRAS = {"Http11Transport": "transports.http11"}
_MODULES = frozenset({"journal", "resources", "sandbox", "testing"})

# Silent until the program sets up logging.
logging.getLogger("paymentsdk").addHandler(logging.NullHandler())


# Type checkers would take every name that is asked for, also one that is misspelt, for one that is here.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name in __all__:
            for home in (_EXTRAS[name],) if name in _EXTRAS else _HOMES:
                module = import_module(f"{__name__}.{home}")
                if hasattr(module, name):
                    globals()[name] = getattr(module, name)
                    return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
