"""One endpoint of a broker: it judges what has come over a line that others move, and hands it to those who act.

A server checks what can be checked before anybody acts (is it a message at all, a version that we speak, our cluster,
meant for this registration of ours, still awaited, allowed at this door), hands it to the handler, and sends the
answer when there is one. A broker has two: one for clients, and one for its peers and the controller, which alone
takes requests that change who leads what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from node.events.recorder import NO_EVENTS, Events
from node.identity import Identity
from node.net.router import Listen, Listening, Router
from node.runtime.deferred_response import DeferredResponse
from node.runtime.latency_histogram import RequestTimes
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    ClusterAuthorizationFailedError,
    InconsistentClusterIdError,
    InvalidRequestError,
    ProtocolError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    UnknownServerError,
    UnsupportedVersionError,
)
from tidelog.frozen_dataclass import frozen
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.admin_messages import ADMIN_REQUESTS
from tidelog.protocol.codec import (
    MAX_BROKER_ENVELOPE_BYTES,
    MAX_CLIENT_ENVELOPE_BYTES,
    Body,
    RequestHeader,
    ResponseHeader,
    decode_request,
    encode,
)
from tidelog.protocol.control_messages import CONTROL_REQUESTS
from tidelog.protocol.group_messages import GROUP_REQUESTS, JoinGroupRequest
from tidelog.protocol.list_offsets_v0_messages import SEGMENT_REQUESTS
from tidelog.protocol.listeners import CLIENTS
from tidelog.protocol.messages import (
    CLIENT_REQUESTS,
    ApiRange,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Request,
    Response,
)
from tidelog.protocol.native.sockets import host_of_sender
from tidelog.protocol.operator_messages import OPERATOR_REQUESTS
from tidelog.protocol.partition_messages import PARTITION_REQUESTS

log = logging.getLogger(__name__)

#: Requests of one connection that wait for their answers; more are refused.
MAX_UNANSWERED = 1000
#: No request waits longer, whatever it asks for and however long its sender would.
MAX_WAIT_MS = 600_000
#: Answers that wait for one peer which does not read them, and their bytes: two of the largest. Beyond either, its
#: requests are not acted upon (they time out); what was acted upon before is answered all the same, so that no more
#: than MAX_UNANSWERED come on top.
MAX_PARKED = 256
MAX_UNREAD_BYTES = 104_857_600
_MOST_ERROR_TEXT = 1000

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
    """When what a request wants to wait for is over, however long it wants to: `wait_ms` is any number."""
    return now_ms + min(max(0, wait_ms), MAX_WAIT_MS)


@frozen
class RequestContext:
    """What a handler may know of the asking side.

    `peer` names the connection, `listener` the door that it came through; `deadline_ms` is monotonic. `client_host` is
    the address that who joins a group comes from, empty for other requests.
    """

    peer: bytes
    client_id: str
    sender_epoch: int
    deadline_ms: int
    between_brokers: bool
    listener: str = CLIENTS
    client_host: str = ""

    def due_ms(self, now_ms: int, wait_ms: int) -> int:
        """When a request that wants to wait so long is answered: not after its sender has stopped waiting."""
        due_ms = due_in(now_ms, wait_ms)
        return due_ms if self.deadline_ms < 0 else min(due_ms, self.deadline_ms)


#: Answers at once, later, or (acks=0) never.
Handler = Callable[[Request, RequestContext], Response | DeferredResponse | Awaitable[Response] | None]


class Server:
    """One bound endpoint. `endpoint` has the real port after `start` (0 lets the system choose).

    settle   called after all requests that had arrived were handled: what they made answerable is answered then
    times    how long its answers took
    listen   what moves the messages
    """

    def __init__(
        self,
        endpoint: Endpoint,
        identity: Identity,
        handler: Handler,
        clock: Clock,
        *,
        between_brokers: bool,
        listener: str = CLIENTS,
        settle: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = lambda: 0,
        listen: Listen = Router,
        events: Events = NO_EVENTS,
    ) -> None:
        self.endpoint = endpoint
        self._identity = identity
        self._handler = handler
        self._settle = settle
        self.times = RequestTimes(now_ns)
        self._clock = clock
        self._events = events
        self._between_brokers = between_brokers
        self._max_envelope_bytes = MAX_BROKER_ENVELOPE_BYTES if between_brokers else MAX_CLIENT_ENVELOPE_BYTES
        self._listener = listener
        self._listen = listen
        self._listening: Listening | None = None
        self._told_stuck: set[bytes] = set()
        self._waiting: dict[asyncio.Future[Any], None] = {}  # in their order
        self._unanswered: dict[bytes, int] = {}

    def start(self) -> None:
        """Take requests. OSError where the port is taken names it."""
        self._listening = self._listen(self.endpoint, self._on_request, self._settle)
        self.endpoint = self._listening.endpoint

    def stop(self) -> None:
        """Take no more; what is not answered by now never will be."""
        listening, self._listening = self._listening, None
        if listening is None:
            return
        listening.close()
        for future in list(self._waiting):
            future.cancel()

    def _on_request(self, peer: bytes, frames: list[memoryview]) -> None:
        begun_ns = self.times.now_ns()
        try:
            if frames and len(frames[0]) > self._max_envelope_bytes:
                raise ProtocolError
            header, body = decode_request(frames)
        except ProtocolError:
            log.warning("a peer of %s sent no message of this protocol; ignored", self.endpoint)
            return
        if self._is_stuck(peer, header):
            return
        try:
            request = self._checked_request(header, body)
            if isinstance(request, ApiVersionsRequest):
                self._reply(peer, header, self._introduction())
                return
            # Asked for where it is written down, and not for each request.
            host = host_of_sender(frames[0]) if isinstance(request, JoinGroupRequest) else ""
            who = (peer, header.client_id, header.sender_epoch, header.deadline_ms)
            context = RequestContext(*who, self._between_brokers, self._listener, host)
            if self._unanswered.get(peer, 0) >= MAX_UNANSWERED:
                raise RequestTimedOutError(f"{MAX_UNANSWERED} requests of this connection are without an answer")
            outcome = self._handler(request, context)
        except BrokerError as error:
            self._refuse(peer, header, error)
            return
        except MemoryError:
            raise  # what it was about may be half done: see node.runtime.out_of_memory
        except Exception:
            log.exception("request %s of %s failed", header.api_key, header.client_id)
            self._refuse(peer, header, UnknownServerError("the broker failed; its log says why"))
            return
        if outcome is None:
            self.times.answered(header.api_key, begun_ns)
            return
        if isinstance(outcome, Response):
            self._reply(peer, header, outcome)
            self.times.answered(header.api_key, begun_ns)
            return
        self._unanswered[peer] = self._unanswered.get(peer, 0) + 1
        if isinstance(outcome, DeferredResponse):
            outcome.on_complete(partial(self._reply_later, peer, header, begun_ns))
            return
        future = asyncio.ensure_future(outcome)
        self._waiting[future] = None
        future.add_done_callback(partial(self._on_outcome, peer, header, begun_ns))

    def _reply_later(self, peer: bytes, header: RequestHeader, begun_ns: int, response: Response) -> None:
        self._note_answer(peer)
        self._reply(peer, header, response)
        self.times.answered(header.api_key, begun_ns)

    def _on_outcome(self, peer: bytes, header: RequestHeader, begun_ns: int, done: asyncio.Future[Response]) -> None:
        self._waiting.pop(done, None)
        self._note_answer(peer)
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self._reply(peer, header, done.result())
            self.times.answered(header.api_key, begun_ns)
        elif isinstance(error, BrokerError):
            self._refuse(peer, header, error)
        elif isinstance(error, MemoryError):
            raise error
        else:
            log.error("request %s of %s failed", header.api_key, header.client_id, exc_info=error)
            self._refuse(peer, header, UnknownServerError("the broker failed; its log says why"))

    def _note_answer(self, peer: bytes) -> None:
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
            raise UnsupportedVersionError(f"this broker knows no API {header.api_key}")
        low, high = cls.versions
        if not low <= header.api_version <= high:
            name = cls.api.name
            raise UnsupportedVersionError(
                f"{name}: this broker speaks versions {low} to {high}, the request is of version {header.api_version}"
            )
        try:
            request = body.read(cls, header.api_version)
        except ProtocolError as error:
            raise InvalidRequestError(str(error)) from None
        if not self._between_brokers and is_for_brokers(request):
            raise ClusterAuthorizationFailedError(f"{cls.api.name} of this kind is for brokers")
        known = self._identity.broker_epoch
        self._events.processed(header.api_key, now_ms, header.deadline_ms, header.addressee_epoch, known)
        return request

    def _why_stale(self, header: RequestHeader, now_ms: int) -> BrokerError | None:
        """What has waited in a queue may be of an earlier world, or nobody waits for its answer any more."""
        identity = self._identity
        if header.cluster_id and header.cluster_id != identity.cluster_id:
            return InconsistentClusterIdError(f"this is cluster {identity.cluster_id}, not {header.cluster_id}")
        if header.addressee_epoch not in (-1, identity.broker_epoch):
            return StaleBrokerEpochError(f"broker {identity.broker_id} has epoch {identity.broker_epoch} now")
        if 0 <= header.deadline_ms < now_ms:
            return RequestTimedOutError("the request came after its deadline")
        return None

    def _introduction(self) -> ApiVersionsResponse:
        identity = self._identity
        apis = tuple(
            ApiRange(cls.api, *cls.versions)
            for cls in _REQUESTS.values()
            if self._between_brokers or not cls.between_brokers
        )
        return ApiVersionsResponse(
            0, identity.cluster_id, identity.broker_id, identity.broker_epoch, self._clock.monotonic_ms(), apis
        )

    def _reply(self, peer: bytes, header: RequestHeader, response: Response) -> None:
        try:
            frames = encode(ResponseHeader(header.correlation_id, 0, None), response, header.api_version)
        except ProtocolError:
            log.exception("request %s of %s has an answer that no peer would take", header.api_key, header.client_id)
            self._refuse(peer, header, UnknownServerError("the broker failed; its log says why"))
        else:
            self._send(peer, frames)

    def _refuse(self, peer: bytes, header: RequestHeader, error: BrokerError) -> None:
        self.times.refused_with(error.code)
        if isinstance(error, UnknownServerError):
            self._events.error(header.api_key, error.code)
        self._send(peer, encode(ResponseHeader(header.correlation_id, error.code, str(error)[:_MOST_ERROR_TEXT])))

    def _send(self, peer: bytes, frames: list[Buffer]) -> None:
        if self._listening is not None:
            self._listening.send(peer, frames)

    def _is_stuck(self, peer: bytes, header: RequestHeader) -> bool:
        """Whether so much waits for the peer that it gets no more; said once."""
        listening = self._listening
        if listening is None:
            return False
        unread, size_bytes = listening.unread(peer)
        if unread < MAX_PARKED and size_bytes < MAX_UNREAD_BYTES:
            return False
        if peer not in self._told_stuck:
            self._told_stuck = {told for told in self._told_stuck if any(listening.unread(told))} | {peer}
            log.warning(
                "%s, a peer of %s, does not read its answers: %d bytes of them wait, and %d answers beyond its queue; "
                "what it asks meanwhile is not acted upon",
                header.client_id, self.endpoint, size_bytes, unread,
            )  # fmt: skip
        return True


def is_for_brokers(request: Request) -> bool:
    """Only a peer may ask this. Nor may a client speak as a replica: it could move a high watermark."""
    return request.between_brokers or getattr(request, "replica_id", -1) >= 0
