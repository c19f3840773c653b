"""Bind the endpoint of a listener, and accept connections there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from tidelog.model import Endpoint

_BACKLOG = 1024


class ServerSocket(NamedTuple):
    """A bound endpoint, which accepts connections until `close`. Accepted connections stay open.

    endpoint   the address, with the port that the system has chosen if it was 0
    """

    endpoint: Endpoint
    close: Callable[[], None]


#: Binds an endpoint, and connects each accepted connection to a new protocol of the function. Raises OSError, which
#: names the port, if it is taken.
Serve = Callable[[Endpoint, Callable[[], asyncio.BufferedProtocol]], Awaitable[ServerSocket]]


async def serve_tcp(endpoint: Endpoint, protocol: Callable[[], asyncio.BufferedProtocol]) -> ServerSocket:
    """Bind a TCP port of this machine (`Serve`)."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, endpoint.host, endpoint.port, backlog=_BACKLOG)
    return ServerSocket(Endpoint(endpoint.host, server.sockets[0].getsockname()[1]), server.close)
