"""The default transport, on aiohttp.

This transport adds to aiohttp what moving money needs: it sends nothing twice, follows no redirect, unpacks nothing and
reads nothing without bound, and every failure says whether a byte of the request can have left this machine.

The files, from the top; none imports from one above it:

- ``_transport``: what a user makes and closes, and which of the two ways a request takes
- ``_over_pool``: the usual way, straight to a connection of the pool
- ``_over_session``: the way of what is out of the ordinary
- ``_messages``: the bytes of a request, and the body of an answer
- ``_pool``: the connections, and the servers that they lead to
- ``_failures``: what a failure means, and first of all whether anything was sent
"""

from __future__ import annotations

from paymentsdk.transports.aiohttp._pool import ConnectorOptions
from paymentsdk.transports.aiohttp._transport import AiohttpTransport

__all__ = ["AiohttpTransport", "ConnectorOptions"]
