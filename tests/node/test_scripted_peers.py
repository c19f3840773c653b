"""A server and a connection against scripted peers, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import msgpack
import pytest
import zmq
import zmq.asyncio

from node.net.identity import Identity
from node.net.server import MAX_PARKED, MAX_UNREAD_BYTES, RequestContext, Server
from node.net.zeromq.connection import Connection
from node.net.zeromq.router import Router
from node.net.zeromq.sockets import open_socket
from tidelog.clock import SystemClock
from tidelog.errors import DisconnectedError, TimeoutError, UnsupportedVersionError
from tidelog.model import Endpoint
from tidelog.protocol.codec import RequestHeader, ResponseHeader, decode_request, decode_response, encode
from tidelog.protocol.messages import (
    ApiKey,
    ApiRange,
    ApiVersionsResponse,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    Request,
    Response,
)

ANSWER = MetadataResponse("c", 1, (), ())
ANSWER_BYTES = 64 << 10
LARGE_BYTES = 8 << 20


class Broker:
    """A ROUTER that does the handshake and then follows the test. `apis` are the API versions that it claims."""

    def __init__(self, socket: zmq.asyncio.Socket, apis: tuple[ApiRange, ...]) -> None:
        self._socket = socket
        self._apis = apis
        self.endpoint = Endpoint("127.0.0.1", socket.bind_to_random_port("tcp://127.0.0.1"))

    async def next_request(self) -> tuple[bytes, RequestHeader]:
        """Return the next request after the handshakes."""
        while True:
            peer, *frames = await asyncio.wait_for(self._socket.recv_multipart(), 10)
            header, _ = decode_request([memoryview(frame) for frame in frames])
            if header.api_key != ApiKey.API_VERSIONS:
                return peer, header
            clock_ms = SystemClock().monotonic_ms()
            await self.answer(peer, header, ApiVersionsResponse(0, "c", 7, 42, clock_ms, self._apis))

    async def answer(self, peer: bytes, header: RequestHeader, response: Response) -> None:
        await self._socket.send_multipart([peer, *encode(ResponseHeader(header.correlation_id, 0, None), response)])


@asynccontextmanager
async def scripted_broker(*apis: ApiRange) -> AsyncIterator[Broker]:
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as router:
        router.setsockopt(zmq.LINGER, 0)
        yield Broker(router, apis)


METADATA = ApiRange(ApiKey.METADATA, 0, 0)


async def test_late_answer_does_not_count_for_the_repeated_request() -> None:
    async with scripted_broker(METADATA) as broker:
        script = asyncio.create_task(broker.next_request())
        connection = await Connection.open(broker.endpoint, client_id="t", timeout_ms=5000)
        with pytest.raises(TimeoutError):
            await connection.call(MetadataRequest(("first",)), timeout_ms=20)
        peer, first = await script
        again = connection.send(MetadataRequest(("again",)), timeout_ms=5000)
        peer, second = await broker.next_request()
        assert first.correlation_id != second.correlation_id
        await broker.answer(peer, first, MetadataResponse("late", 1, (), ()))
        await broker.answer(peer, second, ANSWER)
        assert await again == ANSWER
        connection.close()


async def test_client_refuses_a_broker_of_other_versions_and_sends_nothing() -> None:
    async with scripted_broker(ApiRange(ApiKey.METADATA, 4, 9)) as broker:
        script = asyncio.create_task(broker.next_request())
        connection = await Connection.open(broker.endpoint, client_id="t", timeout_ms=5000)
        spoken = rf"METADATA: this client supports versions 0 to 2, the broker at {broker.endpoint} versions 4 to 9"
        with pytest.raises(UnsupportedVersionError, match=spoken):
            await connection.call(MetadataRequest(), timeout_ms=5000)
        with pytest.raises(UnsupportedVersionError, match="does not know FETCH"):
            await connection.call(FetchRequest(-1, 0, 1, 1, ()), timeout_ms=5000)
        with pytest.raises(UnsupportedVersionError):
            connection.send_no_reply(MetadataRequest(), timeout_ms=5000)
        assert not script.done()
        script.cancel()
        connection.close()


async def test_every_request_carries_a_deadline_and_its_addressee() -> None:
    async with scripted_broker(METADATA) as broker:
        script = asyncio.create_task(broker.next_request())
        connection = await Connection.open(
            broker.endpoint, client_id="t", timeout_ms=5000, sender_epoch=11, cluster_id="c"
        )
        asked_ms = SystemClock().monotonic_ms()
        connection.send(MetadataRequest(), timeout_ms=20_000, addressee_epoch=42).add_done_callback(
            lambda done: done.exception()
        )
        _, header = await script
        assert (header.cluster_id, header.client_id, header.sender_epoch, header.addressee_epoch) == ("c", "t", 11, 42)
        assert asked_ms + 20_000 <= header.deadline_ms <= asked_ms + 26_000
        connection.close()


# --- peers without a sign of life ------------------------------------------------------------------

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


#: A connection must end within two tenths of a second after this.
PING = b"\x04PING" + struct.pack(">H", 2)


def zmtp_command(body: bytes) -> bytes:
    return bytes([4, len(body)]) + body


def handshake_then_stay_silent(peer: socket.socket, kind: bytes, *commands: bytes) -> bytes:
    """Send ZMTP's handshake and these commands, then nothing more, not even a pong. Return all received bytes."""
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
    peer.settimeout(20)
    peer.sendall(GREETING + b"".join(map(zmtp_command, (ready, *commands))))
    received = b""
    with suppress(ConnectionError):
        while data := peer.recv(4096):
            received += data
    return received


@pytest.fixture
def _quick_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node.net.zeromq.sockets.HEARTBEAT_INTERVAL_MS", 50)
    monkeypatch.setattr("node.net.zeromq.sockets.HEARTBEAT_TIMEOUT_MS", 200)


@pytest.mark.usefixtures("_quick_heartbeats")
async def test_connection_ends_if_the_broker_answers_no_ping() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def broker() -> bytes:
            peer, _ = listener.accept()
            with peer:
                return handshake_then_stay_silent(peer, b"ROUTER")

        script = asyncio.create_task(asyncio.to_thread(broker))
        endpoint = Endpoint("127.0.0.1", listener.getsockname()[1])
        async with asyncio.timeout(30):
            with pytest.raises(DisconnectedError):
                await Connection.open(endpoint, client_id="t", timeout_ms=600_000)
            assert zmtp_command(PING) in await script


@pytest.mark.usefixtures("_quick_heartbeats")
async def test_broker_disconnects_a_client_whose_pings_stop() -> None:
    async with serving(lambda request, context: ANSWER, most_queued=1000) as server:

        def client() -> None:
            with socket.create_connection(("127.0.0.1", server.endpoint.port)) as peer:
                handshake_then_stay_silent(peer, b"DEALER", PING)

        async with asyncio.timeout(30):
            await asyncio.to_thread(client)


# --- the server's side -------------------------------------------------------------------------------


@asynccontextmanager
async def serving(handle: Any, most_queued: int) -> AsyncIterator[Server]:
    narrow = open_socket(zmq.ROUTER)
    narrow.setsockopt(zmq.SNDHWM, most_queued)
    narrow.setsockopt(zmq.SNDBUF, ANSWER_BYTES)
    server = Server(
        Endpoint("127.0.0.1", 0),
        Identity("c", 7),
        handle,
        SystemClock(),
        listen=lambda *arguments: Router(*arguments, socket=narrow),
    )
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def raw_peer(server: Server) -> Iterator[zmq.Socket[bytes]]:
    """Open a raw peer that reads nothing until the test says so."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as raw:
        raw.setsockopt(zmq.LINGER, 0)
        raw.setsockopt(zmq.RCVHWM, 1)
        raw.setsockopt(zmq.RCVBUF, ANSWER_BYTES)
        raw.setsockopt(zmq.SNDHWM, 0)
        raw.connect(f"tcp://{server.endpoint}")
        yield raw


def ask(raw: zmq.Socket[bytes], correlation_id: int, *, deadline_ms: int = -1) -> None:
    """Send a request. The client id is the correlation id, so that a handler knows which request it serves."""
    raw.send_multipart(
        [bytes(frame) for frame in encode(
            RequestHeader(ApiKey.METADATA, 0, correlation_id, f"raw {correlation_id}", "", deadline_ms, -1, -1),
            MetadataRequest(),
            0,
        )]
    )  # fmt: skip


async def answers(raw: zmq.Socket[bytes], expected: Callable[[], int]) -> list[int]:
    """Return the correlation ids of the expected answers, and of those that arrive soon after them."""
    found: list[int] = []
    async with asyncio.timeout(30):
        while await asyncio.to_thread(raw.poll, 300) or len(found) < expected():
            if raw.poll(0):
                frames = [memoryview(frame) for frame in raw.recv_multipart()]
                found.append(decode_response(frames)[0].correlation_id)
    return found


async def test_answers_to_a_stalled_peer_wait_in_order_and_delay_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    served: list[int] = []

    def handle(request: Request, context: RequestContext) -> Response:
        if context.client_id.startswith("raw"):
            served.append(int(context.client_id.removeprefix("raw ")))
        return FetchResponse((FetchPartitionResponse("t", 0, 0, 5, 5, 0, bytes(ANSWER_BYTES)),))

    async with serving(handle, most_queued=10) as server:
        other = await Connection.open(server.endpoint, client_id="other", timeout_ms=5000)
        fetch = FetchRequest(-1, 0, 1, 1, ())
        with raw_peer(server) as raw, caplog.at_level(logging.WARNING):
            asked = 3 * MAX_PARKED
            for number in range(1, asked + 1):
                ask(raw, number)
                if number % 50 == 0:
                    await other.call(fetch, timeout_ms=5000)

            def warnings() -> int:
                return len([record for record in caplog.records if "does not read" in record.message])

            async with asyncio.timeout(30):  # until the requests beyond the bound have arrived, too
                while not warnings():
                    await other.call(fetch, timeout_ms=5000)
            assert warnings() == 1
            assert MAX_PARKED < len(served) < asked, "requests beyond the bound are not handled"
            assert await answers(raw, lambda: len(served)) == served, "no handled request is dropped"
            ask(raw, asked + 1)
            assert await answers(raw, lambda: 1) == [asked + 1]
        other.close()


@pytest.mark.parametrize("most_queued", [1, 1000], ids=["most wait in the broker", "all wait in the socket"])
async def test_answers_to_a_stalled_peer_are_bounded_in_bytes(
    caplog: pytest.LogCaptureFixture, most_queued: int
) -> None:
    served: list[int] = []
    large = FetchResponse((FetchPartitionResponse("t", 0, 0, 5, 5, 0, bytes(LARGE_BYTES)),))

    def handle(request: Request, context: RequestContext) -> Response:
        if not context.client_id.startswith("raw"):
            return ANSWER
        served.append(int(context.client_id.removeprefix("raw ")))
        return large

    async with serving(handle, most_queued=most_queued) as server:
        other = await Connection.open(server.endpoint, client_id="other", timeout_ms=5000)
        with raw_peer(server) as raw, caplog.at_level(logging.WARNING):
            bound = -(-MAX_UNREAD_BYTES // LARGE_BYTES)
            for number in range(1, 3 * bound + 1):
                ask(raw, number)
            async with asyncio.timeout(10):
                while "does not read" not in caplog.text:
                    await other.call(MetadataRequest(), timeout_ms=5000)
            assert bound <= len(served) <= bound + 4, "some answers are in transit"
            assert await answers(raw, lambda: len(served)) == served
            ask(raw, 1000)
            assert await answers(raw, lambda: 1) == [1000]
        other.close()


async def test_peer_that_leaves_without_reading_leaks_nothing() -> None:
    def handle(request: Request, context: RequestContext) -> Response:
        return FetchResponse((FetchPartitionResponse("t", 0, 0, 5, 5, 0, bytes(ANSWER_BYTES)),))

    async with serving(handle, most_queued=10) as server:
        with raw_peer(server) as raw:
            for number in range(1, MAX_PARKED):
                ask(raw, number)
            assert isinstance(server._listening, Router)
            while not server._listening._parked:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        async with asyncio.timeout(10):
            while server._listening._parked:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_request_past_its_deadline_is_not_handled() -> None:
    seen: list[Request] = []

    def handle(request: Request, context: RequestContext) -> Response:
        seen.append(request)
        return ANSWER

    async with serving(handle, most_queued=1000) as server:
        with raw_peer(server) as raw:
            ask(raw, 1, deadline_ms=SystemClock().monotonic_ms() - 1)
            ask(raw, 2, deadline_ms=SystemClock().monotonic_ms() + 60_000)
            assert await answers(raw, lambda: 2) == [1, 2]
    assert len(seen) == 1


async def test_broker_refuses_an_unknown_version_and_names_both() -> None:
    async with serving(lambda request, context: ANSWER, most_queued=1000) as server:
        with raw_peer(server) as raw:
            header = RequestHeader(ApiKey.METADATA, 9, 1, "raw", "", -1, -1, -1)
            raw.send(msgpack.packb([[0, *header], [None]]))
            assert await asyncio.to_thread(raw.poll, 5000)
            refused = decode_response([memoryview(frame) for frame in raw.recv_multipart()])[0]
    assert refused.error_code == UnsupportedVersionError.code
    assert refused.error_message == "METADATA: this broker supports versions 0 to 2, but the request has version 9"
