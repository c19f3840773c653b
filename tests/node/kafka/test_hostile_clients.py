"""Clients of the Kafka listener on real sockets that send nonsense, too much or nothing, and the others beside them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from re import fullmatch
from struct import pack, unpack
from typing import Any

import pytest

from node.kafka.calls import Later, Outcome
from node.kafka.listener import MAX_PLAIN_BYTES, ListenerLimits
from node.runtime.deferred_response import DeferredResponse
from tests.both_loops import on_both_loops
from tests.node.kafka.live_listener import (
    TIMEOUT_S,
    beat,
    encoded,
    framed,
    heartbeat,
    live,
    produce,
)
from tidelog.errors import InvalidRequestError
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.group_membership import HeartbeatRequest, HeartbeatResponse
from tidelog.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidelog.protocol.kafka.messages.records import ProduceResponse

#: Requests that are sent at once. Their responses have 40 MB.
REQUESTS = 4_000
#: What a ZeroMQ peer, such as another broker, sends first by ZMTP 3.
GREETING = b"\xff" + bytes(7) + b"\x01\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def header(api: int, version: int) -> bytes:
    return pack(">hhih", api, version, 7, -1)


BAD = {
    "empty": (framed(b""), "cannot be read"),
    "short header": (framed(b"\0\x12\0\0"), "cannot be read"),
    "client id beyond the end": (framed(pack(">hhih", 12, 0, 1, 500)), "client id of 500 bytes"),
    "negative client id": (framed(pack(">hhih", 12, 0, 1, -2)), "client id of -2 bytes"),
    "truncated": (framed(header(12, 0) + b"\0\x09g"), "cannot be read"),
    "bytes after the end": (framed(heartbeat(1)[4:] + b"x"), "cannot be read"),
    "unknown API": (framed(header(999, 0)), "API 999 version 0"),
    "negative API": (framed(header(-1, 0)), "API -1 version 0"),
    "unknown version": (
        framed(header(12, 99)),
        "sent Heartbeat version 99, but this listener understands versions 0 to 4:",
    ),
    "version that is not offered": (
        framed(header(0, 10) + b"\0"),
        "sent Produce version 10, but this listener understands versions 0 to 9:",
    ),
    "negative size": (pack(">i", -5), "claims a frame of -5 bytes"),
    "too large": (pack(">i", 2**31 - 1), "claims a frame of 2147483647 bytes"),
    "plain but large": (framed(header(3, 0) + bytes(MAX_PLAIN_BYTES)), "sent Metadata version 0 of"),
    "array of 2³¹ − 1": (framed(header(3, 1) + pack(">i", 2**31 - 1)), "cannot be read"),
    "negative array": (framed(header(3, 0) + pack(">i", -7)), "cannot be read"),
    "endless varint": (framed(header(3, 9) + b"\0" + b"\xff" * 100), "cannot be read"),
    "HTTP": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), "speaks TLS"),
    "ZeroMQ": (GREETING, "speaks ZeroMQ"),
    "half a ZeroMQ greeting": (GREETING[:10], "speaks ZeroMQ"),
    "ZeroMQ with a handshake": (GREETING + READY, "speaks ZeroMQ"),
    "ZeroMQ with a message": (GREETING + READY + b"\x00\x03xyz", "speaks ZeroMQ"),
    "ZeroMQ with a frame of 2⁶³ bytes": (GREETING + READY + b"\x02" + b"\x7f" + b"\xff" * 7 + b"x", "speaks ZeroMQ"),
    "ZeroMQ with many bytes": (GREETING + READY + b"\x01\xff" + b"x" * 200_000, "speaks ZeroMQ"),
    "ZeroMQ with many empty frames": (GREETING + READY + b"\x01\0" * 100_000, "speaks ZeroMQ"),
    "ZMTP 2": (GREETING[:10] + b"\x01\x05", "speaks ZeroMQ"),
    "noise": (bytes(range(200, 256)) * 1000, "claims a frame of"),
}


@pytest.mark.parametrize("name", BAD)
@on_both_loops
async def test_bad_bytes_close_their_connection_with_one_log_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    data, reason = BAD[name]
    async with live() as broker:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                client = await broker.client()
                client.send(data)
                assert await client.rest() == b""
            await broker.check()
        (record,) = caplog.records
        assert reason in record.getMessage()
        assert "127.0.0.1" in record.getMessage()
        await broker.until(lambda: broker.listener.memory.held_bytes == 0)


@on_both_loops
async def test_noise_of_an_address_hides_no_other_protocol(caplog: pytest.LogCaptureFixture) -> None:
    kinds = ("noise", "HTTP", "TLS", "ZeroMQ")
    async with live() as broker:
        with caplog.at_level(logging.WARNING):
            for name in kinds * 2:
                client = await broker.client()
                client.send(BAD[name][0])
                assert await client.rest() == b""
        assert len(caplog.records) == len(kinds)
        for name, record in zip(kinds, caplog.records, strict=True):
            assert BAD[name][1] in record.getMessage()


@on_both_loops
async def test_refused_requests_have_no_duration() -> None:
    def refuse() -> Outcome:
        raise InvalidRequestError("at once")

    async def refuse_later() -> HeartbeatResponse:
        raise InvalidRequestError("later")

    async with live() as broker:
        client, times = await broker.client(), broker.listener.times
        for number, outcome in enumerate((refuse, refuse_later)):
            broker.handlers.heartbeat = outcome
            client.send(heartbeat(number))
            assert await client.response() == pack(">ih", number, InvalidRequestError.code)
        assert times.refused == {InvalidRequestError.code: 2}
        assert not times.by_api
        broker.handlers.heartbeat = beat
        client.send(heartbeat(2))
        assert await client.response() == pack(">ih", 2, 0)
        assert sum(times.by_api[HeartbeatRequest.api].counts) == 1


@on_both_loops
async def test_api_versions_in_an_unknown_version_is_answered_in_version_0() -> None:
    async with live() as broker:
        client = await broker.client()
        for version, rest in ((99, b""), (99, b"\xff\xff"), (5, b"\0"), (-1, b"")):
            client.send(framed(header(18, version) + rest))
            answer = await client.response()
            assert answer[:6] == pack(">ih", 7, 35)
            assert unpack(">i", answer[6:10]) == (4,), "the versions of all APIs"
        client.send(heartbeat(8))
        assert await client.response() == pack(">ih", 8, 0)


@on_both_loops
async def test_requests_byte_by_byte_are_answered() -> None:
    async with live() as broker:
        client = await broker.client()
        for byte in heartbeat(1):
            client.send(bytes((byte,)))
            await client.writer.drain()
            await asyncio.sleep(0)
        assert await client.response() == pack(">ih", 1, 0)


@on_both_loops
async def test_pipelined_requests_of_a_client_that_does_not_read_are_bounded() -> None:
    async with live() as broker:
        client = await broker.client()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        asked = MetadataRequest(topics=(MetadataRequestTopic(name="x" * 1_000),))
        client.send(b"".join(encoded(asked, 2, number) for number in range(REQUESTS)))
        handled, before = broker.listener.times.by_api[MetadataRequest.api], -1
        while before != sum(handled.counts):
            before = sum(handled.counts)
            for _ in range(50):
                await broker.check()
        assert broker.listener.memory.held_bytes < 2 << 20, "the other requests wait in the sockets"
        assert before < REQUESTS / 2, "the other responses would wait in the broker's memory"
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(REQUESTS):
            assert (await client.response())[:4] == pack(">i", number)


@on_both_loops
async def test_requests_behind_a_slow_one_are_bounded() -> None:
    async with live() as broker:
        begins = asyncio.Event()

        async def begin() -> HeartbeatResponse:
            await begins.wait()
            return beat()

        broker.handlers.heartbeat = begin
        client = await broker.client()
        slow = HeartbeatRequest(group_id="g" * 30_000, generation_id=1, member_id="m")
        client.send(b"".join(encoded(slow, 0, number) for number in range(200)))  # 6 MB
        other = await broker.client()
        before = 0
        while before != broker.listener.memory.held_bytes or not before:
            before = broker.listener.memory.held_bytes
            for number in range(50):
                other.send(encoded(MetadataRequest(topics=()), 2, number))
                await other.response()
        assert before < 2 << 20, "the other requests wait in the sockets"
        begins.set()
        for number in range(200):
            assert await client.response() == pack(">ih", number, 0)


@on_both_loops
async def test_claims_of_large_requests_take_little_memory() -> None:
    async with live() as broker:
        for _ in range(50):
            client = await broker.client()
            client.send(pack(">i", 100_000_000) + b"x" * 100)
        await broker.until(lambda: broker.listener.memory.held_bytes >= 50 * 104)
        assert broker.listener.memory.held_bytes <= 50 * 2 * 104


@on_both_loops
async def test_idle_connections_hold_no_memory_and_are_closed_in_time() -> None:
    async with live() as broker:
        clients = [await broker.client() for _ in range(200)]
        busy = clients.pop()
        busy.send(heartbeat(1))
        await busy.response()
        assert broker.listener.connections == 200
        assert broker.listener.memory.held_bytes == 0
        broker.clock.time_ms += 600_000
        busy.send(heartbeat(2))
        await busy.response()
        broker.clock.time_ms += 1
        broker.listener.close_idle()
        for client in clients:
            assert await client.rest() == b""
        busy.send(heartbeat(3))
        assert await busy.response() == pack(">ih", 3, 0)


@pytest.mark.parametrize("limits", [ListenerLimits(max_connections=3), ListenerLimits(max_connections_per_ip=3)])
@on_both_loops
async def test_connection_beyond_the_limit_is_closed(limits: ListenerLimits, caplog: pytest.LogCaptureFixture) -> None:
    async with live(limits) as broker:
        clients = [await broker.client() for _ in range(3)]
        for number, client in enumerate(clients):
            client.send(heartbeat(number))
            await client.response()
        with caplog.at_level(logging.WARNING):
            assert await (await broker.client()).rest() == b""
        setting = "max_connections" if limits.max_connections == 3 else "max_connections_per_ip"
        assert " is one connection too many: 3 " in caplog.text
        assert f" are open, and {setting}=3; raise the setting if " in caplog.text
        broker.listener.replace_limits(limits._replace(max_connections=4, max_connections_per_ip=4))
        another = await broker.client()
        another.send(heartbeat(4))
        await another.response()
        another.writer.close()
        clients[0].writer.close()
        clients[1].send(heartbeat(5))
        await clients[1].response()


@on_both_loops
async def test_connection_without_a_descriptor_for_it_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with live(ListenerLimits(max_connections_of_process=2)) as broker:
        clients = [await broker.client() for _ in range(2)]
        for number, client in enumerate(clients):
            client.send(heartbeat(number))
            await client.response()
        with caplog.at_level(logging.WARNING):
            assert await (await broker.client()).rest() == b""
        assert " is one connection too many: 2 are open, " in caplog.text
        assert " raise the limit of open files (ulimit -n) " in caplog.text
        clients[0].send(heartbeat(5))
        await clients[0].response()


async def _fails() -> HeartbeatResponse:
    raise RuntimeError("a bug")


def _fails_at_once() -> Outcome:
    raise RuntimeError("a bug")


@pytest.mark.parametrize("outcome", [_fails, _fails_at_once])
@on_both_loops
async def test_handler_that_fails_answers_with_an_error(
    outcome: Callable[[], Outcome], caplog: pytest.LogCaptureFixture
) -> None:
    async with live() as broker:
        client = await broker.client()
        broker.handlers.heartbeat = outcome
        client.send(heartbeat(1))
        assert await client.response() == pack(">ih", 1, -1)
    (record,) = caplog.records
    assert fullmatch(
        r"KAFKA: Heartbeat version 0 from 127\.0\.0\.1:\d+ \(client id 'test'\) failed", record.getMessage()
    )
    assert record.exc_info is not None


@on_both_loops
async def test_handler_that_is_cancelled_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def cancelled() -> HeartbeatResponse:
        raise asyncio.CancelledError

    async with live() as broker:
        client = await broker.client()
        broker.handlers.heartbeat = cancelled
        client.send(heartbeat(1))
        assert await client.rest() == b""
        assert " cannot get a response, because the broker did not complete its request: " in caplog.text
        broker.handlers.heartbeat = beat
        await broker.check()


@on_both_loops
async def test_response_that_cannot_be_converted_closes_its_own_connection(caplog: pytest.LogCaptureFixture) -> None:
    def convert(response: Any) -> ProduceResponse:
        raise KeyError("a bug")

    async with live() as broker:
        client = await broker.client()
        deferred = DeferredResponse()
        broker.handlers.produce = lambda: Later(deferred, convert)
        client.send(produce(1) + heartbeat(2))
        await broker.check()
        deferred.complete(native.ProduceResponse(()))
        assert await client.rest() == b""
    failure, closing = caplog.records
    assert failure.getMessage().startswith("KAFKA: cannot send the response to Produce version ")
    assert " cannot get a response to Produce version " in closing.getMessage()
    assert closing.getMessage().endswith(", because the broker failed (see the error above): the connection is closed")


@on_both_loops
async def test_failed_produce_without_response_closes_the_connection() -> None:
    def refuse() -> Outcome:
        raise InvalidRequestError("no")

    async with live() as broker:
        client = await broker.client()
        broker.handlers.produce = refuse
        client.send(produce(0) + heartbeat(2))
        assert await client.rest() == b""
        client = await broker.client()
        client.send(produce(1, 5))
        assert (await client.response())[:4] == pack(">i", 5)


@on_both_loops
async def test_request_ends_when_its_connection_is_lost() -> None:
    async with live() as broker:
        client = await broker.client()
        go, ended = asyncio.Event(), asyncio.Event()

        async def slow() -> HeartbeatResponse:
            await go.wait()
            ended.set()
            return beat()

        broker.handlers.heartbeat = slow
        client.send(heartbeat(1))
        await reached(lambda: bool(broker.listener.memory.held_bytes))
        broker.handlers.heartbeat = beat
        client.writer.transport.abort()
        await broker.until(lambda: broker.listener.memory.held_bytes == 0)
        go.set()
        async with asyncio.timeout(TIMEOUT_S):
            await ended.wait()


async def reached(is_reached: Callable[[], bool]) -> None:
    """Return when the condition holds. The loop that the test shares with the listener runs meanwhile."""
    async with asyncio.timeout(TIMEOUT_S):
        while not is_reached():  # noqa: ASYNC110 - the listener has no event for the test
            await asyncio.sleep(0)


@on_both_loops
async def test_stop_sends_what_is_ready_and_ends_waiting_requests() -> None:
    async with live() as broker:
        ready, waiting, later = [await broker.client() for _ in range(3)]
        never = asyncio.Event()

        async def wait() -> HeartbeatResponse:
            await never.wait()
            return beat()

        waiting_response = DeferredResponse()
        broker.handlers.heartbeat = wait
        broker.handlers.produce = lambda: Later(waiting_response, lambda _: ProduceResponse(responses=()))
        waiting.send(heartbeat(1))
        later.send(produce(1, 2))
        ready.send(encoded(MetadataRequest(topics=()), 2, 3))
        assert (await ready.response())[:4] == pack(">i", 3)
        await reached(lambda: bool(broker.listener.memory.held_bytes))
        waiting_response.complete(native.ProduceResponse(()))
        await broker.listener.stop()
        assert (await later.rest())[4:8] == pack(">i", 2), "the last responses leave"
        assert await waiting.rest() == b""
        assert await ready.rest() == b""
        assert broker.listener.connections == 0


@on_both_loops
async def test_peer_that_fills_the_memory_and_reads_nothing_is_closed(caplog: pytest.LogCaptureFixture) -> None:
    async with live(ListenerLimits(max_memory_bytes=1 << 20)) as broker:
        client = await broker.client()
        client.send(pack(">i", 90_000_000))
        client.send(b"x" * 700_000)
        await reached(lambda: broker.listener.memory.is_scarce)
        other = await broker.client()
        other.send(heartbeat(1))
        assert await other.response() == pack(">ih", 1, 0), "what is read is answered"
        assert broker.listener.memory.waiting == 1
        broker.listener.free_memory()
        broker.listener.free_memory()
        assert await client.rest() == b""
        assert "but has moved fewer than 65536 since the last check, while memory is scarce" in caplog.text
        other.send(heartbeat(2))
        assert await other.response() == pack(">ih", 2, 0)
