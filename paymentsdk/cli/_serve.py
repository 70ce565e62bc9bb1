"""``paymentsdk sandbox``: the platform on localhost, until somebody ends it."""

from __future__ import annotations

import argparse
import asyncio
import errno
import signal
import socket
from contextlib import suppress

import msgspec

from paymentsdk.cli._arguments import pairs
from paymentsdk.cli._running import DEFAULT_HOST, DEFAULT_PORT
from paymentsdk.sandbox import Clock, Sandbox, SandboxInfo

#: What the sandbox calls its arguments, where that is not what they are called here.
_OPTIONS = {"`public`": "--public", "public_url": "--public-url"}


def serve(options: argparse.Namespace) -> int:
    """Run the sandbox that *options* ask for until SIGINT or SIGTERM; say once where it is, and return the exit code.

    Raises:
        argparse.ArgumentTypeError: A policy is unknown, or the host can be reached by other machines and nobody said
            ``--public``.
        OSError: The host, the port or the file cannot be used.
    """
    host = DEFAULT_HOST if options.host is None else options.host
    port = DEFAULT_PORT if options.port is None else options.port
    try:
        sandbox = Sandbox(
            host=host,
            port=port,
            db=options.db,
            seed=options.seed,
            policies=pairs(options.policy),
            frozen=options.frozen,
            public=options.public,
            live_tokens=options.live_tokens,
            public_url=options.public_url,
        )
    except ValueError as error:
        raise argparse.ArgumentTypeError(_as_options(str(error))) from None
    try:
        asyncio.run(_run(sandbox, as_json=options.as_json))
    except BrokenPipeError:  # Of stdout: it says nothing of where to listen.
        raise
    except OSError as error:
        raise OSError(_why_not(error, host, port)) from None
    return 0


def _as_options(words: str) -> str:
    """Return what the sandbox says of its arguments, with the names of the options that set them."""
    for argument, option in _OPTIONS.items():
        words = words.replace(argument, option, 1)
    return words


def _why_not(error: OSError, host: str, port: int) -> str:
    """Say in a sentence why a sandbox cannot listen there."""
    if isinstance(error, socket.gaierror):
        return f"the host name {host} does not resolve; --host takes an address of this machine"
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use; choose another with --port, or 0 for any that is free"
        case errno.EADDRNOTAVAIL | None:  # Since Python 3.13 asyncio says it in an error without a number.
            return f"{host} is not an address of this machine"
        case errno.EACCES:
            return f"this user may not listen on port {port}; choose another with --port"
        case _:
            return str(error)


async def _run(sandbox: Sandbox, *, as_json: bool) -> None:
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
  authorization code    {info.authorization_code}  (for one token, within 10 minutes)
  refresh token         {info.refresh_token}  (for one token)
  dashboard             {info.base_url}/
{time if clock.frozen or clock.state.ahead else ""}"""
