"""A headless Chromium, driven through its DevTools protocol: as much of it as these tests need."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

#: Where a Chromium may be; `None` on a machine that has none.
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Seconds for anything that is waited for. A loaded machine needs some; nothing sleeps that long.
PATIENCE = 20.0
#: Seconds between two looks.
TURN = 0.02
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
    "about:blank",
)


class Tab:
    """One page of the browser.

    Attributes:
        problems: What the page complained about: errors of scripts, violations of the policy, failed loads.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.problems: list[str] = []
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
        self._answers[number] = answer = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._socket.send_json({"id": number, "method": method, "params": params, **session})
        result = await asyncio.wait_for(answer, PATIENCE)
        if "error" in result:
            raise RuntimeError(f"{method}: {result['error']}")
        return result["result"]

    async def attach(self) -> None:
        """Open the page, and listen to it."""
        target = await self.send("Target.createTarget", url="about:blank")
        attached = await self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")

    async def look(self, width: int = 1280, height: int = 900, *, dark: bool = False, scripts: bool = True) -> None:
        """Set the size of the window, the colours that its user likes, and whether scripts run."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
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
        """Press the mouse on the first element that *selector* finds: where it is, as a person would."""
        query = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{query} !== null")
        await self.run(f"{query}.scrollIntoView({{block: 'center'}})")
        box = await self.run(f"JSON.stringify({query}.getBoundingClientRect())")
        place = json.loads(box)
        x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def press(self, key: str) -> None:
        """Press a key of the keyboard: ``Tab``, ``Enter``, a space."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "ArrowDown": 40}[key]
        text = {"Enter": "\r", " ": " "}.get(key, "")
        event = {"key": key, "windowsVirtualKeyCode": code, "code": "Space" if key == " " else key}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def screenshot(self, path: Path) -> None:
        """Write a picture of the whole page to *path*."""
        size = await self.send("Page.getLayoutMetrics")
        content = size["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": content["width"], "height": content["height"], "scale": 1}
        shot = await self.send("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    async def close(self) -> None:
        """Stop listening."""
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@asynccontextmanager
async def chromium() -> AsyncIterator[Tab]:
    """Start a browser of its own, and open a page in it."""
    profile = tempfile.mkdtemp(prefix="chromium-")
    process = await asyncio.create_subprocess_exec(
        CHROMIUM, f"--user-data-dir={profile}", *_FLAGS, stderr=asyncio.subprocess.PIPE
    )
    try:
        address = await asyncio.wait_for(_address(process.stderr), PATIENCE)
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            tab = Tab(socket)
            try:
                await tab.attach()
                yield tab
            finally:
                await tab.send("Emulation.setScriptExecutionDisabled", value=False)
                await tab.close()
    finally:
        process.terminate()
        await process.communicate()
        shutil.rmtree(profile, ignore_errors=True)


async def _address(stderr: asyncio.StreamReader) -> str:
    async for line in stderr:
        if match := re.match(rb"DevTools listening on (ws://\S+)", line):
            return match[1].decode()
    raise RuntimeError("the browser ended before it listened")
