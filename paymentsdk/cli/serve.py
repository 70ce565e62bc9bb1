"""``paymentsdk sandbox``: the platform on localhost, until somebody ends it."""

from __future__ import annotations

import asyncio
import errno
import signal
from collections.abc import Mapping
from contextlib import suppress

import msgspec

from paymentsdk.sandbox import Policies, Sandbox, SandboxInfo

__all__ = ["serve"]


def serve(
    *,
    host: str,
    port: int,
    db: str | None,
    seed: int | None,
    policies: Mapping[str, object],
    frozen: bool,
    public: bool,
    live_tokens: bool,
    public_url: str | None,
    as_json: bool,
) -> int:
    """Run a sandbox until SIGINT or SIGTERM; say once where it is, and return the exit code.

    Raises:
        OSError: The port or the file cannot be used.
        ValueError: A policy is unknown, or the host can be reached by other machines and *public* is false.
    """
    try:
        Policies().merged(policies)
    except ValueError as error:
        raise ValueError(f"--policy: {error}; see: paymentsdk sandbox policies") from None
    try:
        sandbox = Sandbox(
            host=host,
            port=port,
            db=db,
            seed=seed,
            policies=policies,
            frozen=frozen,
            public=public,
            live_tokens=live_tokens,
            public_url=public_url,
        )
    except ValueError as error:
        raise ValueError(str(error).replace("public=True", "--public").replace("public_url", "--public-url")) from None
    try:
        asyncio.run(_run(sandbox, as_json=as_json))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise OSError(f"port {port} is in use; choose another with --port, or 0 for any that is free") from None
    return 0


async def _run(sandbox: Sandbox, *, as_json: bool) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows; asyncio itself ends the program at SIGINT there.
            loop.add_signal_handler(number, over.set)
    async with sandbox:
        info = sandbox.describe()
        print(msgspec.json.encode(info).decode() if as_json else _for_people(info), flush=True)
        await over.wait()


def _for_people(info: SandboxInfo) -> str:
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
"""
