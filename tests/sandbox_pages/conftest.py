"""A sandbox with things to look at, a plain HTTP client, and a headless Chromium driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from io import BytesIO

import aiohttp
import msgspec
import pytest

from paymentsdk import PaymentsClient
from paymentsdk.resources.orders import Order, OrderRequest
from paymentsdk.resources.preferences import Preference, PreferenceRequest
from paymentsdk.sandbox import Sandbox
from tests.sandbox_pages.browser_steps import script

#: What a Chromium may be called: first the one without a window, which needs a fifth of the other's CPU time.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: Where it is; `None` on a machine that has none.
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
#: Seconds for anything that is waited for. A loaded machine needs some; nothing sleeps that long.
PATIENCE = 20.0
#: Seconds between two looks.
TURN = 0.02
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--remote-debugging-port=0", "about:blank",
)  # fmt: skip
#: Says where an element is, and keeps the next press of the mouse from any other.
_AIM = script("aim.js")


class Tab:
    """One page of the browser.

    Attributes:
        context: Its part of the browser, which no other page is in.
        problems: What the page complained about: errors of scripts, violations of the policy, failed loads.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
        self.context: dict[str, object] = {}
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, object]]] = {}
        self._session: str | None = None
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            event = json.loads(message.data)
            if "id" in event:
                self._answers.pop(event["id"]).set_result(event)
            elif event.get("method") == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(event["params"]["exceptionDetails"])[:400])
            elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
                self.problems.append(event["params"]["entry"]["text"])

    async def send(self, method: str, **params: object) -> dict[str, object]:
        """Send a command, and return its result."""
        number = next(self._numbers)
        self._answers[number] = response = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        result = await asyncio.wait_for(response, PATIENCE)
        if "error" in result:
            raise RuntimeError(f"{method}: {result['error']}")
        return result["result"]

    async def attach(self) -> None:
        """Open the page, and listen to it."""
        # Without cookies, storage, or connections of others; it ends with the socket.
        self.context = await self.send("Target.createBrowserContext", disposeOnDetach=True)
        target = await self.send("Target.createTarget", url="about:blank", **self.context)
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")

    async def look(self, width: int = 1280, height: int = 900, *, dark: bool = False, scripts: bool = True) -> None:
        """Set the size of the window, the colours that its user likes, and whether scripts run."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.send("Emulation.setEmulatedMedia", features=[scheme, still])
        await self.send("Emulation.setScriptExecutionDisabled", value=not scripts)

    async def open(self, url: str) -> None:
        """Go to *url*, and wait until it is there."""
        await self.send("Page.navigate", url=url)
        await self.until(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url)})")

    async def run(self, expression: str) -> object:
        """Return the value of an expression of JavaScript, awaited."""
        result = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:400])
        return result["result"].get("value")

    async def until(self, expression: str) -> object:
        """Wait for an expression to be true, and return its value."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                if value := await self.run(expression):
                    return value
            except RuntimeError:  # Between two pages there is none to ask.
                pass
            if asyncio.get_running_loop().time() > deadline:
                raise TimeoutError(f"never true: {expression}; problems: {self.problems}")
            await asyncio.sleep(TURN)

    async def click(self, selector: str) -> None:
        """Press the mouse on the first element that *selector* finds: where it is, as a person would.

        Like a person, do so again if it has moved away meanwhile, as it does while a page is loading.
        """
        query = f"document.querySelector({json.dumps(selector)})"
        missed = True
        while missed:
            await self.until(f"{query} !== null")
            place = json.loads(await self.run(f"({_AIM})({query})"))
            x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
            for kind in ("mousePressed", "mouseReleased"):
                await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
            try:
                missed = await self.run("window.missed === true")
            except RuntimeError:  # It has led to another page, just now.
                missed = False

    async def press(self, key: str) -> None:
        """Press a key of the keyboard: ``Tab``, ``Enter``, a space."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        event = {"key": key, "windowsVirtualKeyCode": code, "code": "Space" if key == " " else key}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def close(self) -> None:
        """Stop listening."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a browser that all tests share; they are skipped on a machine without one."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium, which this machine does not have")
    profile = tmp_path_factory.mktemp("chromium")
    command = [CHROMIUM, f"--user-data-dir={profile}", *_FLAGS]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            lines = (re.match(r"DevTools listening on (ws://\S+)", line) for line in process.stderr)
            yield next(filter(None, lines))[1]
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # The command may be a script that started it.
            process.communicate()


@pytest.fixture
async def tab(chromium: str) -> AsyncIterator[Tab]:
    """A page of a browser that has seen nothing before."""
    async with aiohttp.ClientSession() as session, session.ws_connect(chromium, max_msg_size=0) as socket:
        tab = Tab(socket)
        try:
            await tab.attach()
            await tab.look()
            yield tab
        finally:
            await tab.close()


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox whose clock stands still."""
    async with Sandbox(frozen=True) as sandbox:
        yield sandbox


class Shop:
    """A seller's program."""

    def __init__(self, client: PaymentsClient) -> None:
        self.client = client

    async def order(self, amount: str = "50.00", *, mode: str = "dynamic", **members: object) -> Order:
        """Create an order from plain data."""
        order = {
            "external_reference": "ticket-1",
            "total_amount": amount,
            "transactions": {"payments": [{"amount": amount}]},
            "config": {"qr": {"external_pos_id": "POS001", "mode": mode}},
            **members,
        }
        return await self.client.orders.create(msgspec.convert(order, OrderRequest))

    async def preference(self, **members: object) -> Preference:
        """Create a preference from plain data."""
        preference = {"items": [{"title": "Lamp", "quantity": 2, "unit_price": "60.25"}], **members}
        return await self.client.preferences.create(msgspec.convert(preference, PreferenceRequest))


@asynccontextmanager
async def shop_of(sandbox: Sandbox) -> AsyncIterator[Shop]:
    """The program of the first seller of *sandbox*."""
    async with PaymentsClient(sandbox.access_token, base_url=sandbox.base_url) as client:
        yield Shop(client)


@pytest.fixture
async def shop(sandbox) -> AsyncIterator[Shop]:
    """The program of the first seller."""
    async with shop_of(sandbox) as shop:
        yield shop


@pytest.fixture
def connect() -> Callable[[Sandbox], AbstractAsyncContextManager[Shop]]:
    """Makes programs of the first sellers of other sandboxes."""
    return shop_of


class Visitor:
    """A browser without scripts, without pictures and without a window.

    Attributes:
        status: Of the last response.
        headers: Of the last response.
        page: The body of the last response.
        url: Where the last response came from.
    """

    def __init__(self, session: aiohttp.ClientSession, base_url: str) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.page = ""
        self.url = ""
        self._session = session
        self._base_url = base_url

    async def get(self, path: str, **headers: str) -> str:
        """Open a page."""
        return await self._go("GET", path, headers=headers)

    async def post(self, path: str, data: object, **headers: str) -> str:
        """Send a form, and follow where that leads, as a browser does."""
        return await self._go("POST", path, data=BytesIO(data) if isinstance(data, bytes) else data, headers=headers)

    async def send_form(self, **changes: str) -> str:
        """Fill in the form of the page with *changes*, and send it."""
        action = html.unescape(re.search(r'<form method="post" action="([^"]*)"', self.page)[1])
        method = re.search(r'name="payment_method" value="([^"]*)" checked', self.page)[1]
        form = {"payment_method": method, "installments": "1", "outcome": "approved", **changes}
        return await self.post(action, form)

    async def _go(self, method: str, path: str, **options: object) -> str:
        async with self._session.request(method, self._base_url + path, **options) as response:
            self.status, self.headers, self.url = response.status, response.headers, str(response.url)
            self.page = (await response.read()).decode()
        return self.page


@pytest.fixture
async def visitor(sandbox) -> AsyncIterator[Visitor]:
    """Someone who pays without a script."""
    async with aiohttp.ClientSession(headers={"Accept": "text/html"}) as session:
        yield Visitor(session, sandbox.base_url)


#: A text that would run if it were taken for HTML, in an element or in an attribute.
EVIL = "\"'><script>document.documentElement.dataset.broken='yes'</script><img src=x onerror=stop()>"


def _evil_copy(example: object) -> object:
    """Return *example* with every text in it turned into an attack."""
    match example:
        case dict():
            return {name: _evil_copy(value) for name, value in example.items()}
        case list():
            return [_evil_copy(item) for item in example]
        case str():
            return EVIL
        case _:
            return example


@pytest.fixture
def evil_copy() -> Callable[[object], object]:
    """Turns every text of an example into an attack."""
    return _evil_copy
