"""The HTTP server for health and metrics: HTTP/1.1, GET and HEAD, one response per connection.

The server is small on purpose, because no client may disturb the broker. The server limits the size and the duration
of a request, and the number and the rate of connections. The server reads no more than a request's headers, and drops a
response that its reader does not take. A complete request is answered however many idle connections are open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address

from tidelog.frozen_dataclass import frozen
from tidelog.model import Endpoint
from tidelog.protocol.addresses import resolve

log = logging.getLogger(__name__)

#: The largest request line with its headers; a larger request is refused.
MAX_REQUEST_BYTES = 8192
#: Connections at the same time. Beyond it the server closes the oldest connection without a complete request, or
#: closes the new connection if there is none.
MAX_CONNECTIONS = 32
#: The time for a request to arrive, to be answered, and for its response to be read.
DEADLINE_S = 10.0

#: The pause between two accepted connections, so that a flood of them takes only a few per cent of the loop. Further
#: connections wait in the backlog of the operating system.
_PAUSE_S = 0.01
_BACKLOG = 128
#: The pause between two reads of a request that arrives in parts, for the same reason.
_PART_PAUSE_S = 0.05
#: Reads after the response, until the client closes.
_READS_BEFORE_CLOSE = 4
#: The pause after an accept that failed, for example because no file descriptor is left.
_ACCEPT_RETRY_S = 1.0

_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@frozen
class Answer:
    """The response to one GET: status, body and content type."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def line(status: int, text: str) -> Answer:
    """Return an answer of one line; line breaks of the text become spaces."""
    return Answer(status, (" ".join(text.split()) + "\n").encode())


class HttpServer:
    """One HTTP endpoint, bound by `start`.

    answer            returns the answer for a path (without its query), or None, which is answered with status 404
    endpoint          has the actual port after `start`; port 0 lets the system choose one
    deadline_s        after this time a connection is closed, whether its response was sent or not
    max_connections   the limit of connections at the same time
    """

    def __init__(
        self,
        endpoint: Endpoint,
        answer: Callable[[str], Awaitable[Answer | None]],
        *,
        deadline_s: float = DEADLINE_S,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self.endpoint = endpoint
        self._answer = answer
        self._deadline_s = deadline_s
        self._max_connections = max_connections
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._open: set[asyncio.Task[None]] = set()
        #: The tasks of connections without a complete request, the oldest first.
        self._without_request: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Bind the endpoint, begin to serve, and return.

        Raise OSError if the port is taken, the host is unknown, or this machine does not have the address.
        """
        host, port = self.endpoint.host, self.endpoint.port
        try:
            address = (await resolve(host))[0]
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._listening = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            # The error text of the library would repeat the address.
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise OSError(error.errno, f"cannot listen on {self.endpoint}: {reason}") from None
        self._listening.setblocking(False)
        self.endpoint = Endpoint(host, self._listening.getsockname()[1])
        self._accepting = asyncio.create_task(self._accept(self._listening), name="http-port")

    @property
    def beyond_this_machine(self) -> bool:
        """Return whether the bound address is no loopback address; False before `start`."""
        return self._listening is not None and not ip_address(self._listening.getsockname()[0]).is_loopback

    async def stop(self) -> None:
        """Close the listening socket and all connections, also those whose request has no answer yet."""
        tasks = [*self._open, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptor is left, or the client has closed already
                log.debug("cannot accept an HTTP connection: %s", error)
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            if self._may_accept():
                task = loop.create_task(self._serve(connection))
                self._open.add(task)
                self._without_request[task] = None
                task.add_done_callback(self._forget)
            else:
                connection.close()
            await asyncio.sleep(_PAUSE_S)

    def _may_accept(self) -> bool:
        """Return whether one more connection may be served.

        At the limit, close the oldest connection without a complete request, so that complete requests are answered.
        """
        if len(self._open) >= self._max_connections and self._without_request:
            oldest = next(iter(self._without_request))
            oldest.cancel()
            self._forget(oldest)
        return len(self._open) < self._max_connections

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._without_request.pop(task, None)

    async def _serve(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._exchange(connection)
        except (TimeoutError, OSError):
            pass
        except Exception:
            log.exception("an HTTP request failed")
        finally:
            connection.close()

    async def _exchange(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        head = await _head(connection)
        if head is None:
            return
        if task := asyncio.current_task():
            self._without_request.pop(task, None)
        method, path, refusal = _parse(head)
        answer = refusal or await self._answer_for(path)
        await loop.sock_sendall(connection, _encode(answer, with_body=method != "HEAD"))
        connection.shutdown(socket.SHUT_WR)
        # Let the client close first, if it sends little more. A close while its bytes are unread would reset the
        # connection, and the client would lose the response.
        for _ in range(_READS_BEFORE_CLOSE):
            if not await loop.sock_recv(connection, MAX_REQUEST_BYTES):
                return

    async def _answer_for(self, path: str) -> Answer:
        try:
            return await self._answer(path) or line(
                404, "not found; try /healthz, /readyz, /metrics or /metrics/partitions"
            )
        except Exception:
            log.exception("GET %s failed", path)
            return line(500, "the broker failed; see its log for the reason")


async def _head(connection: socket.socket) -> bytes | None:
    """Return the received bytes once they contain the end of the headers, or are more than MAX_REQUEST_BYTES.

    Return None if the client closes the connection before that.
    """
    loop, head = asyncio.get_running_loop(), b""
    while part := await loop.sock_recv(connection, MAX_REQUEST_BYTES + 1 - len(head)):
        head += part
        if b"\r\n\r\n" in head or len(head) > MAX_REQUEST_BYTES:
            return head
        await asyncio.sleep(_PART_PAUSE_S)
    return None


def _parse(head: bytes) -> tuple[str, str, Answer | None]:
    """Return the method, the path, and the answer that refuses the request (None for a valid request)."""
    if b"\r\n\r\n" not in head:
        return "", "", line(431, f"a request has at most {MAX_REQUEST_BYTES} bytes")
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return "", "", line(400, "not an HTTP/1.1 request")
    method, path = words[0], words[1].partition("?")[0]
    if method not in ("GET", "HEAD"):
        return method, path, line(405, "only GET and HEAD are allowed")
    return method, path, None


def _encode(answer: Answer, *, with_body: bool) -> bytes:
    headers = {
        "Content-Type": answer.content_type,
        "Content-Length": str(len(answer.body)),
        "Cache-Control": "no-store",
        "Connection": "close",
    }
    if answer.status == 405:
        headers["Allow"] = "GET, HEAD"
    lines = [f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}", *map(": ".join, headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1") + (answer.body if with_body else b"")
