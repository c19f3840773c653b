"""One listener for clients, which speak Kafka's protocol.

The listener accepts connections within its limits, decodes each request, passes it to its translation, and encodes the
response. A peer that sends bytes of another protocol, or a request that no Kafka client sends, loses its connection.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from node.kafka.api_versions import offered
from node.kafka.calls import Call, KafkaApi, Later
from node.kafka.connection import Connection, FrameOutcome, Frames, LaterFrames
from node.kafka.request_memory import RequestMemory
from node.kafka.server_socket import Serve, ServerSocket, serve_tcp
from node.net.client_connections import ClientConnection, ClientConnections
from node.net.server import MAX_WAIT_MS, RequestContext
from node.runtime.latency_histogram import RequestTimes
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    ProtocolError,
    UnknownServerError,
    UnsupportedVersionError,
)
from tidelog.model import Endpoint
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.extensions import FIRST_EXTENSION
from tidelog.protocol.kafka.frames import READ_BYTES, FrameError
from tidelog.protocol.kafka.headers import RequestHeader, decode_request_header, encode_response
from tidelog.protocol.kafka.messages.group_membership import JoinGroupRequest, SyncGroupRequest
from tidelog.protocol.kafka.messages.group_offsets import OffsetCommitRequest
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest
from tidelog.protocol.kafka.messages.records import ProduceRequest
from tidelog.protocol.kafka.schema import Request, Response, has_records

log = logging.getLogger(__name__)

#: The size limit of a request without record bytes. Three APIs have larger limits, because their requests name many
#: partitions or carry the bytes of group members.
MAX_PLAIN_BYTES = 1024 * 1024
MAX_BYTES_OF_API = {
    OffsetCommitRequest.api: 4 * MAX_PLAIN_BYTES,
    JoinGroupRequest.api: 8 * MAX_PLAIN_BYTES,
    SyncGroupRequest.api: 32 * MAX_PLAIN_BYTES,
}


class _Offer(NamedTuple):
    """An API, and the size limit of its requests. A larger request closes the connection."""

    api: KafkaApi
    max_bytes: int


class _Received(NamedTuple):
    """A request whose response may fail, with the connection's address. As text it names the request and its sender."""

    api: KafkaApi
    request: Request
    header: RequestHeader
    peer: tuple[str, int]

    @property
    def name(self) -> str:
        return f"{_name_of(self.api)} version {self.header.api_version}"

    def __str__(self) -> str:
        return f"{self.name} from {self.peer[0]}:{self.peer[1]} (client id {self.header.client_id or ''!r})"


def _name_of(api: KafkaApi) -> str:
    return api.request.__name__.removesuffix("Request")


class ListenerLimits(NamedTuple):
    """The limits of one listener. Fields without a line here are the broker's settings of the same name.

    max_idle_ms        the setting `connections_max_idle_ms`
    max_frame_bytes    the setting `socket_request_max_bytes`
    max_memory_bytes   the setting `queued_max_request_bytes`

    `max_connections_of_process` limits the connections of all listeners together, because they share the descriptors of
    the process.
    """

    max_connections_of_process: int = sys.maxsize
    max_connections: int = 10_000
    max_connections_per_ip: int = 10_000
    max_idle_ms: int = 600_000
    max_frame_bytes: int = 104_857_600
    max_memory_bytes: int = 268_435_456


_IDLE_CHECK_S = 10.0
#: How long the responses that are ready may take to leave when the listener stops.
_STOP_S = 1.0
#: How long a connection may take to send its last responses before it is closed without them.
_LINGER_MS = 10_000
#: While memory is scarce, a peer that is waited for has to move this many bytes between two checks.
_LEAST_PROGRESS_BYTES = 64 * 1024
#: Complaints about one address are logged at most once in this time for each protocol that it speaks, so that a bad
#: client cannot fill the disk.
_COMPLAINT_PAUSE_MS = 10_000
_MAX_COMPLAINTS = 1_000


DEFAULT_LIMITS = ListenerLimits()


def _max_bytes(request: type[Request], max_frame_bytes: int) -> int:
    """Return the largest request of this class; requests with records are as large as frames may be."""
    return max_frame_bytes if has_records(request) else MAX_BYTES_OF_API.get(request.api, MAX_PLAIN_BYTES)


class KafkaListener:
    """One bound endpoint. `endpoint` has the actual port after `start`; port 0 lets the system choose.

    settle           called after each group of requests that arrived together, to answer delayed requests that they
                     completed
    times            the durations of this listener's requests
    limits           the numbers of connections and bytes
    serve            binds the endpoint and accepts connections
    clients          where this listener's connections are listed
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
        limits: ListenerLimits = DEFAULT_LIMITS,
        serve: Serve = serve_tcp,
        clients: ClientConnections,
    ) -> None:
        self.endpoint = endpoint
        self.max_frame_bytes = limits.max_frame_bytes
        self.read_buffer = memoryview(bytearray(READ_BYTES))
        self.memory = RequestMemory(limits.max_memory_bytes, lambda call: asyncio.get_running_loop().call_soon(call))
        self._limits = limits
        self.now_ns = now_ns
        self.times = RequestTimes(now_ns)
        self.settle = settle
        self._name = name
        self._apis = list(apis)
        self._offers = {
            api.request.api << 16 | version: _Offer(api, _max_bytes(api.request, limits.max_frame_bytes))
            for api in self._apis
            for version in range(api.versions.first, api.versions.last + 1)
        }
        self._clock = clock
        self._serve = serve
        self._clients = clients
        self._connections: dict[Connection, ClientConnection] = {}
        self._moved: dict[Connection, int] = {}  # the bytes that each connection had moved at the last check
        self._tasks: dict[asyncio.Task[Frames], None] = {}  # in the order in which they began
        self._all_closed = asyncio.Event()
        self._by_address: Counter[str] = Counter()
        self._complaints: dict[tuple[str, str], int] = {}  # by address and protocol
        self._socket: ServerSocket | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Bind the endpoint and accept connections. Raise OSError, which names the port, if it is taken."""
        self._socket = await self._serve(self.endpoint, lambda: Connection(self))
        self.endpoint = self._socket.endpoint
        self._sweeper = asyncio.create_task(self._check_connections(), name=f"idle connections of {self._name}")

    async def stop(self) -> None:
        """Close the endpoint, send the responses that are ready, and close the connections.

        Requests without a response get none, and those that are being handled are cancelled. The parts of the broker
        that complete requests must have stopped before.
        """
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._socket is not None:
            self._socket.close()
        self._is_stopping = True
        for connection in list(self._connections):
            connection.end()
        for task in list(self._tasks):
            task.cancel()
        if self._connections:
            self._all_closed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _STOP_S)
        for connection in list(self._connections):
            connection.close()

    def replace_limits(self, limits: ListenerLimits) -> None:
        """Apply other maximum numbers of connections from now on. Open connections and the other limits stay."""
        self._limits = self._limits._replace(
            max_connections=limits.max_connections, max_connections_per_ip=limits.max_connections_per_ip
        )

    # --- connections ---------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Return the number of connections, including those that are being closed."""
        return len(self._connections)

    def opened(self, connection: Connection) -> bool:
        """Count a connection. Return False if too many are open in the process, on this listener or from this address.

        Return False also if the listener stops.
        """
        address, limits = connection.peer[0], self._limits
        of_process, of_all, of_address = len(self._clients), len(self._connections), self._by_address[address]
        self._connections[connection] = self._clients.add(self._name, connection.peer, connection.traffic)
        self._by_address[address] += 1
        refusal: FrameError | None = None
        if of_process >= limits.max_connections_of_process:
            refusal = _without_descriptor(of_process, limits.max_connections_of_process)
        elif of_all >= limits.max_connections:
            refusal = _one_too_many(f"{of_all} are open", "max_connections", limits.max_connections)
        elif of_address >= limits.max_connections_per_ip:
            found = f"{of_address} of its address are open"
            refusal = _one_too_many(found, "max_connections_per_ip", limits.max_connections_per_ip)
        if refusal is not None:
            self.log_closing(connection, refusal)
        return refusal is None and not self._is_stopping

    def closed(self, connection: Connection) -> None:
        """Forget a connection that has closed. An unknown one has no effect."""
        client = self._connections.pop(connection, None)
        if client is None:
            return
        self._clients.remove(client)
        self._moved.pop(connection, None)
        address = connection.peer[0]
        self._by_address[address] -= 1
        if self._by_address[address] <= 0:
            del self._by_address[address]
        if not self._connections:
            self._all_closed.set()

    def log_closing(self, connection: Connection, error: FrameError) -> None:
        """Log why a connection is closed, at most once in some seconds for each address and protocol."""
        now_ms, kind = self._clock.monotonic_ms(), (connection.peer[0], error.protocol)
        if now_ms - self._complaints.get(kind, -_COMPLAINT_PAUSE_MS) < _COMPLAINT_PAUSE_MS:
            return
        if len(self._complaints) >= _MAX_COMPLAINTS:
            self._complaints.clear()
        self._complaints[kind] = now_ms
        log.warning("%s: %s:%d %s: the connection is closed", self._name, *connection.peer, error.reason)

    async def _check_connections(self) -> None:
        while True:
            await asyncio.sleep(min(_IDLE_CHECK_S, self._limits.max_idle_ms / 2000))
            self.close_idle()
            self.free_memory()

    def close_idle(self) -> None:
        """Close the connections without a new request for the maximum idle time.

        A connection with an unanswered request may stay MAX_WAIT_MS longer. One that sends its last responses may stay
        at most _LINGER_MS.
        """
        now_ms = self._clock.monotonic_ms()
        for connection in list(self._connections):
            idle_ms = now_ms - connection.traffic.last_active_ms
            allowed_ms = self._limits.max_idle_ms + (MAX_WAIT_MS if connection.unanswered else 0)
            if idle_ms > (allowed_ms if connection.is_open else min(allowed_ms, _LINGER_MS)):
                connection.close()

    def free_memory(self) -> None:
        """While memory is scarce, close one connection: that which holds most memory among the stalled ones.

        A connection is stalled if only its peer can free memory, and it has moved less than _LEAST_PROGRESS_BYTES since
        the previous call. The first call of a scarcity closes none.
        """
        before, self._moved = self._moved, {}
        if not self.memory.is_scarce:
            return
        self._moved = {each: each.moved_bytes for each in self._connections}
        stalled = [
            each
            for each, moved in self._moved.items()
            if each.is_waited_for and each in before and moved - before[each] < _LEAST_PROGRESS_BYTES
        ]
        if stalled:
            worst = max(stalled, key=lambda each: each.held_bytes)
            reason = (
                f"holds {worst.held_bytes} bytes, but has moved fewer than {_LEAST_PROGRESS_BYTES} "
                "since the last check, while memory is scarce (queued_max_request_bytes)"
            )
            self.log_closing(worst, FrameError(reason))
            worst.close()

    # --- requests ------------------------------------------------------------------------------------

    def handle(self, connection: Connection, frame: memoryview) -> FrameOutcome:
        """Return the response's frames, an object that provides them later, or None if the request gets no response.

        Raise FrameError, which closes the connection, if the request cannot be read, is too large, or is not offered.
        Raise it also if the request fails and no response can say so, for example with acks=0.
        """
        begun_ns = self.times.now_ns()
        connection.traffic.last_active_ms = self._clock.monotonic_ms()
        try:
            header, position = decode_request_header(frame)
            key = header.api_key << 16 | header.api_version
            offer = self._offers.get(key)
            if offer is None:
                return self._unsupported(header)
            api, most = offer
            if len(frame) > most:
                name = f"{_name_of(api)} version {header.api_version}"
                raise FrameError(f"sent {name} of {len(frame)} bytes; at most {most} are allowed")
            request = decode(api.request, header.api_version, frame[position:], ignores_rest=api.ignores_rest)
        except ProtocolError as error:
            raise FrameError(f"sent a request that cannot be read: {error}") from None
        client = self._connections[connection]
        client.requests[key] = client.requests.get(key, 0) + 1
        client_id = header.client_id or ""
        if client_id != client.client_id:
            client.name_itself(client_id)
        context = RequestContext(
            client.peer, client_id, -1, -1, False, self._name, client.host, sends_files=True, hears_failures=True
        )
        finish = partial(self._encoded, header, begun_ns)
        try:
            outcome = api.handle(request, Call(header.api_version, context, client))
            if isinstance(outcome, Response):
                return finish(outcome)
        except Exception as error:
            return self._error_response(_Received(api, request, header, connection.peer), error)
        if outcome is None:
            finish(None)
            return None
        received = _Received(api, request, header, connection.peer)
        if isinstance(outcome, Later):
            return self._later(received, outcome, finish)
        task = asyncio.create_task(self._finished(received, outcome, finish))
        self._tasks[task] = None  # the event loop alone does not keep a task alive
        task.add_done_callback(self._tasks.pop)
        return task

    async def _finished(
        self,
        received: _Received,
        outcome: Awaitable[Response | None],
        finish: Callable[[Response | None], Frames],
    ) -> Frames:
        try:
            return finish(await outcome)
        except Exception as error:
            return self._error_response(received, error)

    def _later(self, received: _Received, outcome: Later, finish: Callable[[Response | None], Frames]) -> LaterFrames:
        deferred, convert = outcome

        def subscribe(receive: Callable[[Frames | FrameError], None]) -> None:
            def on_complete(response: native.Response) -> None:
                try:
                    frames: Frames | FrameError = finish(convert(response))
                except MemoryError:
                    raise
                except Exception:
                    # The caller completes requests of other connections too, and this error is none of theirs.
                    log.exception("%s: cannot send the response to %s", self._name, received)
                    frames = _without_response(received)
                receive(frames)

            deferred.on_complete(on_complete)

        return LaterFrames(subscribe, deferred.abandon)

    def _error_response(self, received: _Received, error: Exception) -> Frames:
        """Return the response to a request that failed as a whole, and count it as refused.

        A MemoryError is raised again. Raise FrameError if there is no such response: the connection is closed then, as
        Kafka does for acks=0.
        """
        if isinstance(error, MemoryError):
            raise error  # the request may be half done: node.process.out_of_memory ends the process
        api, request, header, _ = received
        if not isinstance(error, BrokerError):
            log.error("%s: %s failed", self._name, received, exc_info=error)
            error = UnknownServerError("the broker failed; see its log for the reason")
        self.times.refused_with(error.code)
        if isinstance(request, ProduceRequest) and request.acks == 0:
            raise FrameError(f"sent records without asking for a response (acks=0), which failed: {error}")
        try:
            response = api.error_response(request, error, header.api_version)
            return encode_response(response, header.api_version, header.correlation_id)
        except Exception as failure:
            log.exception("%s: cannot send the error response to %s", self._name, received)
            raise _without_response(received) from failure

    def _encoded(self, header: RequestHeader, begun_ns: int, response: Response | None) -> Frames:
        """Return the frames of a response, and count the request as answered. None, for no response, has no frames."""
        frames = () if response is None else encode_response(response, header.api_version, header.correlation_id)
        self.times.answered(header.api_key, begun_ns)
        return frames

    def _unsupported(self, header: RequestHeader) -> Frames:
        """Return the answer to ApiVersions in an unknown version, which Kafka gives in version 0. Refuse other APIs."""
        if header.api_key == ApiVersionsRequest.api:
            kafka_apis = (api for api in self._apis if api.request.api < FIRST_EXTENSION)
            response = offered(kafka_apis, UnsupportedVersionError.code)
            return encode_response(response, 0, header.correlation_id)
        api = next((each for each in self._apis if each.request.api == header.api_key), None)
        if api is None:
            raise FrameError(f"sent API {header.api_key} version {header.api_version}, which is not offered")
        name, (first, last) = _name_of(api), api.versions
        raise FrameError(
            f"sent {name} version {header.api_version}, but this listener understands versions {first} to {last}"
        )


def _one_too_many(found: str, setting: str, limit: int) -> FrameError:
    """Return the refusal of a connection beyond a limit. `found` says how many connections are open."""
    return FrameError(
        f"is one connection too many: {found}, and {setting}={limit}; raise the setting if these clients are wanted"
    )


def _without_descriptor(of_process: int, limit: int) -> FrameError:
    """Return the refusal of a connection because the other descriptors of the process are for files."""
    return FrameError(
        f"is one connection too many: {of_process} are open, and the process may have {limit}, because its other file "
        "descriptors are for log files; raise the limit of open files (ulimit -n) if these clients are wanted"
    )


def _without_response(received: _Received) -> FrameError:
    """Return the reason to close a connection whose request gets no response, because an error was logged before."""
    return FrameError(f"cannot get a response to {received.name}, because the broker failed (see the error above)")
