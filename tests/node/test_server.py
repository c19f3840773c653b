"""The listener for brokers, and a connection to it, over real loopback sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from weakref import ref

import msgpack
import pytest
import zmq

from node.events.history_file import EventRecorder
from node.events.recorder import NO_EVENTS, Events
from node.net.identity import Identity
from node.net.server import MAX_UNANSWERED, RequestContext, Server
from node.net.zeromq.connection import Connection
from node.runtime.deferred_response import DeferredResponse
from tests.reference_cycles import until_freed, without_collections
from tidelog.clock import SystemClock
from tidelog.errors import (
    BrokerError,
    DisconnectedError,
    InconsistentClusterIdError,
    ProtocolError,
    RequestTimedOutError,
    StaleBrokerEpochError,
    TimeoutError,
    UnknownServerError,
    UnsupportedVersionError,
)
from tidelog.history.broker_events import BrokerEvent, Error, Processed, Reject
from tidelog.model import Endpoint
from tidelog.protocol.codec import RequestHeader, decode_response
from tidelog.protocol.messages import (
    ApiKey,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProducePartition,
    ProduceRequest,
    Request,
    Response,
)

EMPTY = MetadataResponse("c", 1, (), ())
LATE = "the request came after its deadline"
Handle = Callable[[Request, RequestContext], Response | DeferredResponse | Awaitable[Response] | None]


@asynccontextmanager
async def serving(handle: Handle, *, events: Events = NO_EVENTS) -> AsyncIterator[Server]:
    identity, clock = Identity("c", 7, broker_epoch=42), SystemClock()
    server = Server(Endpoint("127.0.0.1", 0), identity, handle, clock, events=events)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@asynccontextmanager
async def connected(server: Server, **options: object) -> AsyncIterator[Connection]:
    connection = await Connection.open(server.endpoint, client_id="test", timeout_ms=5000, **options)  # type: ignore[arg-type]
    try:
        yield connection
    finally:
        connection.close()


def answering(response: Response) -> Handle:
    return lambda request, context: response


async def test_handshake_names_the_cluster_and_the_broker() -> None:
    async with serving(answering(EMPTY)) as server, connected(server) as connection:
        assert (connection.peer.broker_id, connection.peer.cluster_id, connection.peer.broker_epoch) == (7, "c", 42)


async def test_closed_connection_is_freed() -> None:
    async with serving(answering(EMPTY)) as server:
        with without_collections():
            connection = await Connection.open(server.endpoint, client_id="test", timeout_ms=5000)
            assert await connection.call(MetadataRequest(()), timeout_ms=5000) == EMPTY
            connection.close()
            parts = ref(connection), ref(connection._line)
            del connection
            await until_freed(*parts)


async def test_record_bytes_travel_both_ways_unchanged() -> None:
    seen: list[Request] = []

    def handle(request: Request, context: RequestContext) -> Response:
        seen.append(request)
        return FetchResponse((FetchPartitionResponse("t", 0, 0, 5, 5, 0, b"y" * 100_000),))

    async with serving(handle) as server, connected(server) as connection:
        produce = ProduceRequest(1, 1000, (ProducePartition("t", 0, b"x" * 70_000), ProducePartition("t", 1, b"z")))
        fetched = await connection.call(FetchRequest(-1, 0, 1, 1, (FetchPartition("t", 0, 0, 0, 1),)), timeout_ms=5000)
        connection.send_no_reply(produce, timeout_ms=5000)
        await connection.call(FetchRequest(-1, 0, 1, 1, ()), timeout_ms=5000)  # comes after, on the same connection
    assert isinstance(fetched, FetchResponse)
    assert bytes(fetched.partitions[0].records or b"") == b"y" * 100_000
    assert seen[1] == produce


async def test_oversized_request_fails_at_once_and_keeps_the_connection() -> None:
    async with serving(answering(EMPTY)) as server, connected(server) as connection:
        with pytest.raises(ProtocolError, match="cannot be sent"):
            await connection.call(MetadataRequest(("t" * 40_000,)), timeout_ms=60_000)
        assert await connection.call(MetadataRequest(("t",)), timeout_ms=5000) == EMPTY


@pytest.mark.parametrize(("sender_epoch", "mebibytes"), [(-1, 1), (5, 16)])
async def test_request_with_an_oversized_envelope_is_not_sent(sender_epoch: int, mebibytes: int) -> None:
    async with serving(answering(EMPTY)) as server, connected(server, sender_epoch=sender_epoch) as connection:
        with pytest.raises(ProtocolError, match=r"METADATA: .* can be sent"):
            await connection.call(MetadataRequest(("t" * 1000,) * 1100 * mebibytes), timeout_ms=60_000)
        assert await connection.call(MetadataRequest(("t" * 1000,) * 1000 * mebibytes), timeout_ms=20_000) == EMPTY


async def test_oversized_response_becomes_an_unknown_server_error() -> None:
    async def later() -> Response:
        return MetadataResponse("c" * 40_000, 1, (), ())

    def handle(request: Request, context: RequestContext) -> Response | Awaitable[Response]:
        if request == MetadataRequest(None):
            raise UnknownServerError("x" * 40_000)
        return later() if request == MetadataRequest(("later",)) else MetadataResponse("c" * 40_000, 1, (), ())

    async with serving(handle) as server, connected(server) as connection:
        for topic in ("t", "later"):
            with pytest.raises(UnknownServerError, match="see its log for the reason"):
                await connection.call(MetadataRequest((topic,)), timeout_ms=5000)
        with pytest.raises(UnknownServerError, match=r"x{1000}"):
            await connection.call(MetadataRequest(None), timeout_ms=5000)
        assert server.times.refused == {UnknownServerError.code: 3}
        assert ApiKey.METADATA not in server.times.by_api, "a refused request has no duration"


async def test_deadline_is_sent_on_the_clock_of_the_receiver() -> None:
    class Elsewhere(SystemClock):
        def monotonic_ms(self) -> int:
            return super().monotonic_ms() + 10**9

    deadlines: list[int] = []

    def handle(request: Request, context: RequestContext) -> Response:
        deadlines.append(context.deadline_ms)
        return EMPTY

    clock = Elsewhere()
    server = Server(Endpoint("127.0.0.1", 0), Identity("c", 7), handle, clock)
    server.start()
    try:
        async with connected(server) as connection:
            before = clock.monotonic_ms()
            await connection.call(MetadataRequest(), timeout_ms=20_000)
            connection.send_no_reply(ProduceRequest(0, 1000, ()), timeout_ms=20_000)
            await connection.call(MetadataRequest(), timeout_ms=20_000)  # comes after, on the same connection
            handshake_ms = 5000  # the estimate errs by no more, on the side of acting
            for deadline in deadlines:
                assert before + 20_000 <= deadline <= clock.monotonic_ms() + 20_000 + handshake_ms
            assert len(deadlines) == 3
    finally:
        server.stop()


async def test_responses_may_be_deferred_and_out_of_order() -> None:
    held: list[asyncio.Future[Response]] = []

    def handle(request: Request, context: RequestContext) -> Awaitable[Response]:
        held.append(asyncio.get_running_loop().create_future())
        if len(held) == 2:
            held[1].set_result(replace(EMPTY, controller_id=2))
            held[0].set_result(replace(EMPTY, controller_id=1))
        return held[-1]

    async with serving(handle) as server, connected(server) as connection:
        first = connection.send(MetadataRequest(), timeout_ms=5000)
        second = connection.send(MetadataRequest(), timeout_ms=5000)
        answers = await asyncio.gather(first, second)
    assert [a.controller_id for a in answers if isinstance(a, MetadataResponse)] == [1, 2]


async def test_requests_in_flight_fail_at_once_when_the_broker_stops() -> None:
    def hold(request: Request, context: RequestContext) -> Awaitable[Response]:
        return asyncio.get_running_loop().create_future()

    async with serving(hold) as server, connected(server) as connection:
        waiting = connection.send(MetadataRequest(), timeout_ms=60_000)
        server.stop()
        with pytest.raises(DisconnectedError):
            await asyncio.wait_for(waiting, 10)
        assert connection.closed


async def test_refused_port_is_reported_at_once() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))  # bound but not listening: refused
        with pytest.raises(DisconnectedError):
            await asyncio.wait_for(
                Connection.open(Endpoint("127.0.0.1", holder.getsockname()[1]), client_id="t", timeout_ms=60_000), 10
            )


async def test_each_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def several(host: str) -> tuple[str, ...]:
        return (
            "127.0.0.2",
            "127.0.0.1",
            "127.0.0.3",
        )  # a host may have several addresses, as localhost has ::1 and 127.0.0.1

    monkeypatch.setattr("node.net.zeromq.connection.resolve", several)
    async with serving(lambda request, context: EMPTY) as server:
        there = Endpoint("somewhere", server.endpoint.port)
        connection = await Connection.open(there, client_id="t", timeout_ms=10_000)
        assert (connection.peer.broker_id, connection.endpoint) == (7, there)
        connection.close()


async def test_unknown_host_name_is_a_disconnect(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(host: str) -> tuple[str, ...]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("node.net.zeromq.connection.resolve", unknown)
    with pytest.raises(DisconnectedError, match="nowhere:1: the host name is not known: Name or service"):
        await Connection.open(Endpoint("nowhere", 1), client_id="t", timeout_ms=60_000)


async def test_peer_that_never_answers_costs_only_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, pytest.raises((TimeoutError, DisconnectedError)):
        await Connection.open(Endpoint("127.0.0.1", mute.getsockname()[1]), client_id="t", timeout_ms=50)


async def test_timed_out_call_raises_and_keeps_the_connection() -> None:
    hold = True

    def handle(request: Request, context: RequestContext) -> Response | Awaitable[Response]:
        return asyncio.get_running_loop().create_future() if hold else EMPTY

    async with serving(handle) as server, connected(server) as connection:
        with pytest.raises(TimeoutError, match="METADATA"):
            await connection.call(MetadataRequest(), timeout_ms=20)
        hold = False
        assert await connection.call(MetadataRequest(), timeout_ms=5000) == EMPTY


async def test_unanswered_requests_beyond_a_thousand_are_refused() -> None:
    held: list[DeferredResponse] = []
    all_there = asyncio.Event()

    def handle(request: Request, context: RequestContext) -> DeferredResponse:
        held.append(DeferredResponse())
        if len(held) == MAX_UNANSWERED + 2:
            all_there.set()
        return held[-1]

    async with serving(handle) as server, connected(server) as connection, connected(server) as other:
        given_up = [connection.send(MetadataRequest(), timeout_ms=60_000) for _ in range(MAX_UNANSWERED)]
        for call in given_up:
            call.cancel()
        with pytest.raises(RequestTimedOutError, match="1000 requests"):
            await connection.call(MetadataRequest(), timeout_ms=5000)
        assert len(held) == MAX_UNANSWERED
        others = other.send(MetadataRequest(), timeout_ms=5000)
        held[0].complete(EMPTY)
        again = connection.send(MetadataRequest(), timeout_ms=5000)
        await asyncio.wait_for(all_there.wait(), 5)
        for later in held:
            later.complete(EMPTY)
        assert await others == await again == EMPTY


def test_no_request_waits_longer_than_ten_minutes() -> None:
    patient = RequestContext(b"", "test", -1, deadline_ms=-1, between_brokers=False)
    assert patient.due_ms(5, 2**31 - 1) == 5 + 600_000
    assert replace(patient, deadline_ms=400).due_ms(5, 2**31 - 1) == 400


@pytest.mark.parametrize(
    ("options", "call", "error"),
    [
        ({}, {"addressee_epoch": 41}, StaleBrokerEpochError),
        ({"cluster_id": "other"}, None, InconsistentClusterIdError),
    ],
)
async def test_requests_meant_for_another_broker_are_refused(
    options: dict[str, object], call: dict[str, int] | None, error: type[BrokerError]
) -> None:
    async with serving(answering(EMPTY)) as server:
        with pytest.raises(error):
            async with connected(server, **options) as connection:
                await connection.call(MetadataRequest(), timeout_ms=5000, **(call or {}))


async def test_failed_handler_answers_unknown_server_error() -> None:
    def handle(request: Request, context: RequestContext) -> Response:
        raise RuntimeError("a bug")

    async with serving(handle) as server, connected(server) as connection:
        with pytest.raises(UnknownServerError):
            await connection.call(MetadataRequest(), timeout_ms=5000)


GOOD = RequestHeader(ApiKey.METADATA, 0, 5, "raw", "", -1, -1, -1)


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"GET / HTTP/1.1\r\n\r\n"],
        [b"\xc1" * 100],
        [msgpack.packb([0] * 9)],
        [msgpack.packb([[0] * 9, [None]])],
        [msgpack.packb([[1, *GOOD], [None]])],
        [msgpack.packb([[0, *GOOD], [None], []])],
        [msgpack.packb([[0, *GOOD._replace(correlation_id=1 << 63)], [None]])],
        [b"\xdd\xff\xff\xff\xff"],  # an array that claims 2³² − 1 elements
        [b"\x91" * 100_000],  # nested without end
    ],
)
async def test_malformed_header_is_ignored_and_the_server_goes_on(frames: list[bytes]) -> None:
    async with serving(answering(EMPTY)) as server:
        with zmq.Context.instance().socket(zmq.DEALER) as raw:
            raw.setsockopt(zmq.LINGER, 0)
            raw.connect(f"tcp://{server.endpoint}")
            raw.send_multipart(frames)
            async with connected(server) as connection:
                assert await connection.call(MetadataRequest(), timeout_ms=5000) == EMPTY


async def ask_raw(server: Server, header: RequestHeader, body: list[Any]) -> list[bytes]:
    with zmq.Context.instance().socket(zmq.DEALER) as raw:
        raw.setsockopt(zmq.LINGER, 0)
        raw.connect(f"tcp://{server.endpoint}")
        raw.send_multipart([msgpack.packb([[0, *header], *body[:1]]), *body[1:]])
        return await asyncio.to_thread(raw.recv_multipart)


@pytest.mark.parametrize(
    ("header", "body", "code"),
    [
        (GOOD._replace(api_key=999), [[None]], UnsupportedVersionError.code),
        (GOOD._replace(api_version=9), [[None]], UnsupportedVersionError.code),
        (GOOD, [], 42),
        (GOOD, [[]], 42),
        (GOOD, [[None, None]], 42),
        (GOOD, [[[1]]], 42),
        (GOOD, [[["t"]], b"a frame without a reference to it"], 42),
        (GOOD._replace(api_key=0), [[1, 1, [["t", 0, 1]]], b"x"], 42),
        (GOOD._replace(api_key=0), [[1, 1, [["t", 0, 0]]]], 42),
        (GOOD._replace(api_key=0), [[1 << 63, 1, []]], 42),
        (GOOD._replace(deadline_ms=0), [[None]], 7),
    ],
)
async def test_malformed_body_gets_its_error_code(header: RequestHeader, body: list[Any], code: int) -> None:
    async with serving(answering(EMPTY)) as server:
        frames = await ask_raw(server, header, body)
    assert decode_response(frames)[0][:2] == (5, code)
    assert len(frames) == 1


@pytest.mark.parametrize(
    ("header", "recorded"),
    [
        (GOOD, [Processed(5, "METADATA", 0, -1, 42)]),
        (GOOD._replace(addressee_epoch=42), [Processed(5, "METADATA", 0, 42, 42)]),
        (
            GOOD._replace(addressee_epoch=41),
            [Reject(5, "METADATA", "broker 7 now has broker epoch 42, but the request is for 41")],
        ),
        (
            GOOD._replace(cluster_id="another"),
            [Reject(5, "METADATA", "this broker is in cluster c, but the request is for cluster another")],
        ),
        (GOOD._replace(deadline_ms=0), [Reject(5, "METADATA", LATE)]),
        (GOOD._replace(api_key=999, deadline_ms=0), [Reject(5, "999", LATE)]),
    ],
)
async def test_refused_and_processed_requests_are_recorded_as_events(
    header: RequestHeader, recorded: list[BrokerEvent]
) -> None:
    kept: list[BrokerEvent] = []
    async with serving(answering(EMPTY), events=EventRecorder(kept.append, lambda: 5)) as server:
        await ask_raw(server, header, [[None]])
    assert kept == recorded


async def test_unexpected_failure_is_recorded_with_its_request() -> None:
    def fail(request: Request, context: RequestContext) -> Response:
        raise ZeroDivisionError

    kept: list[BrokerEvent] = []
    async with serving(fail, events=EventRecorder(kept.append, lambda: 5)) as server:
        await ask_raw(server, GOOD, [[None]])
    assert kept[1:] == [Error(5, "METADATA", UnknownServerError.code)]
