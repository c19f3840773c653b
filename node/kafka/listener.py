"""One listener for clients that speak Kafka's protocol.

The listener accepts connections within its limits, decodes each request, passes it to its translation, and encodes the
response. A peer that sends bytes of another protocol, or a request that no Kafka client sends, loses its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import count

from node.kafka.api_versions import API_VERSIONS, offered
from node.kafka.calls import Call, KafkaApi, Later, Outcome
from node.kafka.connection import Connection, FrameOutcome, Frames, LaterFrames
from node.kafka.frames import FrameError
from node.net.server import RequestContext
from node.runtime.latency_histogram import RequestTimes
from tidelog.clock import Clock
from tidelog.errors import BrokerError, ProtocolError, UnknownServerError, UnsupportedVersionError
from tidelog.model import Endpoint
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.headers import RequestHeader, decode_request_header, encode_response
from tidelog.protocol.kafka.schema import Request, Response

log = logging.getLogger(__name__)

#: `socket.request.max.bytes`.
MAX_FRAME_BYTES = 104_857_600
#: `max.connections` and `max.connections.per.ip`.
MAX_CONNECTIONS = 10_000
MAX_CONNECTIONS_PER_ADDRESS = 10_000
#: `connections.max.idle.ms`.
MAX_IDLE_MS = 600_000
_IDLE_CHECK_S = 10.0
#: Complaints about one address are logged at most once in this time, so that a bad client cannot fill the disk.
_COMPLAINT_PAUSE_MS = 10_000
_MAX_COMPLAINTS = 1_000


class KafkaListener:
    """One bound endpoint. `endpoint` has the actual port after `start`; port 0 lets the system choose.

    settle   called after each group of requests that arrived together, to answer delayed requests that they completed
    times    the durations of this listener's requests
    """

    def __init__(
        self,
        endpoint: Endpoint,
        name: str,
        apis: Iterable[KafkaApi],
        clock: Clock,
        *,
        settle: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = lambda: 0,
    ) -> None:
        self.endpoint = endpoint
        self.max_frame_bytes = MAX_FRAME_BYTES
        self.times = RequestTimes(now_ns)
        self.settle = settle
        self._name = name
        self._apis = {api.request.api: api for api in apis}
        self._clock = clock
        self._connections: dict[Connection, bytes] = {}
        self._numbers = count(1)
        self._by_address: Counter[str] = Counter()
        self._complaints: dict[str, int] = {}
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Bind the endpoint and accept connections. Raise OSError, which names the port, if it is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self), self.endpoint.host, self.endpoint.port, backlog=1024
        )
        port = self._server.sockets[0].getsockname()[1]
        self.endpoint = Endpoint(self.endpoint.host, port)
        self._sweeper = asyncio.create_task(self._close_idle_connections(), name=f"idle connections of {self._name}")

    async def stop(self) -> None:
        """Close the endpoint and its connections. Requests without a response get none."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.close()

    # --- connections ---------------------------------------------------------------------------------

    def opened(self, connection: Connection) -> bool:
        """Count a connection. Return False if there are too many, of this address or of all."""
        address = connection.peer[0]
        is_allowed = (
            len(self._connections) < MAX_CONNECTIONS and self._by_address[address] < MAX_CONNECTIONS_PER_ADDRESS
        )
        self._connections[connection] = b"kafka-%d" % next(self._numbers)
        self._by_address[address] += 1
        connection.last_active_ms = self._clock.monotonic_ms()
        if not is_allowed:
            self.refused(connection, f"is one of {len(self._connections)} connections, which is too many")
        return is_allowed

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.pop(connection, None)
        address = connection.peer[0]
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]

    def refused(self, connection: Connection, reason: str) -> None:
        """Log why a connection is closed, at most once in some seconds for each address."""
        now_ms, address = self._clock.monotonic_ms(), connection.peer[0]
        if now_ms - self._complaints.get(address, -_COMPLAINT_PAUSE_MS) < _COMPLAINT_PAUSE_MS:
            return
        if len(self._complaints) >= _MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints[address] = now_ms
        log.warning("%s: %s:%d %s: the connection is closed", self._name, *connection.peer, reason)

    async def _close_idle_connections(self) -> None:
        while True:
            await asyncio.sleep(_IDLE_CHECK_S)
            oldest_ms = self._clock.monotonic_ms() - MAX_IDLE_MS
            for connection in list(self._connections):
                if connection.last_active_ms < oldest_ms and not connection.unanswered:
                    connection.close()

    # --- requests ------------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: memoryview) -> FrameOutcome:
        """Return the response's frames, at once or later. Raise FrameError for a request that no client may send."""
        begun_ns = self.times.now_ns()
        connection.last_active_ms = self._clock.monotonic_ms()
        try:
            header, position = decode_request_header(frame)
            api = self._apis.get(header.api_key)
            if api is None or header.api_version not in api.request.valid:
                return self._unsupported(header)
            request = decode(api.request, header.api_version, frame[position:])
        except ProtocolError as error:
            raise FrameError(f"sent a request that cannot be read: {error}") from None
        context = RequestContext(
            self._connections[connection], header.client_id or "", -1, -1, False, self._name, connection.peer[0]
        )
        finish = partial(self._encoded, header, begun_ns)
        try:
            outcome = api.handle(request, Call(header.api_version, context))
        except Exception as error:
            return finish(self._refusal(api, request, error))
        if outcome is None:
            self.times.answered(header.api_key, begun_ns)
            return None
        if isinstance(outcome, Response):
            return finish(outcome)
        if isinstance(outcome, Later):
            return _later(outcome, finish)
        return self._finished(api, request, outcome, finish)

    async def _finished(
        self, api: KafkaApi, request: Request, outcome: Awaitable[Response], finish: Callable[[Response], Frames]
    ) -> Frames:
        try:
            return finish(await outcome)
        except Exception as error:
            return finish(self._refusal(api, request, error))

    def _refusal(self, api: KafkaApi, request: Request, error: Exception) -> Response:
        """Return the response to a request that failed as a whole. A MemoryError is raised again."""
        if isinstance(error, MemoryError):
            raise error  # the request may be half done: node.process.out_of_memory ends the process
        if not isinstance(error, BrokerError):
            log.error("a request of API %d failed", api.request.api, exc_info=error)
            error = UnknownServerError("the broker failed; see its log for the reason")
        self.times.refused_with(error.code)
        return api.refuse(request, error)

    def _encoded(self, header: RequestHeader, begun_ns: int, response: Response) -> Frames:
        frames = encode_response(response, header.api_version, header.correlation_id)
        self.times.answered(header.api_key, begun_ns)
        return frames

    def _unsupported(self, header: RequestHeader) -> Sequence[bytes]:
        """Return the answer to ApiVersions in an unknown version, which Kafka gives in version 0. Refuse other APIs."""
        if header.api_key != API_VERSIONS:
            raise FrameError(f"sent API {header.api_key} version {header.api_version}, which is not offered")
        response = offered(self._apis.values(), UnsupportedVersionError.code)
        return encode_response(response, 0, header.correlation_id)  # type: ignore[return-value]


def _later(outcome: Later, finish: Callable[[Response], Frames]) -> LaterFrames:
    deferred, convert = outcome

    def subscribe(receive: Callable[[Frames], None]) -> None:
        def on_complete(response: native.Response) -> None:
            receive(finish(convert(response)))

        deferred.on_complete(on_complete)

    return LaterFrames(subscribe)


__all__ = ["KafkaListener", "Outcome"]
