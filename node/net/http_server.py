"""A port for those who watch a broker: HTTP/1.1, GET and HEAD, one answer for each connection.

Small on purpose. It must not disturb the broker, whoever comes: a request has a size and a time, connections have a
number and a pace, nothing is read that is not wanted, and an answer that its reader does not take is thrown away. Who
has a question is answered however many come and ask none.
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

#: A request line and its headers; more is refused.
MAX_REQUEST_BYTES = 8192
#: Open at once; then the one that has not asked for the longest time goes, or who comes is sent away.
MAX_CONNECTIONS = 32
#: For a request to arrive, for its answer to be found, and for the answer to be read.
DEADLINE_S = 10.0

#: Between two connections, so that a storm of them takes some per cent of the loop; the system lets the others wait.
_PAUSE_S = 0.01
_BACKLOG = 128
#: Between two looks at a request that comes in parts, for the same reason.
_PART_PAUSE_S = 0.05
#: Looks at what still comes after an answer.
_PATIENCE_READS = 4
_WITHOUT_FILES_S = 1.0

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
    """What a path has to say."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def line(status: int, text: str) -> Answer:
    """An answer of one line, whatever the text holds."""
    return Answer(status, (" ".join(text.split()) + "\n").encode())


class HttpServer:
    """`answer` gets the path without its query; None means that there is no such thing.

    `endpoint` has the real port after `start` (0 lets the system choose).
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
        #: Those of whom no whole request has come yet, the oldest first.
        self._unasked: dict[asyncio.Task[None], None] = {}

    async def start(self) -> None:
        """Bind and serve; OSError where the port is taken, or there is no such address."""
        host, port = self.endpoint.host, self.endpoint.port
        try:
            address = (await resolve(host))[0]
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            self._listening = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            # The library's own words repeat the address.
            reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
            raise OSError(error.errno, f"cannot listen on {self.endpoint}: {reason}") from None
        self._listening.setblocking(False)
        self.endpoint = Endpoint(host, self._listening.getsockname()[1])
        self._accepting = asyncio.create_task(self._accept(self._listening), name="http-port")

    @property
    def beyond_this_machine(self) -> bool:
        """Whether other machines may reach it."""
        return self._listening is not None and not ip_address(self._listening.getsockname()[0]).is_loopback

    async def stop(self) -> None:
        """Unbind, and hang up on whoever is there."""
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
            except OSError as error:  # no file descriptor is left, or who knocked has gone
                log.debug("accepting: %s", error)
                await asyncio.sleep(_WITHOUT_FILES_S)
                continue
            if self._make_room():
                task = loop.create_task(self._converse(connection))
                self._open.add(task)
                self._unasked[task] = None
                task.add_done_callback(self._forget)
            else:
                connection.close()
            await asyncio.sleep(_PAUSE_S)

    def _make_room(self) -> bool:
        """Who asks nothing, or takes long to, goes first: whoever has a question gets its answer."""
        if len(self._open) >= self._max_connections and self._unasked:
            oldest = next(iter(self._unasked))
            oldest.cancel()
            self._forget(oldest)
        return len(self._open) < self._max_connections

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        self._unasked.pop(task, None)

    async def _converse(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._exchange(connection)
        except (TimeoutError, OSError):
            pass
        except Exception:
            log.exception("an answer over HTTP failed")
        finally:
            connection.close()

    async def _exchange(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        loop = asyncio.get_running_loop()
        head = await _head(connection)
        if head is None:
            return
        if task := asyncio.current_task():
            self._unasked.pop(task, None)
        method, path, refusal = _parse(head)
        answer = refusal or await self._found(path)
        await loop.sock_sendall(connection, _encode(answer, with_body=method != "HEAD"))
        connection.shutdown(socket.SHUT_WR)
        # The end is the reader's, as long as it says little: a close with its bytes unread would take ours from it.
        for _ in range(_PATIENCE_READS):
            if not await loop.sock_recv(connection, MAX_REQUEST_BYTES):
                return

    async def _found(self, path: str) -> Answer:
        try:
            return await self._answer(path) or line(404, "there are /healthz, /readyz and /metrics")
        except Exception:
            log.exception("GET %s failed", path)
            return line(500, "the broker failed; its log says why")


async def _head(connection: socket.socket) -> bytes | None:
    """All that came up to the end of a request's headers, or too much of it; None where it ended before."""
    loop, head = asyncio.get_running_loop(), b""
    while part := await loop.sock_recv(connection, MAX_REQUEST_BYTES + 1 - len(head)):
        head += part
        if b"\r\n\r\n" in head or len(head) > MAX_REQUEST_BYTES:
            return head
        await asyncio.sleep(_PART_PAUSE_S)
    return None


def _parse(head: bytes) -> tuple[str, str, Answer | None]:
    """(method, path, why it is refused)"""
    if b"\r\n\r\n" not in head:
        return "", "", line(431, f"a request has at most {MAX_REQUEST_BYTES} bytes")
    words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
        return "", "", line(400, "that is no request of HTTP/1.1")
    method, path = words[0], words[1].partition("?")[0]
    if method not in ("GET", "HEAD"):
        return method, path, line(405, "GET and HEAD only")
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
