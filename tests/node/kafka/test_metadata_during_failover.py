"""Metadata for a Kafka client whose broker has just died: the client learns the new leader, and not a second later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from node.kafka.calls import Call, Later
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnection, ClientConnections, Traffic
from node.net.client_software import Software
from tests.node.kafka.kafka_requests import CONTEXT, apis_of
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.errors import LeaderNotAvailableError
from tidelog.protocol import messages as native
from tidelog.protocol.control_messages import BrokerInfo, ListenerAddress, PartitionStateMessage, TopicInfo
from tidelog.protocol.control_messages import UpdateMetadataRequest as Update
from tidelog.protocol.kafka.codec import decode, encode
from tidelog.protocol.kafka.extensions import OWN_SOFTWARE
from tidelog.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

VERSION = 9
BROKERS = {id_: BrokerInfo(id_, 10, (ListenerAddress("KAFKA", f"host-{id_}", 9092),)) for id_ in (1, 2, 3)}


class Broker:
    """The Metadata API of one broker, and its clients. Broker 3 leads the topic "lines"."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.metadata = MetadataCache("c")
        self.lost: set[int] = set()
        apis = apis_of(self._describe, self.metadata, self.clock, has_lost=self.lost.__contains__)
        self._api = next(each for each in apis if each.request is MetadataRequest)
        self.has_live(1, 2, 3)
        self.has_leader(3, epoch=0)

    def has_live(self, *ids: int) -> None:
        self.metadata.set_brokers([BROKERS[id_] for id_ in ids], self.clock.monotonic_ms())

    def has_leader(self, leader: int, epoch: int) -> None:
        state = PartitionStateMessage("lines", 0, 1, leader, epoch, (1, 2, 3), 0, (1, 2, 3))
        self.metadata.update(Update(1, 1, (), (state,), (TopicInfo("lines", "", {}, 1),)))

    def client(self) -> ClientConnection:
        return ClientConnections(self.clock, lambda name: name).add("KAFKA", ("10.0.0.1", 4711), Traffic())

    def ask(self, client: ClientConnection, *topics: str) -> asyncio.Task[MetadataResponse]:
        """Ask for these topics, or for all."""
        asked = [MetadataRequestTopic(name=name) for name in topics] if topics else None
        outcome: Any = self._api.handle(MetadataRequest(topics=asked), Call(VERSION, CONTEXT, client))
        assert not isinstance(outcome, Later)

        async def response() -> Any:
            found = await outcome if isinstance(outcome, Awaitable) else outcome
            return decode(MetadataResponse, VERSION, encode(found, VERSION))

        return asyncio.create_task(response())

    def _describe(self, request: native.Request, context: object) -> native.Response:
        assert isinstance(request, native.MetadataRequest)
        self.metadata.informed = True
        return self.metadata.describe(request.topics, "KAFKA")


def leader_of(response: MetadataResponse) -> tuple[int, int]:
    (topic,) = response.topics
    (partition,) = topic.partitions
    return partition.leader_id, partition.error_code


def brokers_of(response: MetadataResponse) -> list[tuple[int, str]]:
    return [(each.node_id, each.host) for each in response.brokers]


async def milliseconds_of(task: asyncio.Task[MetadataResponse]) -> int:
    begun = asyncio.get_running_loop().time()
    await task
    return round((asyncio.get_running_loop().time() - begun) * 1000)


@on_virtual_time
async def test_client_that_asks_again_waits_for_the_election() -> None:
    broker = Broker()
    client = broker.client()
    await asyncio.sleep(2)
    asked = broker.ask(client, "lines")
    await asyncio.sleep(0.005)
    broker.lost.add(3)  # this broker notices the death a moment after the client
    await asyncio.sleep(0.050)
    broker.has_live(1, 2)
    await asyncio.sleep(0.050)
    assert not asked.done(), "the topic has no leader yet"
    broker.has_leader(2, epoch=1)
    assert leader_of(await asked) == (2, 0)


@on_virtual_time
async def test_wait_for_an_election_is_bounded() -> None:
    broker = Broker()
    client = broker.client()
    broker.lost.add(3)
    await asyncio.sleep(2)
    asked = broker.ask(client, "lines")
    assert await milliseconds_of(asked) == 400
    assert leader_of(await asked) == (3, 0), "the broker is listed as live"
    broker.has_live(1, 2)
    await asyncio.sleep(2)
    assert leader_of(await broker.ask(client, "lines")) == (-1, LeaderNotAvailableError.code)


@on_virtual_time
async def test_only_a_client_that_asks_again_after_a_pause_waits() -> None:
    broker = Broker()
    client = broker.client()
    broker.lost.add(3)
    assert await milliseconds_of(broker.ask(client, "lines")) == 0, "the connection is new"
    await asyncio.sleep(0.9)
    assert await milliseconds_of(broker.ask(client, "lines")) == 0, "the client asks again and again"
    await asyncio.sleep(1.1)
    assert await milliseconds_of(broker.ask(client)) == 0, "the client asks for all topics"
    assert await milliseconds_of(broker.ask(client, "lines")) == 400


@on_virtual_time
async def test_client_that_asks_again_without_a_failure_waits_a_moment() -> None:
    broker = Broker()
    client = broker.client()
    broker.lost.add(1)  # leads nothing that the client asks for
    await asyncio.sleep(2)
    assert await milliseconds_of(broker.ask(client, "lines")) == 10
    assert await milliseconds_of(broker.ask(client, "nowhere")) == 0


@on_virtual_time
async def test_broker_that_has_died_is_listed_for_some_seconds() -> None:
    broker = Broker()
    all_three = [(1, "host-1"), (2, "host-2"), (3, "host-3")]
    broker.has_live(1, 2)
    broker.has_leader(2, epoch=1)
    assert brokers_of(await broker.ask(broker.client(), "lines")) == all_three
    await asyncio.sleep(9)
    broker.has_live(1)
    assert brokers_of(await broker.ask(broker.client(), "lines")) == all_three
    await asyncio.sleep(2)
    assert brokers_of(await broker.ask(broker.client(), "lines")) == all_three[:2], "broker 3 died 11 s ago"
    broker.has_live(1, 2)
    assert brokers_of(await broker.ask(broker.client(), "lines")) == all_three[:2], "each broker is listed once"


@on_virtual_time
async def test_own_client_gets_the_live_brokers_only() -> None:
    broker = Broker()
    own = broker.client()
    own.identify(Software(OWN_SOFTWARE, "0.1.0"))
    broker.has_live(1, 2)
    assert brokers_of(await broker.ask(own, "lines")) == [(1, "host-1"), (2, "host-2")]
