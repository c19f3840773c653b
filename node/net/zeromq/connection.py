"""Implement the client side of the protocol: send requests and match the answers, over a replaceable transport.

A `Connection` lives as long as one transport connection (`node.net.zeromq.dealer`) and never reconnects. When
the peer disconnects, all requests in flight fail at once with DisconnectedError. A caller that still needs an answer
opens another connection.

The first request is ApiVersions. Its answer says which broker the peer is, which versions it supports, and what its
monotonic clock shows. Every later request states its deadline on that clock. Therefore a peer that was suspended, or
whose wall clock jumped, still knows which requests have expired.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from node.net.zeromq.dealer import Dealer, Dial, Line
from tidelog.clock import Clock, SystemClock
from tidelog.errors import (
    DisconnectedError,
    OverloadedError,
    ProtocolError,
    TidelogError,
    TimeoutError,
    UnsupportedVersionError,
    error_for,
)
from tidelog.model import Buffer, Endpoint
from tidelog.protocol.addresses import resolve
from tidelog.protocol.codec import (
    MAX_BROKER_ENVELOPE_BYTES,
    MAX_CLIENT_ENVELOPE_BYTES,
    RequestHeader,
    decode_response,
    encode,
)
from tidelog.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, Request, Response

#: Maximum number of requests without an answer on one connection.
MAX_IN_FLIGHT = 1000

CLIENT_SOFTWARE = "tidelog/0.1.0"

R = TypeVar("R", bound=Response)


class Connection:
    """One connection to a broker, made by `open`, for the event loop that opened it; never reconnects.

    endpoint   the host name and the port that `open` was given
    peer       the answer of the handshake: broker id, cluster id, broker epoch, versions
    closed     True once the connection is closed, by this side or by the peer
    """

    peer: ApiVersionsResponse

    def __init__(self, endpoint: Endpoint, client_id: str, sender_epoch: int, cluster_id: str, clock: Clock) -> None:
        self.endpoint = endpoint
        self._client_id = client_id
        self._sender_epoch = sender_epoch
        self._max_envelope_bytes = MAX_CLIENT_ENVELOPE_BYTES if sender_epoch < 0 else MAX_BROKER_ENVELOPE_BYTES
        self._cluster_id = cluster_id
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._correlation = itertools.count(1)
        self._in_flight: dict[int, tuple[type[Response], int, asyncio.Future[Any], asyncio.TimerHandle]] = {}
        self._peer_clock_ms = 0
        self._closed = self._loop.create_future()
        self._line: Line

    @classmethod
    async def open(
        cls,
        endpoint: Endpoint,
        *,
        client_id: str,
        timeout_ms: int,
        sender_epoch: int = -1,
        cluster_id: str = "",
        dial: Dial = Dealer,
        clock: Clock | None = None,
    ) -> Connection:
        """Connect, shake hands, and return the connection.

        sender_epoch   the broker epoch of a sender that is a broker; −1 for clients
        cluster_id     a broker of another cluster rejects the connection; "": any cluster
        dial           opens the transport

        Raises DisconnectedError if the host is not known or no broker listens there, TimeoutError after `timeout_ms` in
        all, ProtocolError if the peer is no broker of this protocol, and the BrokerError with which a broker rejects
        the handshake.

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
            connection = cls(endpoint, client_id, sender_epoch, cluster_id, clock)
            connection._line = dial(Endpoint(address, endpoint.port), connection._on_frames, connection._on_ended)
            return await connection._shaken(deadline_ms)

        *others, last = addresses
        for tried, address in enumerate(others):
            now_ms = clock.monotonic_ms()
            share_ms = (deadline_ms - now_ms) // (len(addresses) - tried)
            try:
                return await at(address, now_ms + share_ms)
            except (DisconnectedError, TimeoutError):
                continue
        return await at(last, deadline_ms)

    async def _shaken(self, deadline_ms: int) -> Connection:
        """Shake hands and return this connection. If the handshake fails, close the connection and raise the error."""
        try:
            await self._shake_hands(max(1, deadline_ms - self._clock.monotonic_ms()))
        except BaseException:
            self.close()
            raise
        return self

    async def _shake_hands(self, timeout_ms: int) -> None:
        asked_at_ms = self._clock.monotonic_ms()
        self.peer = await self._request(
            ApiVersionsRequest(CLIENT_SOFTWARE), ApiVersionsResponse, timeout_ms, deadline_ms=-1
        )
        if error := error_for(self.peer.error_code):
            raise error
        # Counted from the request, so that a slow handshake cannot make the peer reject a request that is in time.
        self._peer_clock_ms = self.peer.monotonic_ms - asked_at_ms

    @property
    def broker_id(self) -> int:
        return self.peer.broker_id

    @property
    def closed(self) -> bool:
        return self._closed.done()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed, by this side or by the peer; return at once if it is."""
        await asyncio.shield(self._closed)

    def on_closed(self, callback: Callable[[], None]) -> None:
        """Call `callback` in a turn of the loop after the connection was closed, also if it is closed already."""
        self._closed.add_done_callback(lambda _: callback())

    async def call(self, request: Request, *, timeout_ms: int, addressee_epoch: int = -1) -> Response:
        """Send the request at once and return the answer, in which entries may have errors of their own.

        Raises the errors of `send`.
        """
        return await self.send(request, timeout_ms=timeout_ms, addressee_epoch=addressee_epoch)

    def send(self, request: Request, *, timeout_ms: int, addressee_epoch: int = -1) -> asyncio.Future[Response]:
        """Send the request at once, in the highest version that both sides support; return a future for the answer.

        `addressee_epoch` is the epoch of the broker that the request is meant for; −1: any. The call raises nothing.
        The future fails with the BrokerError that rejects the whole request, or with one of these errors:

        TimeoutError              no answer within `timeout_ms`; the broker may have carried out the request
        DisconnectedError         the connection is closed; the same holds for a request that was already sent
        OverloadedError           MAX_IN_FLIGHT requests wait for an answer, or the transport's queue is full
        UnsupportedVersionError   the broker does not support the API, or no version of it that this side supports
        ProtocolError             the request is too large to be sent, or the answer is malformed
        """
        try:
            version = self._version_of(request)
            deadline_ms = self._clock.monotonic_ms() + self._peer_clock_ms + timeout_ms
            return self._request(
                request,
                request.response,
                timeout_ms,
                version=version,
                deadline_ms=deadline_ms,
                addressee=addressee_epoch,
            )
        except TidelogError as error:
            failed: asyncio.Future[Response] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None:
        """Send a request that has no answer (a produce with acks=0).

        Raises the errors of `send` if it cannot be sent.
        """
        version = self._version_of(request)
        deadline_ms = self._clock.monotonic_ms() + self._peer_clock_ms + timeout_ms
        self._write(request, 0, version, deadline_ms, -1)

    def close(self, reason: str = "closed") -> None:
        """Close the connection and discard unsent messages. Idempotent.

        Requests in flight fail with DisconnectedError, whose message has the `reason`.
        """
        if self._closed.done():
            return
        self._line.close()
        if self._loop.is_closed():
            return  # no task can wait on a closed loop
        self._closed.set_result(None)
        in_flight, self._in_flight = self._in_flight, {}
        for _, _, future, timer in in_flight.values():
            timer.cancel()
            if not future.done():
                future.set_exception(DisconnectedError(f"connection to {self.endpoint}: {reason}"))
                future.exception()  # marks it as retrieved, because the caller may have stopped waiting

    def _version_of(self, request: Request) -> int:
        low, high = request.versions
        for offered in self.peer.apis:
            if offered.api_key == request.api:
                version = min(high, offered.max_version)
                if version < max(low, offered.min_version):
                    break
                return version
        else:
            raise UnsupportedVersionError(f"broker at {self.endpoint} does not know {request.api.name}")
        raise UnsupportedVersionError(
            f"{request.api.name}: this client supports versions {low} to {high}, "
            f"the broker at {self.endpoint} versions {offered.min_version} to {offered.max_version}"
        )

    def _request(
        self,
        request: Request,
        answer: type[R],
        timeout_ms: int,
        *,
        version: int = 0,
        deadline_ms: int,
        addressee: int = -1,
    ) -> asyncio.Future[R]:
        correlation = next(self._correlation)
        future: asyncio.Future[R] = self._loop.create_future()
        self._write(request, correlation, version, deadline_ms, addressee)
        timer = self._loop.call_later(timeout_ms / 1000, self._on_timeout, correlation, request, timeout_ms)
        self._in_flight[correlation] = (answer, version, future, timer)
        return future

    def _write(self, request: Request, correlation: int, version: int, deadline_ms: int, addressee: int) -> None:
        if self._closed.done():
            raise DisconnectedError(f"connection to {self.endpoint} is closed")
        if len(self._in_flight) >= MAX_IN_FLIGHT and not self._forget_cancelled():
            raise OverloadedError(f"{self.endpoint}: {MAX_IN_FLIGHT} requests are in flight, which is the maximum")
        header = RequestHeader(
            request.api,
            version,
            correlation,
            self._client_id,
            self._cluster_id,
            deadline_ms,
            self._sender_epoch,
            addressee,
        )
        frames = encode(header, request, version)
        if len(frames[0]) > self._max_envelope_bytes:
            raise ProtocolError(
                f"{request.api.name}: {len(frames[0])} bytes besides its records, but at most "
                f"{self._max_envelope_bytes} can be sent"
            )
        self._line.send(frames)

    def _forget_cancelled(self) -> bool:
        """Remove the requests in flight whose callers have stopped waiting; return whether there were any.

        Their answers may still arrive, and are ignored.
        """
        cancelled = [correlation for correlation, (_, _, future, _) in self._in_flight.items() if future.done()]
        for correlation in cancelled:
            self._in_flight.pop(correlation)[3].cancel()
        return bool(cancelled)

    def _on_frames(self, frames: Sequence[Buffer]) -> None:
        try:
            header, body = decode_response(frames)
        except ProtocolError as error:
            self.close(f"the broker sent a message that is not of this protocol ({error})")
            return
        waiting = self._in_flight.pop(header.correlation_id, None)
        if waiting is None:
            return  # the request has timed out or was removed
        answer, version, future, timer = waiting
        timer.cancel()
        if future.done():
            return
        try:
            if refused := error_for(header.error_code, header.error_message or ""):
                raise refused
            future.set_result(body.read(answer, version))
        except TidelogError as error:
            future.set_exception(error)

    def _on_timeout(self, correlation: int, request: Request, timeout_ms: int) -> None:
        waiting = self._in_flight.pop(correlation, None)
        if waiting is not None and not waiting[2].done():
            message = f"{request.api.name} to {self.endpoint}: no answer in {timeout_ms} ms"
            waiting[2].set_exception(TimeoutError(message))

    def _on_ended(self) -> None:
        self.close("the peer closed the connection or cannot be reached")
