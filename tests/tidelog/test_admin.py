"""The admin: it finds the controller, waits for leaders, and tells what it could not learn."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.aio import Admin
from tidelog.errors import (
    InvalidReplicationFactorError,
    InvalidTopicError,
    RequestTimedOutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tidelog.messages import CreateTopicsRequest, NewTopic
from tidelog.model import Endpoint
from tidelog.records.encode import encode_batch


def an_admin(cluster: FakeCluster, **options: Any) -> Admin:
    return Admin(cluster.bootstrap, _clock=VirtualClock(), _opener=cluster.open, _rng=random.Random(7), **options)


@on_virtual_time
async def test_a_topic_is_created_listed_described_and_deleted() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        (created,) = await admin.create_topics([NewTopic("t", 2, 3)])
        assert created.name == "t" and await admin.list_topics() == ["t"]
        cluster.partitions["t"][0].append(encode_batch([(0, None, b"v", ())]))
        (topic,) = await admin.describe_topics(["t"])
        first, second = topic.partitions
        assert (first.leader, first.leader_epoch, first.isr, first.replicas) == (1, 0, (1, 2, 3), (1, 2, 3))
        assert (first.high_watermark, first.log_end_offset, first.lag) == (1, 1, {2: 0, 3: 0})
        assert second.log_end_offset == 0
        await admin.delete_topics(["t"])
        assert await admin.list_topics() == []


@on_virtual_time
async def test_the_controller_is_found_again_after_it_moved() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        assert (await admin.describe_cluster()).controller == 1
        cluster.controller = 3
        await admin.create_topics([NewTopic("t", 1)])
        cluster.kill(3)
        await admin.create_topics([NewTopic("u", 1)])
        described = await admin.describe_cluster()
        assert (described.controller, described.brokers) == (
            1,
            {1: Endpoint("fake", 1001), 2: Endpoint("fake", 1002)},
        )


@on_virtual_time
async def test_a_creation_whose_answer_is_lost_succeeds() -> None:
    cluster = FakeCluster()
    faults = iter([Fault.LOSE_ANSWER])
    cluster.fault_of = lambda _, request: next(faults, None) if isinstance(request, CreateTopicsRequest) else None
    async with an_admin(cluster) as admin:
        [created] = await admin.create_topics([NewTopic("t", 2)])
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 2, 3)
        with pytest.raises(TopicAlreadyExistsError, match="t"):
            await admin.create_topics([NewTopic("t", 1)])


@on_virtual_time
async def test_a_creation_that_zookeeper_did_not_confirm_is_not_waited_for() -> None:
    cluster = FakeCluster()
    cluster.refusals[CreateTopicsRequest].append(RequestTimedOutError.code)
    async with an_admin(cluster) as admin:
        started_ms = admin.clock.monotonic_ms()
        with pytest.raises(RequestTimedOutError, match="'t'"):
            await admin.create_topics([NewTopic("t", 1)])
        assert admin.clock.monotonic_ms() - started_ms < 1000, "nobody said that it is there"


@on_virtual_time
async def test_refusals_are_raised() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        with pytest.raises(InvalidTopicError):
            await admin.create_topics([NewTopic("a/b", 1)])
        cluster.refusals[CreateTopicsRequest].append(38)
        with pytest.raises(InvalidReplicationFactorError):
            await admin.create_topics([NewTopic("t", 1, 9)])
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            await admin.delete_topics(["nowhere"])
        with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
            await admin.describe_topics(["nowhere"])


@on_virtual_time
async def test_a_partition_without_a_leader_is_described_as_far_as_it_is_known() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    async with an_admin(cluster) as admin:
        cluster.kill(1, elect=False)
        started = asyncio.get_running_loop().time()
        (topic,) = await admin.describe_topics()
        assert asyncio.get_running_loop().time() - started < 3
        lost, healthy = topic.partitions
        assert (lost.leader, lost.high_watermark, lost.lag) == (-1, None, None)
        assert healthy.lag == {1: None, 3: 0}
