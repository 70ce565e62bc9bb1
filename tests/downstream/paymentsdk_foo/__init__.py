"""Vouchers of the Foo platform: an SDK that is built on paymentsdk, from its public names alone."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import TypedDict, Unpack
from urllib.parse import urlsplit

from paymentsdk import (
    Conflict,
    Echo,
    ErrorCode,
    Failure,
    Operation,
    Pager,
    PageShape,
    PaymentsClient,
    Request,
    RetryClass,
    WalkOptions,
)
from paymentsdk.resources.common import (
    KeyedWriteOptions,
    Moment,
    Open,
    OpenEnum,
    PositiveAmount,
    RequestStruct,
    RequiredId,
    Resource,
    ResponseStruct,
)


class HmacAuth:
    """Signs the method, the path with its query, the time and the body with a shared secret."""

    def __init__(self, key_id: str, secret: str) -> None:
        self._key_id = key_id
        self._secret = secret.encode()

    def sign(self, request: Request, now: float) -> Mapping[str, str]:
        url = urlsplit(request.url)
        target = f"{url.path}?{url.query}" if url.query else url.path
        text = "\n".join([request.method, target, f"{now:.0f}", hashlib.sha256(request.body).hexdigest()])
        signature = hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()
        return {"X-Foo-Time": f"{now:.0f}", "Authorization": f"FOO {self._key_id}:{signature}"}

    def __repr__(self) -> str:
        return f"HmacAuth({self._key_id!r}, ***)"


class VoucherState(OpenEnum):
    ACTIVE = "active"
    SPENT = "spent"
    EXPIRED = "expired"


class VoucherRequest(RequestStruct):
    amount: PositiveAmount
    reference: str


class RedemptionRequest(RequestStruct):
    amount: PositiveAmount


class Voucher(ResponseStruct):
    id: RequiredId
    amount: Decimal | None = None
    left: Decimal | None = None
    reference: str | None = None
    state: Open[VoucherState] | None = None
    created: Moment | None = None


class VoucherFilters(TypedDict, total=False):
    state: Open[VoucherState]


class VoucherQuery(VoucherFilters, total=False):
    offset: int
    limit: int


class VoucherPage(ResponseStruct):
    vouchers: tuple[Voucher, ...] | None = None
    total: int | None = None


class VoucherSpentError(Conflict):
    """The voucher has less left than was asked for."""


ALWAYS = (
    ErrorCode(400, "try_later", "the platform is busy, and has done nothing", kind=Failure.RATE_LIMITED),
    ErrorCode(425, "*", "the platform is not ready, and has done nothing", kind=Failure.RATE_LIMITED),
    ErrorCode(401, "bad_signature", "the signature is wrong, or too old"),
)
NOT_FOUND = ErrorCode(404, "voucher_not_found", "the seller has no such voucher", settles=True)
VERSION = {"X-Foo-Version": "2026-01"}

CREATE: Operation[VoucherRequest, Voucher] = Operation(
    name="vouchers.create",
    method="POST",
    path="/foo/vouchers",
    summary="Issue a voucher",
    retry=RetryClass.KEYED,
    key_header="Foo-Request-Id",
    fixed_headers=VERSION,
    body=VoucherRequest,
    result=Voucher,
    status=201,
    decimal_strings=True,
    echoes=(Echo("amount"), Echo("reference")),
    errors=ALWAYS,
)
GET: Operation[None, Voucher] = Operation(
    name="vouchers.get",
    method="GET",
    path="/foo/vouchers/{voucher_id}",
    summary="Get a voucher",
    retry=RetryClass.READ,
    fixed_headers=VERSION,
    result=Voucher,
    decimal_strings=True,
    echoes=(Echo("id", of="{voucher_id}"),),
    errors=(*ALWAYS, NOT_FOUND),
)
REDEEM: Operation[RedemptionRequest, Voucher] = Operation(
    name="vouchers.redeem",
    method="POST",
    path="/foo/vouchers/{voucher_id}/redemptions",
    summary="Redeem a part of a voucher",
    retry=RetryClass.KEYED,
    key_header="Foo-Request-Id",
    fixed_headers=VERSION,
    body=RedemptionRequest,
    result=Voucher,
    decimal_strings=True,
    echoes=(Echo("id", of="{voucher_id}"),),
    errors=(
        *ALWAYS,
        NOT_FOUND,
        # No `settles`: an earlier attempt may be what has spent it.
        ErrorCode(
            409, "voucher_spent", "the voucher has less left", kind=Failure.CLIENT_ERROR, raises=VoucherSpentError
        ),
    ),
)
SEARCH: Operation[None, VoucherPage] = Operation(
    name="vouchers.search",
    method="GET",
    path="/foo/vouchers",
    summary="Search vouchers",
    retry=RetryClass.READ,
    fixed_headers=VERSION,
    query=VoucherQuery,
    result=VoucherPage,
    decimal_strings=True,
    page=PageShape(items="vouchers", total="total"),
    errors=ALWAYS,
)
PRINT: Operation[None, bytes] = Operation(
    name="vouchers.print",
    method="GET",
    path="/foo/vouchers/{voucher_id}/print",
    summary="Get a voucher as a file to print",
    retry=RetryClass.READ,
    fixed_headers=VERSION,
    result=bytes,
    accept="application/pdf",
    max_response=1024 * 1024,
    errors=(*ALWAYS, NOT_FOUND),
)


class Vouchers(Resource):
    """`client.vouchers`."""

    async def create(self, voucher: VoucherRequest, **options: Unpack[KeyedWriteOptions]) -> Voucher:
        """Issue a voucher."""
        return await self._write(CREATE, voucher, options)

    async def get(self, voucher_id: str) -> Voucher:
        """Get a voucher."""
        return (await self._engine.call(GET, voucher_id=voucher_id)).value

    async def redeem(self, voucher_id: str, amount: Decimal, **options: Unpack[KeyedWriteOptions]) -> Voucher:
        """Redeem a part of a voucher."""
        return await self._write(REDEEM, RedemptionRequest(amount=amount), options, voucher_id=voucher_id)

    def search(self, *, state: VoucherState | None = None, **options: Unpack[WalkOptions]) -> Pager[Voucher]:
        """Search vouchers."""
        return Pager(self._engine, SEARCH, **options, state=state)

    async def print(self, voucher_id: str) -> bytes:
        """Get a voucher as a file to print."""
        return (await self._engine.call(PRINT, voucher_id=voucher_id)).value


class FooClient(PaymentsClient):
    """A client of the Foo platform: `FooClient(auth=HmacAuth(...), base_url=...)`."""

    own_operations = (CREATE, GET, REDEEM, SEARCH, PRINT)

    @cached_property
    def vouchers(self) -> Vouchers:
        return Vouchers(self)
