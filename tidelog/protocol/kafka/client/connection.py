"""Send typed requests to one broker over Kafka's protocol, and match the responses.

A `Connection` lives as long as one transport connection (`tidelog.protocol.kafka.client.line`) and never reconnects.
When the peer disconnects, all requests in flight fail at once with DisconnectedError. A caller that still needs an
answer opens another connection.

The first request is ApiVersions, whose response says which versions of which APIs the broker supports. A broker of
Tidelog also lists extensions (`tidelog.protocol.kafka.extensions`), and then says which broker it is. Kafka has no
request for that.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.clock import Clock, SystemClock
from tidelog.errors import (
    DisconnectedError,
    InconsistentClusterIdError,
    OverloadedError,
    ProtocolError,
    TidelogError,
    TimeoutError,
    UnsupportedVersionError,
    error_for,
)
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.addresses import resolve
from tidelog.protocol.kafka import frames
from tidelog.protocol.kafka.client.connected_broker import ConnectedBroker
from tidelog.protocol.kafka.client.line import Dial, Line, TcpLine
from tidelog.protocol.kafka.client.translation.apis import translation_of
from tidelog.protocol.kafka.client.translation.translation import Translation, needs_tidelog
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.extensions import FIRST_EXTENSION, OWN_SOFTWARE
from tidelog.protocol.kafka.headers import decode_response_header, encode_request
from tidelog.protocol.kafka.messages import metadata as kafka
from tidelog.protocol.kafka.schema import Request as KafkaRequest
from tidelog.protocol.kafka.schema import Versions
from tidelog.protocol.messages import Request, Response
from tidelog.protocol.operator_messages import BrokerIdentityRequest, BrokerIdentityResponse

#: Maximum number of requests without an answer on one connection.
MAX_IN_FLIGHT = 1000

#: The version of the software by which this client introduces itself (KIP-511).
SOFTWARE_VERSION = "0.1.0"

#: The version of ApiVersions that is sent first, which every broker from Kafka 2.4 on supports.
_API_VERSIONS = 3
#: What a user can do if the peer speaks another protocol.
_HINTS = {
    frames.TLS: "; this client cannot use TLS, and needs a listener without it",
    frames.ZEROMQ: "; a broker's listener REPLICATION is for brokers, and clients connect to its listener KAFKA",
}


class _InFlight(NamedTuple):
    name: str
    read: Callable[[memoryview], Any]
    future: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class Connection:
    """One connection to a broker, made by `open`, for the event loop that opened it; never reconnects.

    endpoint              the host name and the port that `open` was given
    broker                the broker as the handshake shows it
    closed                True once the connection is closed, by this side or by the peer
    longest_throttle_ms   the longest time for which the broker has throttled this connection (KIP-219); 0: never
    """

    broker: ConnectedBroker

    def __init__(self, endpoint: Endpoint, client_id: str, clock: Clock) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._correlation = itertools.count(1)
        self._in_flight: dict[int, _InFlight] = {}
        self.longest_throttle_ms = 0
        self._throttled_until_ms = 0
        self._delayed: deque[list[Buffer]] = deque()  # while the broker throttles this client
        self._resumption: asyncio.TimerHandle | None = None  # sends the delayed requests
        self.closed = False
        self._line: Line

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str,
        timeout_ms: int,
        cluster_id: str = "",
        dial: Dial = TcpLine,
        clock: Clock | None = None,
    ) -> Connection:
        """Connect, shake hands, and return the connection.

        cluster_id     a broker of Tidelog in another cluster gets no further request; "": any cluster
        dial           opens the transport

        Raises DisconnectedError if the host is not known or no broker listens there, TimeoutError after `timeout_ms` in
        all, ProtocolError if the peer does not speak Kafka's protocol, and InconsistentClusterIdError.

        If the host has several addresses, each is tried until one answers. An address that drops all packets, as behind
        a firewall, uses only its share of the remaining time.
        """
        clock = clock or SystemClock()
        deadline_ms = clock.monotonic_ms() + timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                addresses = await resolve(endpoint.host)
        except builtins.TimeoutError:
            raise TimeoutError(f"{endpoint}: the look-up of the host name took more than {timeout_ms} ms") from None
        except OSError as error:
            raise DisconnectedError(f"{endpoint}: the host name is not known: {error.strerror}") from None

        async def at(address: str, deadline_ms: int) -> Connection:
            connection = cls(endpoint, client_id, clock)
            connection._line = dial(Endpoint(address, endpoint.port), connection._on_frame, connection._on_ended)
            return await connection._shaken(cluster_id, deadline_ms)

        *others, last = addresses
        for tried, address in enumerate(others):
            now_ms = clock.monotonic_ms()
            share_ms = (deadline_ms - now_ms) // (len(addresses) - tried)
            try:
                return await at(address, now_ms + share_ms)
            except (DisconnectedError, TimeoutError):
                continue
        return await at(last, deadline_ms)

    async def _shaken(self, cluster_id: str, deadline_ms: int) -> Connection:
        """Shake hands and return this connection. If the handshake fails, close the connection and raise the error."""
        try:
            self.broker = await self._shake_hands(cluster_id, deadline_ms)
        except BaseException:
            self.close()
            raise
        return self

    async def _shake_hands(self, cluster_id: str, deadline_ms: int) -> ConnectedBroker:
        broker = ConnectedBroker.of(await self._ask_versions(_API_VERSIONS, deadline_ms))
        if not broker.has_extensions:
            return broker
        self.broker = broker  # the request needs the versions
        identity = await self.send(BrokerIdentityRequest(), timeout_ms=self._left_ms(deadline_ms))
        assert isinstance(identity, BrokerIdentityResponse)
        if cluster_id and cluster_id != identity.cluster_id:
            raise InconsistentClusterIdError(
                f"{self.endpoint} is a broker of cluster {identity.cluster_id}, but the others are of {cluster_id}"
            )
        return broker._replace(cluster_id=identity.cluster_id, broker_id=identity.broker_id)

    async def _ask_versions(self, version: int, deadline_ms: int) -> kafka.ApiVersionsResponse:
        request = kafka.ApiVersionsRequest(client_software_name=OWN_SOFTWARE, client_software_version=SOFTWARE_VERSION)

        def read(frame: memoryview) -> kafka.ApiVersionsResponse:
            _, position = decode_response_header(frame, kafka.ApiVersionsRequest, version)
            body = frame[position:]
            # The response to a version that the broker does not know has the format of version 0.
            refused = body[:2] == UnsupportedVersionError.code.to_bytes(2, "big")
            return decode(kafka.ApiVersionsResponse, 0 if refused else version, body)

        answer: kafka.ApiVersionsResponse = await self._request(
            "ApiVersions", request, version, read, self._left_ms(deadline_ms)
        )
        if answer.error_code == UnsupportedVersionError.code and version:
            offered = ConnectedBroker.of(answer).apis.get(request.api, Versions(0, 0))
            return await self._ask_versions(min(version - 1, offered.last), deadline_ms)
        if error := error_for(answer.error_code):
            raise error
        return answer

    def _left_ms(self, deadline_ms: int) -> int:
        return max(1, deadline_ms - self._clock.monotonic_ms())

    @property
    def broker_id(self) -> int:
        """Return the broker's id; −1 if the broker is not one of Tidelog."""
        return self.broker.broker_id

    @property
    def cluster_kind(self) -> str:
        """Return what kind of cluster the broker belongs to, in words for a user."""
        return self.broker.cluster_kind

    async def call(self, request: Request, *, timeout_ms: int) -> Response:
        """Send the request at once and return the answer, in which entries may have errors of their own.

        Raises the errors of `send`.
        """
        return await self.send(request, timeout_ms=timeout_ms)

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        """Send the request at once, in the highest version that both sides support; return a future for the answer.

        The call raises nothing. The future fails with the BrokerError that rejects the whole request, or with one of
        these errors:

        TimeoutError              no answer within `timeout_ms`; the broker may have carried out the request
        DisconnectedError         the connection is closed; the same holds for a request that was already sent
        OverloadedError           MAX_IN_FLIGHT requests wait for an answer, or too many bytes wait to be sent
        UnsupportedVersionError   the broker does not support the API, or no version of it that this side supports
        ProtocolError             the request cannot be encoded, or the answer is malformed
        """
        try:
            translation, version = self._chosen(request)
            written = translation.write(request, version)

            def read(frame: memoryview) -> Response:
                _, position = decode_response_header(frame, type(written), version)
                response = decode(written.response, version, frame[position:])
                self._obey(getattr(response, "throttle_time_ms", 0))
                answer: Response = translation.read(response, request, version)
                return answer

            return self._request(request.api.name, written, version, read, timeout_ms)
        except (TidelogError, ValueError) as error:  # ValueError: a topic id that is no UUID
            failed: asyncio.Future[Response] = self._loop.create_future()
            failed.set_exception(error if isinstance(error, TidelogError) else ProtocolError(str(error)))
            return failed

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None:
        """Send a request that has no answer (a produce with acks=0).

        Raises the errors of `send` if it cannot be sent.
        """
        translation, version = self._chosen(request)
        self._write(translation.write(request, version), version, 0)

    def close(self, reason: str = "closed") -> None:
        """Close the connection and discard unsent messages. Idempotent.

        Requests in flight fail with DisconnectedError, whose message has the `reason`.
        """
        self._end(DisconnectedError(f"connection to {self.endpoint}: {reason}"))

    def _on_ended(self, reason: str, other_protocol: str = "") -> None:
        if other_protocol:
            self._end(ProtocolError(f"{self.endpoint}: {reason}{_HINTS.get(other_protocol, '')}"))
        else:
            self.close(reason)

    def _end(self, error: TidelogError) -> None:
        if self.closed:
            return
        self.closed = True
        self._line.close()
        if self._loop.is_closed():
            return  # no task can wait on a closed loop
        self._delayed.clear()
        if self._resumption is not None:
            self._resumption.cancel()
        in_flight, self._in_flight = self._in_flight, {}
        for waiting in in_flight.values():
            waiting.timer.cancel()
            if not waiting.future.done():
                waiting.future.set_exception(error)
                waiting.future.exception()  # marks it as retrieved, because the caller may have stopped waiting

    def _chosen(self, request: Request) -> tuple[Translation, int]:
        """Return how the request is written, and the highest version that both sides support."""
        translation = translation_of(request, self.broker.apis)
        offered = self.broker.apis.get(translation.request.api)
        if offered is None:
            if translation.request.api >= FIRST_EXTENSION and not self.broker.has_extensions:
                raise needs_tidelog(request, str(self.endpoint))
            raise UnsupportedVersionError(f"broker at {self.endpoint} does not know {request.api.name}")
        low, high = translation.versions(request)
        version = min(high, offered.last)
        if version < max(low, offered.first):
            raise UnsupportedVersionError(
                f"{request.api.name}: this client supports versions {low} to {high}, "
                f"the broker at {self.endpoint} versions {offered.first} to {offered.last}"
            )
        return translation, version

    def _request(
        self, name: str, request: KafkaRequest, version: int, read: Callable[[memoryview], Any], timeout_ms: int
    ) -> asyncio.Future[Any]:
        correlation = next(self._correlation)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._write(request, version, correlation)
        timer = self._loop.call_later(timeout_ms / 1000, self._on_timeout, correlation, timeout_ms)
        self._in_flight[correlation] = _InFlight(name, read, future, timer)
        return future

    def _write(self, request: KafkaRequest, version: int, correlation: int) -> None:
        if self.closed:
            raise DisconnectedError(f"connection to {self.endpoint} is closed")
        if len(self._in_flight) >= MAX_IN_FLIGHT and not self._forget_cancelled():
            raise OverloadedError(f"{self.endpoint}: {MAX_IN_FLIGHT} requests are in flight, which is the maximum")
        frame = encode_request(request, version, correlation, self._client_id)
        pause_ms = self._throttled_until_ms - self._clock.monotonic_ms()
        if not self._delayed and pause_ms <= 0:
            self._line.send(frame)
            return
        if len(self._delayed) >= MAX_IN_FLIGHT:
            raise OverloadedError(f"{self.endpoint}: {MAX_IN_FLIGHT} requests wait, because the broker throttles them")
        if not self._delayed:
            self._resumption = self._loop.call_later(pause_ms / 1000, self._send_delayed)
        self._delayed.append(frame)

    def _obey(self, throttle_time_ms: int) -> None:
        """Send no request for so long, because a quota of this client is exhausted (KIP-219)."""
        if throttle_time_ms > 0:
            self._throttled_until_ms = self._clock.monotonic_ms() + throttle_time_ms
            self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_time_ms)

    def _send_delayed(self) -> None:
        pause_ms = self._throttled_until_ms - self._clock.monotonic_ms()
        if pause_ms > 0:
            self._resumption = self._loop.call_later(pause_ms / 1000, self._send_delayed)
            return
        delayed, self._delayed = self._delayed, deque()
        try:
            while delayed and not self.closed:
                self._line.send(delayed[0])
                delayed.popleft()
        except OverloadedError as error:
            self.close(f"{error}, after the broker has throttled this client")

    def _forget_cancelled(self) -> bool:
        """Remove the requests in flight whose callers have stopped waiting; return whether there were any.

        Their answers may still arrive, and are ignored.
        """
        cancelled = [correlation for correlation, each in self._in_flight.items() if each.future.done()]
        for correlation in cancelled:
            self._in_flight.pop(correlation).timer.cancel()
        return bool(cancelled)

    def _on_frame(self, frame: memoryview) -> None:
        if len(frame) < 4:
            self.close(f"the broker sent a frame of {len(frame)} bytes")
            return
        waiting = self._in_flight.pop(int.from_bytes(frame[:4], "big"), None)
        if waiting is None:
            return  # the request has timed out or was removed
        waiting.timer.cancel()
        try:
            answer = waiting.read(frame)
        except Exception as error:  # after a defect the caller must not wait for its timeout
            if not waiting.future.done():
                waiting.future.set_exception(error)
        else:
            if not waiting.future.done():
                waiting.future.set_result(answer)

    def _on_timeout(self, correlation: int, timeout_ms: int) -> None:
        waiting = self._in_flight.pop(correlation, None)
        if waiting is not None and not waiting.future.done():
            waiting.future.set_exception(
                TimeoutError(f"{waiting.name} to {self.endpoint}: no answer in {timeout_ms} ms")
            )
