"""The commands of the control API for snapshots and for lists of requests; `_commands.py` has the others."""

import asyncio
from collections.abc import Mapping

from paymentsdk.sandbox import _control_forms as forms
from paymentsdk.sandbox._commands import clock, command
from paymentsdk.sandbox._feed import RequestLine
from paymentsdk.sandbox._har import archive
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._wire import Rejected


@command("POST", "snapshot")
async def snapshot(platform: Platform, body: forms.SnapshotRequest) -> forms.SnapshotName:
    """Save the current state in memory: documents, ledger, keys, clock, policies and faults."""
    await asyncio.to_thread(platform.snapshot, body.name)
    return forms.SnapshotName(body.name)


@command("POST", "restore")
async def restore(platform: Platform, body: forms.SnapshotRequest) -> forms.Restored:
    """Restore the state of a snapshot. Faults that were cleared since are in force again."""
    try:
        await asyncio.to_thread(platform.restore, body.name)
    except KeyError:
        raise Rejected(404, "not_found", "there is no such snapshot") from None
    return forms.Restored(name=body.name, now=platform.clock.now(), frozen=platform.clock.frozen)


@command("GET", "snapshot/file", "application/octet-stream")
async def save_snapshot(platform: Platform) -> bytes:
    """Return the current state, with all credentials, as a file for `POST snapshot/file`."""
    return await asyncio.to_thread(platform.save)


@command("POST", "snapshot/file")
async def load_snapshot(platform: Platform, body: bytes) -> forms.ClockTime:
    """Restore the state from a file of `GET snapshot/file`. After an error, nothing has changed."""
    await asyncio.to_thread(platform.load, body)
    return clock(platform)


@command("GET", "requests")
def requests(platform: Platform) -> list[RequestLine]:
    """List the last requests, newest first, without credentials."""
    return platform.feed.requests[::-1]


@command("GET", "requests.har")
def requests_har(platform: Platform) -> Mapping[str, object]:
    """Export the last requests as an HTTP archive (HAR 1.2), oldest first, without credentials."""
    return archive(platform.feed.requests, platform.base_url)
