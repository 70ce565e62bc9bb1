"""The routes of the pages: the dashboard, and the pages where buyers pay orders and preferences, or subscribe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from io import BytesIO
from typing import TypeAlias

import msgspec
from aiohttp import web

from paymentsdk.errors import install_extra
from paymentsdk.resources.plans import Plan, PlanStatus
from paymentsdk.sandbox._buyer import Buyer
from paymentsdk.sandbox._commands import pay
from paymentsdk.sandbox._control import ALLOWED_HOSTS, PLATFORM, PREFIX, Route, check_origin, guarded, read
from paymentsdk.sandbox._control_forms import PayRequest
from paymentsdk.sandbox._feed import LONGEST_BODY
from paymentsdk.sandbox._pages import snippets, views
from paymentsdk.sandbox._pages.checkout_view import CheckoutView, from_order, from_preference
from paymentsdk.sandbox._pages.views import PAGES, Markup
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._records import PLANS, SUBSCRIPTIONS
from paymentsdk.sandbox._wire import Rejected, unstorable

#: How to install the library that draws QR codes.
INSTALL = install_extra("qr")
#: Security headers of all pages. Only the sandbox itself may frame, fetch and run them.
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    # With `no-referrer`, a browser would send forms with `Origin: null`, which proves nothing.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_POLICY = "default-src 'none'; img-src 'self'; style-src 'self'; base-uri 'none'; frame-ancestors 'none'"
#: The headers of a page with a form and no script, and of a page with its own scripts, which use the control API.
FORM = {**_HEADERS, "Content-Security-Policy": f"{_POLICY}; form-action 'self'"}
SCRIPT = {**FORM, "Content-Security-Policy": f"{_POLICY}; script-src 'self'; connect-src 'self'; form-action 'none'"}
_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_CONFLICT = 409
_HOST_CHECKED = ("Host", "User-Agent", "Accept-Language")
#: The titles of pages for rejections.
_TITLES: Mapping[int, str] = {403: "Not allowed", 404: "Nothing here", _CONFLICT: "It cannot be paid"}

#: Returns the buyer's view of an order or preference, after an attempt to pay it.
_View: TypeAlias = Callable[[Platform, str, str], CheckoutView]


def add_routes(app: web.Application) -> None:
    """Add the pages to *app*, which already has the control API."""
    app.router.add_get("/", _to_dashboard)
    app.router.add_get(PREFIX.rstrip("/"), _to_dashboard)
    app.router.add_get(PREFIX, _page(_dashboard))
    app.router.add_get(PREFIX + "static/{name}", guarded(_static))
    # For documents without an icon, such as OpenAPI. Without this route, it would be listed among programs' requests.
    app.router.add_get("/favicon.ico", guarded(_static))
    app.router.add_get(PREFIX + "orders/{id}/code.svg", guarded(_code))
    app.router.add_get(PREFIX + "requests/{id}/curl", guarded(_snippet))
    app.router.add_get("/subscriptions/{id}", _page(_show_plan))
    app.router.add_post("/subscriptions/{id}", _page(_subscribe))
    app.router.add_get("/qr/{id}", _page(partial(_show, _order_view)))
    app.router.add_post("/qr/{id}", _page(partial(_pay, _order_view, Buyer.pay)))
    # /checkout/preferences is an operation of the contract. A GET there is 405, not a page.
    checkout = "/checkout/{id:(?!preferences$)[^/]+}"
    app.router.add_get(checkout, _page(partial(_show, _preference_view)))
    app.router.add_post(checkout, _page(partial(_pay, _preference_view, Buyer.pay_preference)))


# --- the dashboard -----------------------------------------------------------------------------------------------


async def _to_dashboard(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(PREFIX)


async def _dashboard(request: web.Request) -> web.StreamResponse:
    """Return the dashboard to a browser, and redirect a program to the state of the sandbox."""
    if "text/html" not in request.headers.get("Accept", ""):
        raise web.HTTPFound(PREFIX + "state")
    return web.Response(text=views.dashboard(), content_type="text/html", headers=SCRIPT)


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info.get("name", "icon.svg")
    files = _files()
    if name not in files:
        raise Rejected(404, "not_found", "There is no such file.")
    content_type = _TYPES[name[name.rindex(".") :]]
    return web.Response(body=files[name], content_type=content_type, charset="utf-8", headers=SCRIPT)


@cache
def _files() -> Mapping[str, bytes]:
    return {file.name: file.read_bytes() for file in (PAGES / "static").iterdir()}


async def _code(request: web.Request) -> web.StreamResponse:
    order = Buyer(request.app[PLATFORM]).scan(_name(request))
    if not order.qr_data:
        pos = order.config and order.config.qr and order.config.qr.external_pos_id
        hint = f"scan the code of the point of sale {pos}" if pos else "it names no point of sale either"
        raise Rejected(404, "not_found", f"the order has no code: {hint}")
    try:
        import segno  # an extra
    except ImportError:
        raise Rejected(501, "not_installed", INSTALL) from None
    # Dark on transparent, with the quiet zone that scanners need.
    file, plain = BytesIO(), {"xmldecl": False, "omitsize": True, "svgclass": None, "lineclass": None}
    segno.make_qr(order.qr_data, error="m").save(file, kind="svg", border=4, **plain)
    return web.Response(body=file.getvalue(), content_type="image/svg+xml", headers=FORM)


async def _snippet(request: web.Request) -> web.StreamResponse:
    platform, request_id = request.app[PLATFORM], request.match_info["id"]
    line = next((line for line in platform.feed.requests if line.request_id == request_id), None)
    if line is None:
        raise Rejected(404, "not_found", "the request is no longer in the list of the last requests")
    text = snippets.curl(line, platform.base_url, platform.operations)
    # A terminal acts on control characters even inside quotes. Any page in a browser can have sent the body.
    if len(line.body) > LONGEST_BODY or not text.replace("\n", "").replace("\t", "").isprintable():
        text = f"# The body has more than {LONGEST_BODY:,} characters, or a control character: see GET requests.\n"
    return web.Response(text=text, headers=FORM)


# --- where a buyer pays ------------------------------------------------------------------------------------------


def _order_view(platform: Platform, name: str, attempt: str) -> CheckoutView:
    order = Buyer(platform).scan(name)
    if order.id != name:  # The code of a point of sale: redirect to its order.
        raise web.HTTPFound(f"/qr/{order.id}")
    return from_order(order, attempt)


def _preference_view(platform: Platform, name: str, attempt: str) -> CheckoutView:
    return from_preference(*Buyer(platform).open_checkout(name), attempt)


async def _show(view_of: _View, request: web.Request) -> web.StreamResponse:
    attempt = request.query.get("attempt", "")
    view = view_of(request.app[PLATFORM], _name(request), attempt)
    if view.outcome is None or (view.outcome.again and attempt == views.AGAIN):
        return _html(views.checkout(view, action=request.path))
    return _html(views.outcome(view, view.outcome, here=request.path))


async def _pay(view_of: _View, pay_by: Callable[..., object], request: web.Request) -> web.StreamResponse:
    form, name = await _form(request), _name(request)
    platform = request.app[PLATFORM]
    try:
        pay(platform, form, pay_by, name)
    except Rejected as rejected:
        settled = view_of(platform, name, "").outcome if rejected.status == _CONFLICT else None
        if settled is None:
            raise
        # A buyer who pressed twice must not think that the order is unpaid.
        words = f"It is {settled.word.lower()} already, and nothing was paid this time"
        raise Rejected(rejected.status, rejected.code, words) from None
    # A reload of the page pays nothing.
    raise web.HTTPSeeOther(f"{request.path}?attempt={form.outcome}")


# --- where a buyer subscribes ------------------------------------------------------------------------------------


async def _show_plan(request: web.Request) -> web.StreamResponse:
    plan = _plan(request)
    subscription = request.app[PLATFORM].store.get(SUBSCRIPTIONS, request.query.get("subscription", ""))
    if subscription is not None and subscription.plan_id == plan.id:
        return _html(views.subscribed(plan, subscription))
    if plan.status != PlanStatus.ACTIVE:
        raise Rejected(409, "plan_not_active", f"The plan is {plan.status}.")
    return _html(views.offer(plan, action=request.path))


async def _subscribe(request: web.Request) -> web.StreamResponse:
    await _form(request)
    subscription = Buyer(request.app[PLATFORM]).subscribe(_plan(request).id)
    # A reload of the page makes no second subscription.
    raise web.HTTPSeeOther(f"{request.path}?subscription={subscription.id}")


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


async def _form(request: web.Request) -> PayRequest:
    """Return the buyer's form.

    Raises:
        Rejected: The request comes from another site, is not a form, is too large, or has a value that the page does
            not offer.
    """
    check_origin(request.headers, request.app[ALLOWED_HOSTS])
    if request.content_type != "application/x-www-form-urlencoded":
        raise Rejected(415, "unsupported_media_type", "This is not the form of the page.")
    try:
        await read(request)  # Read with the time limit. aiohttp caches it.
        return msgspec.convert(dict(await request.post()), PayRequest, strict=False)
    except (ValueError, LookupError):  # Invalid text, charset or value.
        raise Rejected(400, "bad_request", "The form has a value that the page does not offer.") from None


def _page(handler: Route) -> Route:
    """Return *handler* behind a check that browsers use the sandbox's own host name."""

    async def handle(request: web.Request) -> web.StreamResponse:
        # Links from other sites, such as a shop, are allowed for reading.
        headers = {name: request.headers[name] for name in _HOST_CHECKED if name in request.headers}
        check_origin(headers, request.app[ALLOWED_HOSTS])
        await request.app[PLATFORM].catch_up()
        return await handler(request)

    return handle


def rejection_page(request: web.Request, rejected: Rejected) -> web.Response:
    """Return *rejected* as a page for people, with a link back to the form that was sent."""
    links = [(request.path, "Open the page again")] if request.method == "POST" else []
    title = _TITLES.get(rejected.status, "This did not work")
    return _html(views.message(title, _sentence(rejected.message), links), rejected.status)


def _html(page: Markup, status: int = 200) -> web.Response:
    body = page.encode(errors="replace")
    return web.Response(status=status, body=body, content_type="text/html", charset="utf-8", headers=FORM)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}" if text else ""
