"""The listener for other brokers and the controller: check each request, pass it to its handler, send the response.

Before a handler runs, the server checks that the bytes are a message of a supported version. The request must be meant
for this cluster and for this registration of the broker, and its deadline must not have passed. Clients connect to
`node.kafka.listener`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from node.events.recorder import NO_EVENTS, Events
from node.net.identity import Identity
from node.net.zeromq.router import Listen, Listening, Router
from node.runtime.deferred_response import DeferredResponse
from node.runtime.latency_histogram import RequestTimes
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    InconsistentClusterIdError,
    InvalidRequestError,
    ProtocolError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnknownServerError,
    UnsupportedVersionError,
    text_for_response,
)
from tidelog.frozen_dataclass import frozen
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.admin_messages import ADMIN_REQUESTS
from tidelog.protocol.codec import (
    MAX_BROKER_ENVELOPE_BYTES,
    Body,
    RequestHeader,
    ResponseHeader,
    decode_request,
    encode,
)
from tidelog.protocol.control_messages import CONTROL_REQUESTS
from tidelog.protocol.group_messages import GROUP_REQUESTS
from tidelog.protocol.list_offsets_v0_messages import SEGMENT_REQUESTS
from tidelog.protocol.listeners import BROKERS
from tidelog.protocol.messages import (
    CLIENT_REQUESTS,
    ApiRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Request,
    Response,
)
from tidelog.protocol.operator_messages import OPERATOR_REQUESTS
from tidelog.protocol.partition_messages import PARTITION_REQUESTS

log = logging.getLogger(__name__)

#: Requests of one connection without a response; further requests are refused.
MAX_UNANSWERED = 1000
#: The longest time that a request waits, even if its sender would wait longer.
MAX_WAIT_MS = 600_000
#: The limits for responses that a peer has not read: their number, and their bytes (two of the largest). Beyond either
#: limit, new requests of the peer are dropped, so that they time out. Requests that were accepted before are still
#: answered, so that at most MAX_UNANSWERED more responses are added.
MAX_PARKED = 256
MAX_UNREAD_BYTES = 104_857_600
#: The pause between two log lines about clients that try this port.
_CLIENT_LINE_PAUSE_MS = 10_000

_REQUESTS: dict[int, type[Request]] = {
    cls.api: cls
    for cls in (
        *CLIENT_REQUESTS,
        *ADMIN_REQUESTS,
        *GROUP_REQUESTS,
        *OPERATOR_REQUESTS,
        *PARTITION_REQUESTS,
        *SEGMENT_REQUESTS,
        *CONTROL_REQUESTS,
    )
}


def due_in(now_ms: int, wait_ms: int) -> int:
    """Return the deadline of a request that waits `wait_ms` (negative: not at all), but at most `MAX_WAIT_MS`."""
    return now_ms + min(max(0, wait_ms), MAX_WAIT_MS)


@frozen
class RequestContext:
    """The sender of a request, as far as handlers need it.

    peer             the identity of the connection
    sender_epoch     the broker epoch of the broker that sent the request; −1 for a client
    deadline_ms      until when the sender waits, by this broker's monotonic clock; −1: no limit
    between_brokers  whether the listener is the one for brokers and the controller
    listener         the name of the listener that received the request
    sends_files      whether the connection sends records from their file, so that the answer may have `StoredBytes`
    hears_failures   whether a Produce with acks=0 gets an answer, so that its connection is closed after a failure
    client_host      the sender's address; empty for requests between brokers
    """

    peer: bytes
    client_id: str
    sender_epoch: int
    deadline_ms: int
    between_brokers: bool
    listener: str = BROKERS
    client_host: str = ""
    sends_files: bool = False
    hears_failures: bool = False

    def due_ms(self, now_ms: int, wait_ms: int) -> int:
        """Return the deadline of a request that waits `due_in(wait_ms)`, but at most until its sender stops waiting."""
        due_ms = due_in(now_ms, wait_ms)
        return due_ms if self.deadline_ms < 0 else min(due_ms, self.deadline_ms)


#: Returns the response, a deferred response, or None if the request gets no response (acks=0).
Handler = Callable[[Request, RequestContext], Response | DeferredResponse | Awaitable[Response] | None]


class Server:
    """One bound endpoint. `endpoint` has the actual port after `start`; port 0 lets the system choose.

    handler          called for each request that passed the checks
    settle           called after each group of requests that arrived together, to answer requests that they completed
    times            the durations and the refusals of this listener's requests
    listen           binds the endpoint and moves the messages
    clients_address  returns where clients connect, for the log line about one that came here
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        handler: Handler,
        clock: Clock,
        *,
        settle: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = lambda: 0,
        listen: Listen = Router,
        events: Events = NO_EVENTS,
        clients_address: Callable[[], str] = lambda: "the listener KAFKA",
    ) -> None:
        self.endpoint = endpoint
        self._clients_address = clients_address
        self._next_client_line_ms = 0
        self._identity = identity
        self._handler = handler
        self._settle = settle
        self.times = RequestTimes(now_ns)
        self._clock = clock
        self._events = events
        self._listen = listen
        self._listening: Listening | None = None
        self._logged_stuck: set[bytes] = set()
        self._waiting: dict[asyncio.Future[Any], None] = {}  # in the order of arrival
        self._unanswered: dict[bytes, int] = {}

    def start(self) -> None:
        """Bind the endpoint and begin to accept requests. Raise OSError, which names the endpoint, if it is taken."""
        self._listening = self._listen(self.endpoint, self._on_request, self._settle, self._on_client)
        self.endpoint = self._listening.endpoint

    def stop(self) -> None:
        """Close the endpoint, and cancel the coroutines of requests without a response. Such requests get none."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        listening.close()
        for future in list(self._waiting):
            future.cancel()

    def _on_client(self) -> None:
        """Log that a client tried this port, at most once in some seconds, because such a client comes again."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._next_client_line_ms:
            return
        self._next_client_line_ms = now_ms + _CLIENT_LINE_PAUSE_MS
        log.warning(
            "%s at %s: a peer speaks Kafka's protocol, but this port is for brokers: the connection is closed;"
            " clients connect to %s",
            BROKERS, self.endpoint, self._clients_address(),
        )  # fmt: skip

    def _on_request(self, peer: bytes, frames: list[memoryview]) -> None:
        begun_ns = self.times.now_ns()
        try:
            if frames and len(frames[0]) > MAX_BROKER_ENVELOPE_BYTES:
                raise ProtocolError
            header, body = decode_request(frames)
        except ProtocolError:
            log.warning("a peer of %s sent bytes that are no message of this protocol: ignored", self.endpoint)
            return
        if self._is_stuck(peer, header):
            return
        try:
            request = self._checked_request(header, body)
            if isinstance(request, ApiVersionsRequest):
                self._reply(peer, header, self._introduction(), None)
                return
            context = RequestContext(
                peer, header.client_id, header.sender_epoch, header.deadline_ms, between_brokers=True
            )
            if self._unanswered.get(peer, 0) >= MAX_UNANSWERED:
                raise RequestTimedOutError(f"{MAX_UNANSWERED} requests of this connection have no response yet")
            outcome = self._handler(request, context)
        except BrokerError as error:
            self._refuse(peer, header, error)
            return
        except MemoryError:
            raise  # the request may be half done: node.process.out_of_memory ends the process
        except Exception:
            log.exception("request %s of %s failed", header.api_key, header.client_id)
            self._refuse(peer, header, UnknownServerError("the broker failed; see its log for the reason"))
            return
        if outcome is None:
            self.times.answered(header.api_key, begun_ns)
            return
        if isinstance(outcome, Response):
            self._reply(peer, header, outcome, begun_ns)
            return
        self._unanswered[peer] = self._unanswered.get(peer, 0) + 1
        if isinstance(outcome, DeferredResponse):
            outcome.on_complete(partial(self._reply_later, peer, header, begun_ns))
            return
        future = asyncio.ensure_future(outcome)
        self._waiting[future] = None
        future.add_done_callback(partial(self._on_outcome, peer, header, begun_ns))

    def _reply_later(self, peer: bytes, header: RequestHeader, begun_ns: int, response: Response) -> None:
        self._count_answered(peer)
        self._reply(peer, header, response, begun_ns)

    def _on_outcome(self, peer: bytes, header: RequestHeader, begun_ns: int, done: asyncio.Future[Response]) -> None:
        self._waiting.pop(done, None)
        self._count_answered(peer)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._reply(peer, header, done.result(), begun_ns)
        elif isinstance(error, BrokerError):
            self._refuse(peer, header, error)
        elif isinstance(error, MemoryError):
            raise error
        else:
            log.error("request %s of %s failed", header.api_key, header.client_id, exc_info=error)
            self._refuse(peer, header, UnknownServerError("the broker failed; see its log for the reason"))

    def _count_answered(self, peer: bytes) -> None:
        left = self._unanswered[peer] - 1
        if left:
            self._unanswered[peer] = left
        else:
            del self._unanswered[peer]

    def _checked_request(self, header: RequestHeader, body: Body) -> Request:
        now_ms = self._clock.monotonic_ms()
        if stale := self._why_stale(header, now_ms):
            self._events.reject(header.api_key, str(stale))
            raise stale
        cls = _REQUESTS.get(header.api_key)
        if cls is None:
            raise UnsupportedVersionError(f"this broker does not know API {header.api_key}")
        low, high = cls.versions
        if not low <= header.api_version <= high:
            name = cls.api.name
            raise UnsupportedVersionError(
                f"{name}: this broker supports versions {low} to {high}, but the request has version"
                f" {header.api_version}"
            )
        try:
            request = body.read(cls, header.api_version)
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from None
        known = self._identity.broker_epoch
        self._events.processed(header.api_key, now_ms, header.deadline_ms, header.addressee_epoch, known)
        return request

    def _why_stale(self, header: RequestHeader, now_ms: int) -> BrokerError | None:
        """Return the error that refuses a stale request, or None.

        A request may have waited in a queue for a long time. Then it may be meant for an earlier registration of this
        broker, or its sender may have stopped waiting.
        """
        identity = self._identity
        if header.cluster_id and header.cluster_id != identity.cluster_id:
            return InconsistentClusterIdError(
                f"this broker is in cluster {identity.cluster_id}, but the request is for cluster {header.cluster_id}"
            )
        if header.addressee_epoch not in (-1, identity.broker_epoch):
            return StaleBrokerEpochError(
                f"broker {identity.broker_id} now has broker epoch {identity.broker_epoch}, but the request is for"
                f" {header.addressee_epoch}"
            )
        if 0 <= header.deadline_ms < now_ms:
            return RequestTimedOutError("the request came after its deadline")
        return None

    def _introduction(self) -> ApiVersionsResponse:
        identity = self._identity
        apis = tuple(ApiRange(cls.api, *cls.versions) for cls in _REQUESTS.values())
        return ApiVersionsResponse(
            0, identity.cluster_id, identity.broker_id, identity.broker_epoch, self._clock.monotonic_ms(), apis
        )

    def _reply(self, peer: bytes, header: RequestHeader, response: Response, begun_ns: int | None) -> None:
        """Send a response, and note how long its request took unless `begun_ns` is None.

        A request whose response cannot be encoded counts as refused only.
        """
        try:
            frames = encode(ResponseHeader(header.correlation_id, 0, None), response, header.api_version)
        except ProtocolError:
            log.exception("request %s of %s: the response cannot be encoded", header.api_key, header.client_id)
            self._refuse(peer, header, UnknownServerError("the broker failed; see its log for the reason"))
            return
        self._send(peer, frames)
        if begun_ns is not None:
            self.times.answered(header.api_key, begun_ns)

    def _refuse(self, peer: bytes, header: RequestHeader, error: BrokerError) -> None:
        self.times.refused_with(error.code)
        if isinstance(error, UnknownServerError):
            self._events.error(header.api_key, error.code)
        self._send(peer, encode(ResponseHeader(header.correlation_id, error.code, text_for_response(error))))

    def _send(self, peer: bytes, frames: list[Buffer]) -> None:
        if self._listening is not None:
            self._listening.send(peer, frames)

    def _is_stuck(self, peer: bytes, header: RequestHeader) -> bool:
        """Return whether the peer has too many unread responses, so that its requests are dropped; log that once."""
        listening = self._listening
        if listening is None:
            return False
        unread, size_bytes = listening.unread(peer)
        if unread < MAX_PARKED and size_bytes < MAX_UNREAD_BYTES:
            return False
        if peer not in self._logged_stuck:
            self._logged_stuck = {each for each in self._logged_stuck if any(listening.unread(each))} | {peer}
            log.warning(
                "%s, a peer of %s, does not read its responses: %d bytes and %d responses beyond its queue wait; "
                "its requests are dropped until it reads them",
                header.client_id, self.endpoint, size_bytes, unread,
            )  # fmt: skip
        return True


def is_for_brokers(request: Request) -> bool:
    """Return whether only a broker may send this request.

    A request with a replica id (0 or more) is one of them, because a client that fetched as a replica could advance
    high watermarks.
    """
    return request.between_brokers or getattr(request, "replica_id", -1) >= 0
