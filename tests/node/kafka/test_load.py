"""Thousands of fetches that wait, and of clients that send slowly: memory stays bounded, and others are served."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from struct import pack

import pytest

from node.kafka.connection import MAX_UNANSWERED
from node.kafka.listener import ListenerLimits
from node.replication.purgatories import Purgatories
from storage.files import RealFiles
from storage.log_manager import LogManager
from tests.both_loops import on_both_loops
from tests.node.client_requests import TP, batch_of, values_of
from tests.node.kafka.kafka_requests import apis_of
from tests.node.kafka.live_listener import Client, Live, encoded, heartbeat, live
from tests.node.memory_cluster import MemoryCluster
from tests.virtual_time import VirtualClock
from tidelog.protocol.kafka.codec import decode
from tidelog.protocol.kafka.messages.records import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

FETCHES = 10_000
#: The connections that have all fetches waiting, as many as a connection may have.
CONNECTIONS = FETCHES // MAX_UNANSWERED
SLOW_WRITERS = 1_000
FETCH_VERSION, PRODUCE_VERSION = 4, 9
#: As much as the fields of a fetch can say.
ENDLESS = 2**31 - 1

_numbers = count(1)


class Broker:
    """A broker with its real log behind a Kafka listener."""

    def __init__(self, served: Live, purgatories: Purgatories) -> None:
        self.served = served
        self.fetches = purgatories.consumer_fetches

    async def until_waiting(self, fetches: int) -> None:
        """Return when so many fetches wait. Each turn is a round trip of another client."""
        await self.served.until(lambda: len(self.fetches) == fetches, self.check)

    async def check(self) -> None:
        """Check that a client writes a record and reads this record."""
        client = await self.served.client()
        value = b"record %d" % next(_numbers)
        data = TopicProduceData(name=TP.topic, partition_data=(PartitionProduceData(index=0, records=batch_of(value)),))
        client.send(encoded(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=(data,)), PRODUCE_VERSION, 1))
        produced = decode(ProduceResponse, PRODUCE_VERSION, memoryview(await client.response())[5:])
        ((written,),) = (topic.partition_responses for topic in produced.responses)
        client.send(fetch(written.base_offset, max_wait_ms=0, min_bytes=1))
        fetched = decode(FetchResponse, FETCH_VERSION, memoryview(await client.response())[4:])
        ((read,),) = (topic.partitions for topic in fetched.responses)
        assert values_of(bytes(read.records), written.base_offset) == [value]
        client.writer.close()


def fetch(offset: int, *, max_wait_ms: int, min_bytes: int) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=ENDLESS)
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=(FetchTopic(topic=TP.topic, partitions=(partition,)),)
    )
    return encoded(request, FETCH_VERSION, next(_numbers))


@asynccontextmanager
async def broker(directory: Path) -> AsyncIterator[Broker]:
    def logs() -> LogManager:
        return LogManager.open([directory], RealFiles(), 1, "c", "boot")

    async with MemoryCluster(1, directory=logs) as cluster:
        cluster.configs = {"min.insync.replicas": "1"}
        await cluster.elect(1)
        node = cluster.nodes[1]
        sessions = node.purgatories.consumer_sessions
        apis = apis_of(node.handlers.handle, node.metadata, VirtualClock(), sessions)
        async with live(apis=apis) as served:
            yield Broker(served, node.purgatories)


async def waiting_clients(at: Broker, fetches: int) -> list[Client]:
    """Return connections that have so many fetches waiting for what never comes."""
    clients = []
    for _ in range(fetches // MAX_UNANSWERED):
        clients.append(await at.served.client())
        clients[-1].send(b"".join(fetch(0, max_wait_ms=ENDLESS, min_bytes=ENDLESS) for _ in range(MAX_UNANSWERED)))
    await at.until_waiting(fetches)
    return clients


@pytest.mark.parametrize("closes", ["aborts", "ends"])
@on_both_loops
async def test_closed_connection_releases_its_waiting_fetches(tmp_path: Path, closes: str) -> None:
    async with broker(tmp_path) as at:
        gone, staying = await waiting_clients(at, 2 * MAX_UNANSWERED)
        if closes == "aborts":
            gone.writer.transport.abort()
        else:
            gone.writer.close()
        await at.until_waiting(MAX_UNANSWERED)
        assert at.fetches.expired == 0
        staying.writer.close()
        await at.until_waiting(0)
        assert at.fetches.next_deadline_ms() is None


@pytest.mark.slow
@pytest.mark.timeout(300)
@on_both_loops
async def test_ten_thousand_waiting_fetches_delay_no_other_client(tmp_path: Path) -> None:
    async with broker(tmp_path) as at:
        clients = await waiting_clients(at, FETCHES)
        assert at.served.listener.memory.held_bytes == 0
        for _ in range(3):
            await at.check()
        assert (len(at.fetches), at.fetches.expired) == (FETCHES, 0)
        for client in clients:
            client.writer.transport.abort()
        await at.until_waiting(0)
        assert at.fetches.next_deadline_ms() is None
        await at.check()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Let this process have both ends of all connections, because many systems allow 1024 descriptors at first."""
    needed = 2 * SLOW_WRITERS + 500
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        pytest.skip(f"this machine allows {hard} descriptors, and {needed} are needed")
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def slow_writers(at: Live, data: bytes) -> list[Client]:
    """Return connections that send these bytes, byte by byte in turn, while other clients are served."""
    clients = [await at.client() for _ in range(SLOW_WRITERS)]
    for byte in data:
        for client in clients:
            client.send(bytes((byte,)))
        await at.check()
    return clients


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
@on_both_loops
async def test_requests_of_a_thousand_slow_writers_are_answered() -> None:
    async with live() as at:
        clients = await slow_writers(at, heartbeat(1)[:-1])
        sent = SLOW_WRITERS * (len(heartbeat(1)) - 1)
        await at.until(lambda: at.listener.memory.held_bytes == sent)
        for client in clients:
            client.send(heartbeat(1)[-1:])
        for client in clients:
            assert await client.response() == pack(">ih", 1, 0)
        assert at.listener.memory.held_bytes == 0


@pytest.mark.slow
@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("size", [1_000, 60_000, 100_000_000])
@on_both_loops
async def test_writers_that_stop_within_a_request_hold_what_they_sent(size: int) -> None:
    begun = pack(">i", size) + b"\0\x01"
    async with live() as at:
        clients = await slow_writers(at, begun)
        memory = at.listener.memory
        await at.until(lambda: memory.held_bytes >= SLOW_WRITERS * len(begun))
        assert memory.held_bytes <= 2 * SLOW_WRITERS * len(begun)
        assert (memory.waiting, memory.is_scarce) == (0, False)
        at.clock.time_ms += ListenerLimits().max_idle_ms + 1
        at.listener.close_idle()
        for client in clients:
            assert await client.rest() == b""
        await at.until(lambda: memory.held_bytes == 0 and at.listener.connections <= 1)
