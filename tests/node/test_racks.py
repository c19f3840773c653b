"""A broker's rack reaches the controller, all brokers and all clients, and keeps replicas of a partition apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.zookeeper import znodes
from node.metadata.internal_topics import InternalTopicRules
from node.metadata.metadata_cache import MetadataCache
from node.process.broker import Broker
from tests.node.controller_cluster import Cluster, run
from tests.node.test_stopping import BrokerEnvironment, settings_in
from tidelog.errors import InvalidReplicationFactorError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.protocol.codec import decode_body, encode_body
from tidelog.protocol.control_messages import BrokerInfo, ListenerAddress, UpdateMetadataRequest
from tidelog.protocol.messages import CreateTopicsRequest, NewTopic
from tidelog.protocol.partition_messages import CreatePartitionsRequest, NewPartitions

RACKS = {1: "a", 2: "a", 3: "b", 4: "b"}
AT = (ListenerAddress("KAFKA", "h", 9092),)


async def replicas_of(cluster: Cluster, topic: str = "t") -> list[tuple[int, ...]]:
    assignment = await cluster.brokers[1].zk_client.read_topic(topic)
    assert assignment is not None
    return list(assignment.partitions.values())


def require_both_racks(replicas: list[tuple[int, ...]]) -> None:
    assert all({RACKS[broker] for broker in each} == {"a", "b"} for each in replicas)


def test_created_and_added_partitions_are_in_both_racks() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(num_partitions=5, replication_factor=2)
        request = CreatePartitionsRequest((NewPartitions("t", 9),), timeout_ms=5000)
        (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
        assert answer.error_code == 0
        replicas = await replicas_of(cluster)
        assert len(replicas) == 9
        require_both_racks(replicas)
        rules = InternalTopicRules.of(cluster.brokers[1].settings)
        await cluster.create(OFFSETS_TOPIC, num_partitions=5, replication_factor=3, configs=rules.creation_configs())
        require_both_racks(await replicas_of(cluster, OFFSETS_TOPIC))

    run(story, 4, RACKS)


def test_broker_without_a_rack_among_others_stops_automatic_assignments() -> None:
    async def story(cluster: Cluster) -> None:
        new = (NewTopic("t", 1, 1), NewTopic("manual", assignment={0: (3,)}))
        refused, created = (await cluster.controller.topics.create_topics(CreateTopicsRequest(new, 5000))).topics
        assert (refused.error_code, created.error_code) == (InvalidReplicationFactorError.code, 0)
        assert "not all brokers have a rack (without one: 3; with one: 1, 2)" in (refused.error_message or "")
        assert not cluster.exists(znodes.topic_path("t"))
        wanted = (NewPartitions("manual", 2), NewPartitions("manual", 2, {1: (2,)}))
        for each, code in zip(wanted, (InvalidReplicationFactorError.code, 0), strict=True):
            request = CreatePartitionsRequest((each,), timeout_ms=5000)
            (answer,) = (await cluster.controller.partitions.create_partitions(request)).topics
            assert answer.error_code == code, answer.error_message

    run(story, 3, {1: "a", 2: "b"})


@pytest.mark.parametrize("rack", ["", "zone a"])
async def test_broker_writes_its_rack_into_its_registration(tmp_path: Path, rack: str) -> None:
    environment = BrokerEnvironment()
    broker = Broker(replace(settings_in(tmp_path), broker_rack=rack), environment)
    await broker.start()
    node = await environment.store.get(znodes.broker_path(1))
    assert json.loads(node.data).get("rack") == (rack or None)
    await broker.stop()


def test_metadata_has_a_changed_rack_also_of_a_departed_broker() -> None:
    cache = MetadataCache("c")
    assert cache.set_brokers([BrokerInfo(1, 10, AT, rack="a")], 0)
    assert [each.rack for each in cache.describe(()).brokers] == ["a"]
    assert cache.set_brokers([BrokerInfo(1, 10, AT, rack="b")], 0)
    assert [each.rack for each in cache.describe(()).brokers] == ["b"]
    cache.set_brokers([], 5)
    assert [each.rack for each in cache.departed(5, "KAFKA")] == ["b"]


def test_older_brokers_neither_get_nor_send_racks() -> None:
    request = UpdateMetadataRequest(1, 1, (BrokerInfo(1, 10, AT, rack="a"),), (), ())
    assert decode_body(encode_body(request, 1), UpdateMetadataRequest, 1) == request
    old = decode_body(encode_body(request, 0), UpdateMetadataRequest, 0)
    assert [each.rack for each in old.live_brokers] == [None]
