"""A port for those who watch a broker: HTTP/1.1, GET and HEAD, one answer for each connection.

Small on purpose. It must not disturb the broker: a request has a size and a time, connections have a number, and an
answer that its reader does not take is thrown away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tidelog.frozen import frozen
from tidelog.model import Endpoint

log = logging.getLogger(__name__)

#: A request line and its headers; more is refused.
MAX_REQUEST_BYTES = 8192
#: Open at once; who comes then is sent away, and comes again.
MAX_CONNECTIONS = 32
#: For a request to arrive, for its answer to be found, and for the answer to be read.
DEADLINE_S = 10.0

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


class HttpPort:
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
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Bind and serve; OSError where the port is taken."""
        host, port = self.endpoint.host, self.endpoint.port
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise OSError(error.errno, f"cannot listen on {self.endpoint}: {error.strerror}") from None
        self.endpoint = Endpoint(host, self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Unbind, and hang up on whoever is there."""
        if self._server is not None:
            self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._deadline_s):
                method, path, refusal = await self._read_request(reader)
                answer = refusal or await self._found(path)
                writer.write(_encode(answer, with_body=method != "HEAD"))
                writer.write_eof()
                await writer.drain()
                # The end is the reader's: a close with its bytes unread would take ours from it.
                while await reader.read(MAX_REQUEST_BYTES):
                    pass
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            pass
        except Exception:
            log.exception("an answer over HTTP failed")
        finally:
            writer.transport.abort()

    async def _read_request(self, reader: asyncio.StreamReader) -> tuple[str, str, Answer | None]:
        """(method, path, why it is refused)"""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "", "", line(431, f"a request has at most {MAX_REQUEST_BYTES} bytes")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
            return "", "", line(400, "that is no request of HTTP/1.1")
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return method, path, line(405, "GET and HEAD only")
        return method, path, None

    async def _found(self, path: str) -> Answer:
        try:
            return await self._answer(path) or line(404, "there are /healthz, /readyz and /metrics")
        except Exception:
            log.exception("GET %s failed", path)
            return line(500, "the broker failed; its log says why")


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
