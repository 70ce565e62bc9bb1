"""An asyncio SDK for a payments platform.

    >>> from paymentsdk import PaymentsClient
    >>> async with PaymentsClient(access_token="...", base_url="http://127.0.0.1:8787") as client:
    ...     order = await client.orders.get("ORD01J67CQQH5904WDBVZEM4JMEP3")

The requests and answers of each resource are in ``paymentsdk.resources``; the platform itself, for localhost, is
``paymentsdk.sandbox``; what tests need is in ``paymentsdk.testing``.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from paymentsdk._core.auth import (
    Auth,
    FileTokenStore,
    MemoryTokenStore,
    RefreshingToken,
    StaticToken,
    TokenPair,
    TokenStore,
)
from paymentsdk._core.clock import Clock
from paymentsdk._core.decode import Anomaly
from paymentsdk._core.intent import Result
from paymentsdk._core.operation import ErrorCode, Operation, RetryClass
from paymentsdk._core.paging import Page, Pager, WalkOptions
from paymentsdk._core.report import Attempt
from paymentsdk._core.retry import RetryPolicy
from paymentsdk._core.settings import Timeout
from paymentsdk._core.wire import Request, Response, SendFailed, Transport
from paymentsdk._version import __version__
from paymentsdk.client import PaymentsClient
from paymentsdk.errors import (
    APIError,
    AuthenticationFailed,
    BadRequest,
    ClientClosed,
    Conflict,
    ErrorDetail,
    IdempotencyConflict,
    NoAnswer,
    NotFound,
    NotSent,
    OutcomeUnknown,
    PaginationStalled,
    PaymentsError,
    PermissionDenied,
    RateLimited,
    ReauthorizationRequired,
    RequestInvalid,
    ServerError,
)

if TYPE_CHECKING:
    from paymentsdk.resources import OPERATIONS
    from paymentsdk.transports.aiohttp import AiohttpTransport

__all__ = [
    "OPERATIONS",
    "APIError",
    "AiohttpTransport",
    "Anomaly",
    "Attempt",
    "Auth",
    "AuthenticationFailed",
    "BadRequest",
    "ClientClosed",
    "Clock",
    "Conflict",
    "ErrorCode",
    "ErrorDetail",
    "FileTokenStore",
    "IdempotencyConflict",
    "MemoryTokenStore",
    "NoAnswer",
    "NotFound",
    "NotSent",
    "Operation",
    "OutcomeUnknown",
    "Page",
    "Pager",
    "PaginationStalled",
    "PaymentsClient",
    "PaymentsError",
    "PermissionDenied",
    "RateLimited",
    "ReauthorizationRequired",
    "RefreshingToken",
    "Request",
    "RequestInvalid",
    "Response",
    "Result",
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

# Silent until the program sets up logging.
logging.getLogger("paymentsdk").addHandler(logging.NullHandler())


#: Names that are imported at their first use: each takes longer than the client, and many programs use none of them.
_LAZY = {
    "AiohttpTransport": "paymentsdk.transports.aiohttp",
    "OPERATIONS": "paymentsdk.resources",
}
_LAZY_MODULES = frozenset({"resources", "sandbox", "testing"})


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _LAZY_MODULES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
