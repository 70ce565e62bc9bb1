"""An asyncio SDK for a payments platform.

    >>> from paymentsdk import PaymentsClient
    >>> async with PaymentsClient(access_token="...", base_url="http://127.0.0.1:8787") as client:
    ...     order = await client.orders.get("ORD01J67CQQH5904WDBVZEM4JMEP3")

``paymentsdk.resources`` has the requests and responses of each resource. ``paymentsdk.sandbox`` is the platform itself,
for localhost. ``paymentsdk.testing`` has tools for tests.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paymentsdk import events as events
    from paymentsdk import journal as journal
    from paymentsdk import resources as resources
    from paymentsdk import sandbox as sandbox
    from paymentsdk import testing as testing
    from paymentsdk._auth.accounts import AccountResolver
    from paymentsdk._auth.database_stores import PostgresTokenStore, SQLiteTokenStore
    from paymentsdk._auth.refresh import RefreshingToken
    from paymentsdk._auth.schemes import Auth, Exchange, Signer, StaticToken
    from paymentsdk._auth.token_store import (
        FileTokenStore,
        LockingTokenStore,
        MemoryTokenStore,
        PreparingTokenStore,
        TokenPair,
        TokenStore,
    )
    from paymentsdk._call.concurrent_map import MapOutcome
    from paymentsdk._call.deadline import Timeout
    from paymentsdk._call.flow import FlowControl
    from paymentsdk._call.rate_share import RateShare
    from paymentsdk._call.response import Result
    from paymentsdk._call.verdicts import RetryPolicy
    from paymentsdk._clock import Clock
    from paymentsdk._codec.anomaly import Anomaly
    from paymentsdk._contract.identity import Addition, Echo
    from paymentsdk._contract.operation import Operation, PageShape
    from paymentsdk._contract.rules import ErrorCode, Failure, RetryClass
    from paymentsdk._headers import Headers
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
    from paymentsdk.transports.base import DiscardingTransport, Request, Response, SendFailed, Transport
    from paymentsdk.transports.http11 import Http11Transport

__all__ = [
    "OPERATIONS",
    "APIError",
    "AccountResolver",
    "Addition",
    "AiohttpTransport",
    "Anomaly",
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
    "Failure",
    "FileTokenStore",
    "FlowControl",
    "Headers",
    "Http11Transport",
    "IdempotencyConflict",
    "InProgress",
    "Incomplete",
    "JournalUnavailable",
    "LockingTokenStore",
    "MapOutcome",
    "MemoryTokenStore",
    "NoAnswer",
    "NotFound",
    "NotSent",
    "NotWhole",
    "Operation",
    "OutcomeUnknown",
    "Page",
    "PageShape",
    "Pager",
    "PaginationStalled",
    "PaymentsClient",
    "PaymentsError",
    "PermissionDenied",
    "PostgresTokenStore",
    "PreparingTokenStore",
    "RateLimited",
    "RateShare",
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
    "SQLiteTokenStore",
    "SendFailed",
    "ServerError",
    "Signer",
    "StaticToken",
    "Timeout",
    "TokenPair",
    "TokenStore",
    "Transport",
    "WalkOptions",
    "__version__",
]

#: The module of each name above; names that are missing here are in `errors`. A module is imported when one of its
#: names is first used, so ``import paymentsdk`` is fast. This matters to pytest, which imports the plugins of all
#: installed packages. It also means that an extra is needed only by programs that use a name from its module.
_HOMES = {
    "_auth.accounts": ("AccountResolver",),
    "_auth.database_stores": ("PostgresTokenStore", "SQLiteTokenStore"),
    "_auth.refresh": ("RefreshingToken",),
    "_auth.schemes": ("Auth", "Exchange", "Signer", "StaticToken"),
    "_auth.token_store": (
        "FileTokenStore",
        "LockingTokenStore",
        "PreparingTokenStore",
        "MemoryTokenStore",
        "TokenPair",
        "TokenStore",
    ),
    "_clock": ("Clock",),
    "_codec.anomaly": ("Anomaly",),
    "_call.concurrent_map": ("MapOutcome",),
    "_call.deadline": ("Timeout",),
    "_call.flow": ("FlowControl",),
    "_call.rate_share": ("RateShare",),
    "_call.response": ("Result",),
    "_call.verdicts": ("RetryPolicy",),
    "_headers": ("Headers",),
    "_contract.identity": ("Addition", "Echo"),
    "_contract.operation": ("Operation", "PageShape"),
    "_contract.rules": ("ErrorCode", "Failure", "RetryClass"),
    "_paging.pager": ("Page", "Pager", "WalkOptions"),
    "_resume_point": ("ResumePoint",),
    "_version": ("__version__",),
    "client": ("PaymentsClient",),
    "resources": ("OPERATIONS",),
    "transports.aiohttp": ("AiohttpTransport",),
    "transports.base": ("DiscardingTransport", "Request", "Response", "SendFailed", "Transport"),
    "transports.http11": ("Http11Transport",),
}
_MODULES = frozenset({"events", "journal", "resources", "sandbox", "testing"})

# The package logs nothing until the program sets up logging.
logging.getLogger("paymentsdk").addHandler(logging.NullHandler())


# Type checkers do not see `__getattr__`: with it, they would accept every name, also a misspelt one.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = next((module for module, names in _HOMES.items() if name in names), "errors")
        value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
