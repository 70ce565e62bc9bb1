"""What the control API does with snapshots, and the lists of requests, as `_commands.py` does the rest."""

import asyncio

from paymentsdk.sandbox._commands import clock, command
from paymentsdk.sandbox._har import archive
from paymentsdk.sandbox._platform import Platform
from paymentsdk.sandbox._wire import ControlStruct, Rejected


class SnapshotRequest(ControlStruct):
    """The name of a snapshot."""

    name: str = "snapshot"
    """`snapshot` by default. A snapshot replaces an earlier one of the same name."""


@command("POST", "snapshot")
async def snapshot(platform: Platform, body: SnapshotRequest) -> object:
    """Remember everything as it is: documents, ledger, keys, clock, policies and faults."""
    await asyncio.to_thread(platform.snapshot, body.name)
    return {"name": body.name}


@command("POST", "restore")
async def restore(platform: Platform, body: SnapshotRequest) -> object:
    """Make everything as it was at a snapshot; faults that were cleared since are in force again."""
    try:
        await asyncio.to_thread(platform.restore, body.name)
    except KeyError:
        raise Rejected(404, "not_found", "there is no such snapshot") from None
    return {"name": body.name, **clock(platform)}


@command("GET", "snapshot/file", "application/octet-stream")
async def save_snapshot(platform: Platform) -> object:
    """Return everything as it is, with all credentials, as a file for `POST snapshot/file`."""
    return await asyncio.to_thread(platform.save)


@command("POST", "snapshot/file")
async def load_snapshot(platform: Platform, body: bytes) -> object:
    """Make everything as it was when the file in the body was saved, or leave everything as it is."""
    await asyncio.to_thread(platform.load, body)
    return clock(platform)


@command("GET", "requests")
def requests(platform: Platform) -> object:
    """List the last requests, newest first, without credentials."""
    return list(reversed(platform.feed.requests))


@command("GET", "requests.har")
def requests_har(platform: Platform) -> object:
    """Export the last requests as an HTTP archive (HAR 1.2), oldest first, without credentials."""
    return archive(platform.feed.requests, platform.base_url)
