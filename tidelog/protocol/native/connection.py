"""The asking side of the protocol: requests go out, their answers come back, over a line that others move.

A `Connection` lives as long as one line (`tidelog.protocol.native.dealer`). It never reconnects; when the peer goes
away everything in flight fails at once with DisconnectedError, and whoever still wants an answer opens another.

The first exchange is ApiVersions. It tells who the peer is, which versions it speaks, and what its monotonic
clock shows: every later request states its deadline on that clock, so that a peer that slept, or whose wall
clock jumped, still knows which requests nobody waits for any more.
"""

from __future__ import annotations

import asyncio
import builtins
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

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
from tidelog.protocol.native.dealer import Dealer, Dial, Line

#: Requests without an answer on one connection.
MAX_IN_FLIGHT = 1000

CLIENT_SOFTWARE = "tidelog/0.1.0"

R = TypeVar("R", bound=Response)


class Connection:
    """A live connection; make one with `open`. Belongs to the event loop that opened it.

    peer        the handshake's answer: broker id, cluster id, broker epoch, versions
    closed      True once the connection is gone, for whatever reason
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
        """Connect and shake hands. DisconnectedError (nobody there), TimeoutError, UnsupportedVersionError.

        A host with several addresses is tried at each until somebody answers; one that swallows everything, as behind
        a firewall, takes no more than its share of the time that is left.
        """
        clock = clock or SystemClock()
        deadline_ms = clock.monotonic_ms() + timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                addresses = await resolve(endpoint.host)
        except builtins.TimeoutError:
            raise TimeoutError(f"{endpoint}: its name was not found in {timeout_ms} ms") from None
        except OSError as error:
            raise DisconnectedError(f"{endpoint}: its name is not known: {error.strerror}") from None

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
        """This connection after the handshake, or closed."""
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
        # Counted from the asking, so that a slow handshake never makes a peer refuse what is in time.
        self._peer_clock_ms = self.peer.monotonic_ms - asked_at_ms

    @property
    def closed(self) -> bool:
        return self._closed.done()

    async def wait_closed(self) -> None:
        """Returns when the connection is gone."""
        await asyncio.shield(self._closed)

    def on_closed(self, callback: Callable[[], None]) -> None:
        """Call `callback` (on the loop) when the connection is gone."""
        self._closed.add_done_callback(lambda _: callback())

    async def call(self, request: Request, *, timeout_ms: int, addressee_epoch: int = -1) -> Response:
        """The answer. TimeoutError, DisconnectedError, or the BrokerError that refused the whole request."""
        return await self.send(request, timeout_ms=timeout_ms, addressee_epoch=addressee_epoch)

    def send(self, request: Request, *, timeout_ms: int, addressee_epoch: int = -1) -> asyncio.Future[Response]:
        """Like `call`, but sent when this returns; the future has the answer or the error."""
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
        """Send what has no answer (a produce with acks=0)."""
        version = self._version_of(request)
        deadline_ms = self._clock.monotonic_ms() + self._peer_clock_ms + timeout_ms
        self._write(request, 0, version, deadline_ms, -1)

    def close(self, reason: str = "closed") -> None:
        """Give up the socket; what is in flight fails with DisconnectedError. Idempotent."""
        if self._closed.done():
            return
        self._line.close()
        if self._loop.is_closed():
            return  # nothing waits on such a loop any more
        self._closed.set_result(None)
        in_flight, self._in_flight = self._in_flight, {}
        for _, _, future, timer in in_flight.values():
            timer.cancel()
            if not future.done():
                future.set_exception(DisconnectedError(f"connection to {self.endpoint}: {reason}"))
                future.exception()  # a request that nobody waits for any more is nobody's mistake

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
            f"{request.api.name}: this client speaks versions {low} to {high}, "
            f"the broker at {self.endpoint} {offered.min_version} to {offered.max_version}"
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
            raise OverloadedError(f"{MAX_IN_FLIGHT} requests to {self.endpoint} are without an answer")
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
                f"a {request.api.name} of {len(frames[0])} bytes besides its records cannot be sent: "
                f"{self._max_envelope_bytes} are the most"
            )
        self._line.send(frames)

    def _forget_cancelled(self) -> bool:
        """Whether that made room: nobody waits for the answers any more, but they may still come."""
        cancelled = [correlation for correlation, (_, _, future, _) in self._in_flight.items() if future.done()]
        for correlation in cancelled:
            self._in_flight.pop(correlation)[3].cancel()
        return bool(cancelled)

    def _on_frames(self, frames: Sequence[Buffer]) -> None:
        try:
            header, body = decode_response(frames)
        except ProtocolError as error:
            self.close(f"the broker sent no message of this protocol ({error})")
            return
        waiting = self._in_flight.pop(header.correlation_id, None)
        if waiting is None:
            return  # nobody waits for it any more
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
        self.close("nobody answers there any more")
