"""The Foo platform on localhost, for tests."""

from __future__ import annotations

import hmac
from datetime import timedelta
from decimal import Decimal

from msgspec.structs import replace

from paymentsdk import Request
from paymentsdk.sandbox import Documents, ParsedRequest, Rejected, Sandbox, SellerContext, page_of
from paymentsdk_foo import (
    CREATE,
    GET,
    PRINT,
    REDEEM,
    SEARCH,
    HmacAuth,
    RedemptionRequest,
    Voucher,
    VoucherPage,
    VoucherRequest,
    VoucherState,
)

VOUCHERS = Documents("vouchers", Voucher, key=lambda one: one.id, columns={"state": lambda one: one.state})


def create(context: SellerContext, request: ParsedRequest[VoucherRequest]) -> Voucher:
    voucher = Voucher(
        id=context.ids.sortable("VOU", context.now),
        amount=request.body.amount,
        left=request.body.amount,
        reference=request.body.reference,
        state=VoucherState.ACTIVE,
        created=context.now,
    )
    context.record("voucher_created", id=voucher.id, order_id=voucher.id)
    context.schedule(context.now + timedelta(days=365), "voucher.expire", voucher.id)
    return context.put(VOUCHERS, voucher)


def found(context: SellerContext, request: ParsedRequest[object]) -> Voucher:
    voucher = context.get(VOUCHERS, request.path["voucher_id"])
    if voucher is None:
        raise Rejected(404, "voucher_not_found")
    return voucher


def redeem(context: SellerContext, request: ParsedRequest[RedemptionRequest]) -> Voucher:
    voucher = found(context, request)
    remaining = (voucher.left or Decimal(0)) - request.body.amount
    if remaining < 0:
        raise Rejected(409, "voucher_spent", details=(f"amount: {voucher.left} is left",))
    context.record("voucher_redeemed", id=voucher.id, order_id=voucher.id, amount=request.body.amount)
    return context.put(
        VOUCHERS, replace(voucher, left=remaining, state=voucher.state if remaining else VoucherState.SPENT)
    )


def search(context: SellerContext, request: ParsedRequest[None]) -> VoucherPage:
    page = page_of(context, VOUCHERS, request, state=request.query.get("state"))
    return VoucherPage(vouchers=tuple(page.items), total=page.total)


def expire(context: SellerContext, voucher_id: str) -> str | None:
    voucher = context.require(VOUCHERS, voucher_id)
    if voucher.state is not VoucherState.ACTIVE:
        return None
    context.put(VOUCHERS, replace(voucher, state=VoucherState.EXPIRED))
    return "voucher_expired"


def print_out(context: SellerContext, request: ParsedRequest[None]) -> bytes:
    return b"%PDF-1.7\n% " + found(context, request).id.encode()


class FooSandbox(Sandbox):
    """The platform, with vouchers, for whoever signs with `KEY_ID` and `SECRET`."""

    KEY_ID = "test"
    SECRET = "test-secret"

    def __init__(self, *, seed: int | None = None) -> None:
        super().__init__(
            seed=seed,
            handlers={CREATE: create, GET: found, REDEEM: redeem, SEARCH: search, PRINT: print_out},
            jobs={"voucher.expire": expire},
            authenticate=self.verify,
        )

    def verify(self, request: Request) -> str | None:
        """Return the token of the first seller, whose signature *request* has; `None` if it has none."""
        header = request.headers.get("Authorization", "")
        if not header.startswith("FOO "):
            return None
        signed = HmacAuth(self.KEY_ID, self.SECRET).sign(request, float(request.headers.get("X-Foo-Time", 0)))
        if not hmac.compare_digest(header, signed["Authorization"]):
            raise Rejected(401, "bad_signature")
        return self.access_token
