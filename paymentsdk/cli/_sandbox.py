"""``paymentsdk sandbox``: the platform on localhost, until somebody ends it."""

from __future__ import annotations

import asyncio
import errno
import signal
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from typing import Any

import msgspec

from paymentsdk.cli._control import DEFAULT_HOST, DEFAULT_PORT, add_control
from paymentsdk.cli._parsing import file, pair, pairs
from paymentsdk.sandbox import Clock, Sandbox, SandboxInfo

_LARGEST_PORT = 65_535
_EXAMPLES = """\
examples:
  paymentsdk sandbox --db shop.db --policy cancel_from=any
  paymentsdk sandbox pay POS001
  paymentsdk sandbox advance PT20M
  paymentsdk sandbox faults add reset operation=orders.create times=1
"""


def add_arguments(sandbox: ArgumentParser) -> None:
    """Add what `sandbox` takes, and the commands for one that runs."""
    sandbox.epilog = _EXAMPLES
    sandbox.usage = "%(prog)s [OPTIONS] [COMMAND ...]"
    add = sandbox.add_argument
    db = "keep everything in FILE, except faults and the list of requests; in memory by default"
    line = "print address and credentials as one line of JSON; the authorization code in it lasts 10 minutes"
    policy = "override a policy for this run (takes precedence over policies stored in --db)"
    public = "allow a --host that other machines can reach; nothing restricts what they can do"
    hosts = "let notifications be delivered to HOST besides this machine; can be repeated"
    links = "where buyers reach the sandbox: links and QR codes lead there"
    settings = [
        add("--host", default=DEFAULT_HOST, help=f"address to listen on (default: {DEFAULT_HOST})"),
        add("--port", type=_port, default=DEFAULT_PORT, help=f"port; 0 takes any free one (default: {DEFAULT_PORT})"),
        add("--db", type=file, metavar="FILE", help=db),
        add("--json", action="store_true", dest="as_json", help=line),
        add("--seed", type=int, metavar="N", help="make ids and random choices repeatable"),
        add("--policy", type=pair, action="append", default=[], dest="policies", metavar="NAME=VALUE", help=policy),
        add("--frozen", action="store_true", help="let the clock stand still until it is advanced"),
        add("--public", action="store_true", help=public),
        add("--public-url", metavar="URL", help=links),
        add("--allow-host", action="append", default=[], dest="allow_hosts", metavar="HOST", help=hosts),
        add("--live-tokens", action="store_true", help="take APP_USR tokens as if they were TEST tokens"),
    ]
    sandbox.set_defaults(run=_run, settings=settings)
    title = "commands for a running sandbox"
    add_control(sandbox.add_subparsers(title=title, metavar="COMMAND", prog=sandbox.prog))


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _LARGEST_PORT:
        raise ArgumentTypeError(f"{text!r} is not a port from 0 to {_LARGEST_PORT}")
    return int(text)


def _run(options: Namespace) -> int:
    """Run the sandbox that *options* ask for until SIGINT or SIGTERM; say once where it is, and return the exit code.

    Raises:
        ArgumentTypeError: A policy is unknown, or the host can be reached by other machines and nobody said
            ``--public``.
        OSError: The host, the port or the file cannot be used.
    """
    settings: dict[str, Any] = {setting.dest: getattr(options, setting.dest) for setting in options.settings}
    as_json, policies = settings.pop("as_json"), pairs(settings.pop("policies"))
    try:
        sandbox = Sandbox(**settings, policies=policies)
    except ValueError as error:
        words = str(error).replace("`public`", "--public").replace("public_url", "--public-url")
        raise ArgumentTypeError(words) from None
    try:
        asyncio.run(_listen(sandbox, as_json=as_json))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        words = f"port {options.port} is in use; choose another with --port, or 0 for any that is free"
        raise OSError(words) from None
    return 0


async def _listen(sandbox: Sandbox, *, as_json: bool) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # On Windows.
            loop.add_signal_handler(number, over.set)
    async with sandbox:
        info = sandbox.describe()
        print(msgspec.json.encode(info).decode() if as_json else _for_people(info, sandbox.clock), flush=True)
        with suppress(asyncio.CancelledError):  # It is what asyncio makes of a SIGINT that the loop does not handle.
            await over.wait()


def _for_people(info: SandboxInfo, clock: Clock) -> str:
    # A file keeps the clock as well: whoever moved or froze it on another day would wonder what expires, and what not.
    still = ", and it stands still" if clock.frozen else ""
    time = f"  clock                 {clock.now():%Y-%m-%d %H:%M:%S} UTC{still}\n"
    return f"""\
The sandbox listens on {info.base_url}. Ctrl-C ends it.

export PAYMENTSDK_BASE_URL={info.base_url}
export PAYMENTSDK_ACCESS_TOKEN={info.access_token}
export PAYMENTSDK_CLIENT_ID={info.client_id}
export PAYMENTSDK_CLIENT_SECRET={info.client_secret}

  point of sale         {info.external_pos_id}
  plan                  {info.plan_id}
  authorization code    {info.authorization_code}  (10 minutes)
  refresh token         {info.refresh_token}
  dashboard             {info.base_url}/
{time if clock.frozen or clock.state.ahead else ""}"""
