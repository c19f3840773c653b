"""Topics that Kafka clients create by asking for them, at a real controller."""

from __future__ import annotations

import asyncio

import pytest

from node.metadata.auto_topic_creation import RETRY_MS
from tests.node.controller_cluster import Cluster, run
from tests.node.kafka.admin_client import KafkaClient, client_of
from tests.node.kafka.kafka_requests import ask_handler
from tidelog.errors import InvalidReplicationFactorError, InvalidTopicError, UnknownTopicIdError
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

UNKNOWN, COMING = 3, 5


async def describe(
    client: KafkaClient, *names: str, version: int = 12, allow: bool = True
) -> dict[str, MetadataResponseTopic]:
    topics = tuple(MetadataRequestTopic(name=name) for name in names)
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=allow)
    return {each.name: each for each in (await client.ask(request, version)).topics}


async def codes(client: KafkaClient, *names: str) -> dict[str, int]:
    return {name: topic.error_code for name, topic in (await describe(client, *names)).items()}


async def until_described(client: KafkaClient, name: str) -> MetadataResponseTopic:
    async with asyncio.timeout(20):
        while (topic := (await describe(client, name))[name]).error_code:
            assert topic.error_code == COMING
            await asyncio.sleep(0.05)
    return topic


@pytest.mark.parametrize("version", range(13))
async def test_requests_below_version_4_allow_the_creation(version: int) -> None:
    seen: list[bool] = []

    def handle(request: native.Request, context: object) -> native.MetadataResponse:
        assert isinstance(request, native.MetadataRequest)
        seen.append(request.allow_auto_topic_creation)
        return native.MetadataResponse("c", 1, (), ())

    topics = (MetadataRequestTopic(name="t"),)
    for allow in (True, False) if version >= 4 else (True,):
        await ask_handler(handle, MetadataRequest(topics=topics, allow_auto_topic_creation=allow), version)
    assert seen == ([True, False] if version >= 4 else [True])


def test_topic_that_three_brokers_are_asked_for_at_once_is_created_once() -> None:
    async def story(cluster: Cluster) -> None:
        clients = [client_of(broker, auto_create_at=cluster.controller) for broker in cluster.brokers.values()]
        asked = await asyncio.gather(*(describe(client, "t", version=n) for client in clients for n in (0, 3, 4, 12)))
        assert {topics["t"].error_code for topics in asked} == {COMING}
        described = [await until_described(client, "t") for client in clients]
        assert len({topic.topic_id for topic in described}) == 1
        assert [len(topic.partitions) for topic in described] == [1, 1, 1]
        assert set(described[0].partitions[0].replica_nodes) == {1, 2, 3}

    run(story)


def test_request_for_an_unknown_id_or_all_topics_creates_none() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1], auto_create_at=cluster.controller)
        by_id = MetadataRequest(topics=(MetadataRequestTopic(topic_id=b"0123456789abcdef", name=None),))
        (unknown,) = (await client.ask(by_id, 12)).topics
        assert unknown.error_code == UnknownTopicIdError.code
        assert (await client.ask(MetadataRequest(topics=None), 12)).topics == ()
        assert (await describe(client, "t", allow=False))["t"].error_code == UNKNOWN
        await asyncio.sleep(0.2)
        assert await cluster.brokers[1].zk_client.topic_names() == []

    run(story)


def test_topic_that_needs_more_brokers_or_another_name_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        client = client_of(cluster.brokers[1], auto_create_at=cluster.controller)
        await cluster.create("a.b", num_partitions=1, replication_factor=1)
        wanted = {"t": InvalidReplicationFactorError.code, "a_b": InvalidTopicError.code, "a/b": InvalidTopicError.code}
        assert set((await codes(client, *wanted)).values()) <= {COMING, InvalidTopicError.code}
        await asyncio.sleep(RETRY_MS / 2000)
        assert await codes(client, *wanted) == wanted
        assert await cluster.brokers[1].zk_client.topic_names() == ["a.b"]

    run(story, brokers=2)
