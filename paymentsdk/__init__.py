"""An asyncio SDK for a payments platform.

    >>> from paymentsdk import PaymentsClient
    >>> async with PaymentsClient(access_token="...", base_url="http://127.0.0.1:8787") as client:
    ...     order = await client.orders.get("ORD01J67CQQH5904WDBVZEM4JMEP3")

``paymentsdk.resources`` has the requests and responses of each resource, ``paymentsdk.sandbox`` the platform itself,
for localhost, and ``paymentsdk.testing`` the tools for tests.
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
    from paymentsdk._auth.accounts import AccountResolver as AccountResolver
    from paymentsdk._auth.database_stores import PostgresTokenStore as PostgresTokenStore
    from paymentsdk._auth.database_stores import SQLiteTokenStore as SQLiteTokenStore
    from paymentsdk._auth.refresh import RefreshingToken as RefreshingToken
    from paymentsdk._auth.schemes import Auth as Auth
    from paymentsdk._auth.schemes import Exchange as Exchange
    from paymentsdk._auth.schemes import RenewingSigner as RenewingSigner
    from paymentsdk._auth.schemes import Signer as Signer
    from paymentsdk._auth.schemes import StaticToken as StaticToken
    from paymentsdk._auth.token_store import FileTokenStore as FileTokenStore
    from paymentsdk._auth.token_store import LockingTokenStore as LockingTokenStore
    from paymentsdk._auth.token_store import MarkingTokenStore as MarkingTokenStore
    from paymentsdk._auth.token_store import MemoryTokenStore as MemoryTokenStore
    from paymentsdk._auth.token_store import TokenPair as TokenPair
    from paymentsdk._auth.token_store import TokenStore as TokenStore
    from paymentsdk._clock import Clock as Clock
    from paymentsdk._codec.anomaly import Anomaly as Anomaly
    from paymentsdk._engine.concurrent_map import MapOutcome as MapOutcome
    from paymentsdk._engine.deadline import Timeout as Timeout
    from paymentsdk._engine.flow import FlowControl as FlowControl
    from paymentsdk._engine.rate_share import RateShare as RateShare
    from paymentsdk._engine.result import Result as Result
    from paymentsdk._engine.retry import RetryPolicy as RetryPolicy
    from paymentsdk._headers import Headers as Headers
    from paymentsdk._operation.identity import Addition as Addition
    from paymentsdk._operation.identity import Echo as Echo
    from paymentsdk._operation.operation import Limits as Limits
    from paymentsdk._operation.operation import Operation as Operation
    from paymentsdk._operation.operation import PageShape as PageShape
    from paymentsdk._operation.rules import ErrorCode as ErrorCode
    from paymentsdk._operation.rules import Failure as Failure
    from paymentsdk._operation.rules import RetryClass as RetryClass
    from paymentsdk._paging.options import WalkOptions as WalkOptions
    from paymentsdk._paging.pager import Page as Page
    from paymentsdk._paging.pager import Pager as Pager
    from paymentsdk._resume_point import ResumePoint as ResumePoint
    from paymentsdk._version import __version__ as __version__
    from paymentsdk.client import PaymentsClient as PaymentsClient
    from paymentsdk.errors import APIError as APIError
    from paymentsdk.errors import AuthenticationFailed as AuthenticationFailed
    from paymentsdk.errors import BadRequest as BadRequest
    from paymentsdk.errors import ClientClosed as ClientClosed
    from paymentsdk.errors import Conflict as Conflict
    from paymentsdk.errors import Deferred as Deferred
    from paymentsdk.errors import ErrorDetail as ErrorDetail
    from paymentsdk.errors import IdempotencyConflict as IdempotencyConflict
    from paymentsdk.errors import Incomplete as Incomplete
    from paymentsdk.errors import InProgress as InProgress
    from paymentsdk.errors import JournalUnavailable as JournalUnavailable
    from paymentsdk.errors import NoAnswer as NoAnswer
    from paymentsdk.errors import NotFound as NotFound
    from paymentsdk.errors import NotSent as NotSent
    from paymentsdk.errors import NotWhole as NotWhole
    from paymentsdk.errors import OutcomeUnknown as OutcomeUnknown
    from paymentsdk.errors import PaginationStalled as PaginationStalled
    from paymentsdk.errors import PaymentsError as PaymentsError
    from paymentsdk.errors import PermissionDenied as PermissionDenied
    from paymentsdk.errors import RateLimited as RateLimited
    from paymentsdk.errors import ReauthorizationRequired as ReauthorizationRequired
    from paymentsdk.errors import RecordConflict as RecordConflict
    from paymentsdk.errors import RefreshFailed as RefreshFailed
    from paymentsdk.errors import RequestInvalid as RequestInvalid
    from paymentsdk.errors import ServerError as ServerError
    from paymentsdk.events import Attempt as Attempt
    from paymentsdk.resources import OPERATIONS as OPERATIONS
    from paymentsdk.transports.aiohttp import AiohttpTransport as AiohttpTransport
    from paymentsdk.transports.base import DiscardingTransport as DiscardingTransport
    from paymentsdk.transports.base import Request as Request
    from paymentsdk.transports.base import Response as Response
    from paymentsdk.transports.base import SendFailed as SendFailed
    from paymentsdk.transports.base import Transport as Transport
    from paymentsdk.transports.http11 import Http11Transport as Http11Transport

#: The modules that have the names of this package. One is imported when one of its names is first asked for: so
#: ``import paymentsdk`` itself costs nothing, which matters to pytest, as it imports the plugin of every installed
#: package, this one among them; and only who asks for a name whose module needs an extra has to have that.
_NAMES = {
    "_auth.accounts": ("AccountResolver",),
    "_auth.database_stores": ("PostgresTokenStore", "SQLiteTokenStore"),
    "_auth.refresh": ("RefreshingToken",),
    "_auth.schemes": ("Auth", "Exchange", "RenewingSigner", "Signer", "StaticToken"),
    "_auth.token_store": (
        "FileTokenStore",
        "LockingTokenStore",
        "MarkingTokenStore",
        "MemoryTokenStore",
        "TokenPair",
        "TokenStore",
    ),
    "_clock": ("Clock",),
    "_codec.anomaly": ("Anomaly",),
    "_engine.concurrent_map": ("MapOutcome",),
    "_engine.deadline": ("Timeout",),
    "_engine.flow": ("FlowControl",),
    "_engine.rate_share": ("RateShare",),
    "_engine.result": ("Result",),
    "_engine.retry": ("RetryPolicy",),
    "_headers": ("Headers",),
    "_operation.identity": ("Addition", "Echo"),
    "_operation.operation": ("Limits", "Operation", "PageShape"),
    "_operation.rules": ("ErrorCode", "Failure", "RetryClass"),
    "_paging.options": ("WalkOptions",),
    "_paging.pager": ("Page", "Pager"),
    "_resume_point": ("ResumePoint",),
    "_version": ("__version__",),
    "client": ("PaymentsClient",),
    "errors": (
        "APIError",
        "AuthenticationFailed",
        "BadRequest",
        "ClientClosed",
        "Conflict",
        "Deferred",
        "ErrorDetail",
        "IdempotencyConflict",
        "InProgress",
        "Incomplete",
        "JournalUnavailable",
        "NoAnswer",
        "NotFound",
        "NotSent",
        "NotWhole",
        "OutcomeUnknown",
        "PaginationStalled",
        "PaymentsError",
        "PermissionDenied",
        "RateLimited",
        "ReauthorizationRequired",
        "RecordConflict",
        "RefreshFailed",
        "RequestInvalid",
        "ServerError",
    ),
    "events": ("Attempt",),
    "resources": ("OPERATIONS",),
    "transports.aiohttp": ("AiohttpTransport",),
    "transports.base": ("DiscardingTransport", "Request", "Response", "SendFailed", "Transport"),
    "transports.http11": ("Http11Transport",),
}
_HOMES = dict(sorted((name, home) for home, names in _NAMES.items() for name in names))
_MODULES = frozenset({"events", "journal", "resources", "sandbox", "testing"})

# Silent until the program sets up logging.
logging.getLogger("paymentsdk").addHandler(logging.NullHandler())


# Type checkers read the imports, in which `as` makes a name public. They would take every name that is asked for, also
# one that is misspelt, for one that is here.
if not TYPE_CHECKING:
    __all__ = list(_HOMES)

    def __getattr__(name: str) -> object:
        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
