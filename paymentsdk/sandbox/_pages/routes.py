"""The addresses of the pages: the dashboard, and where a buyer pays orders and preferences, or subscribes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from aiohttp import web
from msgspec.structs import replace

from paymentsdk.resources.merchant_orders import MerchantOrder, MerchantOrderState, MerchantOrderStatus
from paymentsdk.resources.plans import Plan, PlanStatus
from paymentsdk.resources.preferences import Preference
from paymentsdk.sandbox import _responses
from paymentsdk.sandbox._buyer import Buyer, Outcome
from paymentsdk.sandbox._control import ALLOWED_HOSTS, PLATFORM, PREFIX, Route, check_origin, guarded
from paymentsdk.sandbox._handlers._sales import asked, currency_of
from paymentsdk.sandbox._handlers.merchant_orders import in_review
from paymentsdk.sandbox._pages import codes, forms, headers, snippets, subscription, views
from paymentsdk.sandbox._pages.forms import FormKey, PaymentForm
from paymentsdk.sandbox._pages.markup import PAGES, Markup
from paymentsdk.sandbox._pages.sale import Sale, from_order, from_preference
from paymentsdk.sandbox._pages.views import Way
from paymentsdk.sandbox._parsing import unstorable
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._records import MERCHANT_ORDERS, ORDERS, PLANS, PREFERENCES, SUBSCRIPTIONS, TENANTS
from paymentsdk.sandbox._responses import Rejected

_FORM_KEY = web.AppKey("form_key", FormKey)
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_SNIPPETS = {"curl": snippets.curl, "python": snippets.python}
#: Preferences that the dashboard begins with.
_LISTED = 20
#: The value of `attempt` that asks for the form once more.
_AGAIN = "again"
_CONFLICT = 409
_HOST_CHECKED = ("Host", "User-Agent", "Accept-Language")
#: What a page is called that says no.
_TITLES: Mapping[int, str] = {403: "Not from there", 404: "Nothing here", _CONFLICT: "It cannot be paid"}


def add_routes(app: web.Application) -> None:
    """Add the pages to *app*, which has the control API."""
    app[_FORM_KEY] = FormKey()
    app.router.add_get("/", _to_dashboard)
    app.router.add_get(PREFIX.rstrip("/"), _to_dashboard)
    app.router.add_get(PREFIX, _page(_dashboard))
    app.router.add_get(PREFIX + "static/{name}", guarded(_static))
    # For a document that cannot name it, as OpenAPI: unanswered, it would be among the requests of programs.
    app.router.add_get("/favicon.ico", guarded(_static))
    app.router.add_get(PREFIX + "preferences", guarded(_preferences))
    app.router.add_get(PREFIX + "orders/{id}/code.svg", guarded(_code))
    app.router.add_get(PREFIX + "requests/{id}/{language:curl|python}", guarded(_snippet))
    app.router.add_get("/subscriptions/{id}", _page(_show_plan))
    app.router.add_post("/subscriptions/{id}", _page(_subscribe))
    for counter in (_ORDERS, _PREFERENCES):
        app.router.add_get(counter.path, _page(_show(counter)))
        app.router.add_post(counter.path, _page(_pay(counter)))


# --- the dashboard -----------------------------------------------------------------------------------------------


async def _to_dashboard(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(PREFIX)


async def _dashboard(request: web.Request) -> web.StreamResponse:
    """Show the dashboard to a browser, and the state of the sandbox to a program."""
    if "text/html" not in request.headers.get("Accept", ""):
        raise web.HTTPFound(PREFIX + "state")
    return web.Response(text=views.dashboard(), content_type="text/html", headers=headers.SCRIPT)


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info.get("name", "icon.svg")
    files = _files()
    if name not in files:
        raise Rejected(404, "not_found", "There is no such file.")
    content_type = _TYPES[name[name.rindex(".") :]]
    return web.Response(body=files[name], content_type=content_type, charset="utf-8", headers=headers.SCRIPT)


@cache
def _files() -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in (PAGES / "static").iterdir()}


async def _preferences(request: web.Request) -> web.StreamResponse:
    """List the newest preferences with what each asks for and has come to, for their checkout links."""
    platform = request.app[PLATFORM]
    newest = platform.store.find(PREFERENCES, None, descending=True, limit=_LISTED)
    rows = [_link(platform, record.preference) for record in newest]
    return web.Response(body=_responses.encode(rows, decimal_strings=True), content_type="application/json")


def _link(platform: Platform, preference: Preference) -> Mapping[str, object]:
    owner = platform.store.get(TENANTS, str(preference.collector_id))
    opened = platform.store.find(MERCHANT_ORDERS, None, [("source", "=", preference.id)], limit=1)
    return {
        "preference": preference,
        "amount": asked(preference),
        "currency": currency_of(preference.items or (), owner.currency if owner else ""),
        "status": _come_to(opened[0].merchant_order) if opened else "opened",
    }


def _come_to(order: MerchantOrder) -> Literal["opened", "paid", "reverted"]:
    if order.status == MerchantOrderStatus.OPENED:
        return "opened"
    return "reverted" if order.order_status == MerchantOrderState.REVERTED else "paid"


async def _code(request: web.Request) -> web.StreamResponse:
    order = Buyer(request.app[PLATFORM]).scan(_name(request))
    text = order.qr_data
    if not text:
        pos = order.config and order.config.qr and order.config.qr.external_pos_id
        where = f"the buyer scans that of the point of sale {pos}" if pos else "and it names no point of sale"
        raise Rejected(404, "not_found", f"the order has no code of its own: {where}")
    return web.Response(body=codes.svg(text), content_type="image/svg+xml", headers=headers.FORM)


async def _snippet(request: web.Request) -> web.StreamResponse:
    platform, asked = request.app[PLATFORM], request.match_info["id"]
    line = next((line for line in platform.feed.requests if line.request_id == asked), None)
    if line is None:
        raise Rejected(404, "not_found", "the request is not among the last ones any more")
    body = platform.feed.body_of(line)
    if body is None:
        text = "# The body was long, and newer ones have taken its room: it is not kept any more.\n"
    else:
        text = _SNIPPETS[request.match_info["language"]](replace(line, body=body), platform.base_url)
    return web.Response(text=text, headers=headers.FORM)


# --- where a buyer pays ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Counter:
    """A place to pay at."""

    path: str
    """Its address."""
    sale: Callable[[Platform, str, str], Sale]
    """Returns what the buyer of something is shown, after an attempt to pay it."""
    pay: Callable[[Platform, str, PaymentForm], Outcome]
    """Has the buyer pay it, and says how the attempt came out."""


def _order_sale(platform: Platform, name: str, attempt: str) -> Sale:
    order = Buyer(platform).scan(name)
    if order.id != name:  # The code of a point of sale: its order has an address of its own.
        raise web.HTTPFound(f"/qr/{order.id}")
    record = platform.store.get(ORDERS, name)
    if record is None:
        raise Rejected(404, "not_found", "There is no such order.")
    return from_order(record, attempt)


def _pay_order(platform: Platform, name: str, form: PaymentForm) -> Outcome:
    Buyer(platform).pay(name, payment_method=form.method, installments=form.installments, outcome=form.outcome)
    return form.outcome


def _preference_sale(platform: Platform, name: str, attempt: str) -> Sale:
    return from_preference(*Buyer(platform).open_checkout(name), attempt)


def _pay_preference(platform: Platform, name: str, form: PaymentForm) -> Outcome:
    order = Buyer(platform).pay_preference(
        name, payment_method=form.method, installments=form.installments, outcome=form.outcome
    )
    # In binary mode nothing stays in review: the payment says what became of it.
    if in_review(order):
        return "in_review"
    return "approved" if order.status == MerchantOrderStatus.CLOSED else "rejected"


_ORDERS = _Counter(path="/qr/{id}", sale=_order_sale, pay=_pay_order)
# /checkout/preferences is an operation of the contract: a GET there is 405, and no page.
_PREFERENCES = _Counter(path="/checkout/{id:(?!preferences$)[^/]+}", sale=_preference_sale, pay=_pay_preference)


def _show(counter: _Counter) -> Route:
    async def show(request: web.Request) -> web.StreamResponse:
        attempt = request.query.get("attempt", "")
        sale = counter.sale(request.app[PLATFORM], _name(request), attempt)
        here = request.path
        if sale.outcome is None or (sale.outcome.again and attempt == _AGAIN):
            token = request.app[_FORM_KEY].token(here)
            return _html(views.checkout(sale, action=here, token=token))
        ways = [(f"{here}?attempt={_AGAIN}", sale.outcome.again)] if sale.outcome.again else []
        if sale.back:
            ways.append((sale.back, "Back to the shop"))
        go_back = bool(sale.back) and sale.auto_return and attempt == "approved"
        if go_back:  # Not everybody reads in that time.
            ways.append((here, "Stay here"))
        return _html(views.outcome(sale, sale.outcome, ways, go_back=go_back))

    return show


def _pay(counter: _Counter) -> Route:
    async def pay(request: web.Request) -> web.StreamResponse:
        form = await _form(request)
        platform, name = request.app[PLATFORM], _name(request)
        try:
            outcome = counter.pay(platform, name, form)
        except Rejected as rejected:
            settled = counter.sale(platform, name, "").outcome if rejected.status == _CONFLICT else None
            if settled is None:
                raise
            # Whoever has pressed twice is not left to think that they have not paid.
            words = f"It is {settled.word.lower()} already, and nothing was paid this time"
            raise Rejected(rejected.status, rejected.code, words) from None
        # So that loading the page again pays nothing.
        raise web.HTTPSeeOther(f"{request.path}?attempt={outcome}")

    return pay


# --- where a buyer subscribes ------------------------------------------------------------------------------------


async def _show_plan(request: web.Request) -> web.StreamResponse:
    plan = _plan(request)
    made = request.app[PLATFORM].store.get(SUBSCRIPTIONS, request.query.get("subscription", ""))
    if made is not None and made.plan_id == plan.id:
        return _html(subscription.subscribed(plan, made))
    if plan.status != PlanStatus.ACTIVE:
        raise Rejected(409, "plan_not_active", f"The plan is {plan.status}.")
    return _html(subscription.offer(plan, action=request.path, token=request.app[_FORM_KEY].token(request.path)))


async def _subscribe(request: web.Request) -> web.StreamResponse:
    await _form(request)
    made = Buyer(request.app[PLATFORM]).subscribe(_plan(request).id)
    # So that loading the page again makes no second subscription.
    raise web.HTTPSeeOther(f"{request.path}?subscription={made.id}")


def _plan(request: web.Request) -> Plan:
    plan = request.app[PLATFORM].store.get(PLANS, _name(request))
    if plan is None:
        raise Rejected(404, "not_found", "There is no such plan.")
    return plan


# --- all of them -------------------------------------------------------------------------------------------------


def _name(request: web.Request) -> str:
    name = request.match_info["id"]
    if unstorable(name):
        raise Rejected(404, "not_found", "There is nothing at this address.")
    return name


async def _form(request: web.Request) -> PaymentForm:
    """Return what the buyer has sent, from the very page that it is sent to.

    Raises:
        Rejected: It comes from elsewhere, or is no such form.
    """
    check_origin(request.headers, request.app[ALLOWED_HOSTS])
    form = await forms.read(request)
    request.app[_FORM_KEY].check(request.path, form.form_token)
    return form


def _page(handler: Route) -> Route:
    """Return *handler* for browsers only under the sandbox's own name, its rejections as pages."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            # A shop may lead here: for reading, it does not matter where the browser comes from.
            headers = {name: request.headers[name] for name in _HOST_CHECKED if name in request.headers}
            check_origin(headers, request.app[ALLOWED_HOSTS])
            await request.app[PLATFORM].catch_up()
            return await handler(request)
        except Rejected as rejected:
            again: list[Way] = [(request.path, "Open the page again")] if request.method == "POST" else []
            return rejection_page(rejected, again)

    return handle


def rejection_page(rejected: Rejected, ways: Sequence[Way] = ()) -> web.Response:
    """Return *rejected* as a page for people, with the *ways* on from there."""
    title = _TITLES.get(rejected.status, "This did not work")
    return _html(views.message(title, _sentence(rejected.message), ways), rejected.status)


def _html(page: Markup, status: int = 200) -> web.Response:
    body = page.encode(errors="replace")
    return web.Response(status=status, body=body, content_type="text/html", charset="utf-8", headers=headers.FORM)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""
