"""Test that the admin finds the controller, waits for leaders, and reports what stayed unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.tidelog.clients import in_memory
from tests.tidelog.fake_cluster import FakeCluster, FakeConnection, FakePartition, Fault
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog import ConfigResource
from tidelog.aio import Admin
from tidelog.errors import (
    InvalidReplicationFactorError,
    InvalidTopicError,
    RequestTimedOutError,
    TimeoutError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    raise_first,
)
from tidelog.model import Endpoint
from tidelog.protocol.messages import CreateTopicsRequest, DescribeReplicasRequest, NewTopic, Request, Response
from tidelog.records.encode import encode_batch


def an_admin(cluster: FakeCluster, **options: Any) -> Admin:
    return in_memory(Admin, cluster, clock=VirtualClock(), **options)


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
async def test_partitions_of_a_kafka_cluster_have_their_readable_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    cluster.create("t")[0].append(encode_batch([(0, None, b"v", ())]))
    original = FakeConnection.send

    def send(self: FakeConnection, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        if not isinstance(request, DescribeReplicasRequest):
            return original(self, request, timeout_ms=timeout_ms)
        failed: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        failed.set_exception(UnsupportedVersionError("this call needs a cluster of Tidelog"))
        return failed

    monkeypatch.setattr(FakeConnection, "send", send)
    async with an_admin(cluster) as admin:
        ((partition,),) = [topic.partitions for topic in await admin.describe_topics(["t"])]
    assert (partition.log_start_offset, partition.high_watermark) == (0, 1)
    assert (partition.log_end_offset, partition.lag) == (None, None)


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
async def test_described_cluster_has_the_kind_that_its_brokers_tell() -> None:
    cluster = FakeCluster()
    cluster.kind = "Apache Kafka (metadata.version 27)"
    async with an_admin(cluster) as admin:
        assert (await admin.describe_cluster()).kind == cluster.kind


@pytest.mark.parametrize("had_done_it", [False, True])
@on_virtual_time
async def test_call_leaves_a_controller_that_hangs_for_its_successor(had_done_it: bool) -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.describe_cluster()
        cluster.hung.add(1)
        creating = asyncio.create_task(admin.create_topics([NewTopic("t", 1)], timeout_ms=10_000))
        await asyncio.sleep(3)
        assert cluster.sent(CreateTopicsRequest) and not creating.done()
        cluster.controller = 2
        if had_done_it:
            cluster.create("t")
        await creating
        assert [broker for broker, request in cluster.requests if isinstance(request, CreateTopicsRequest)] == [1, 2]


@on_virtual_time
async def test_missing_controller_is_reported_at_the_callers_deadline() -> None:
    cluster = FakeCluster()
    cluster.controller = -1
    async with an_admin(cluster) as admin:
        for timeout_ms in (700, 7000):
            started_ms = admin.clock.monotonic_ms()
            with pytest.raises(TimeoutError, match="no controller is elected"):
                await admin.delete_topics(["t"], timeout_ms=timeout_ms)
            assert timeout_ms <= admin.clock.monotonic_ms() - started_ms < timeout_ms + 300


@on_virtual_time
async def test_first_of_several_errors_is_raised_and_has_the_others() -> None:
    cluster = FakeCluster()
    cluster.create("b")
    async with an_admin(cluster) as admin:
        await admin.create_topics([NewTopic("a", 1)])
        with pytest.raises(TopicAlreadyExistsError, match="'a'") as refused:
            await admin.create_topics([NewTopic("a", 1), NewTopic("new", 1), NewTopic("b", 1)])
        (other,) = refused.value.others
        assert isinstance(other, TopicAlreadyExistsError) and "'b'" in str(other)
        assert refused.value.__notes__ == [f"and TopicAlreadyExistsError: {other}"]
        assert "new" in cluster.partitions, "the others of the call took effect"
        with pytest.raises(UnknownTopicOrPartitionError, match="'x'") as gone:
            await admin.delete_topics(["x", "b", "y"])
        assert ["'y'" in str(each) for each in gone.value.others] == [True]
        assert gone.value.others[0].others == ()


def test_traceback_of_many_errors_shows_five_of_the_others() -> None:
    with pytest.raises(TimeoutError) as raised:
        raise_first(TimeoutError(f"partition {number}") for number in range(2_000))
    assert len(raised.value.others) == 1_999
    *named, more = raised.value.__notes__
    assert named == [f"and TimeoutError: partition {number}" for number in range(1, 6)]
    assert more == "and 1,994 more errors: see `others`"


@on_virtual_time
async def test_creation_without_leaders_names_ranges_of_partitions() -> None:
    cluster = FakeCluster()

    def unlead(broker: int, request: Request) -> None:
        for each in cluster.partitions.get("t", [])[2_000:4_500]:
            each.leader = -1

    cluster.on_send = unlead
    async with an_admin(cluster) as admin:
        unled = "topic 't' was created, but has no leader yet for partitions 2000–4499: tidelog explain t/2000"
        with pytest.raises(TimeoutError, match=unled):
            await admin.create_topics([NewTopic("t", 10_000)], timeout_ms=1_000)


@on_virtual_time
async def test_topic_creation_with_a_lost_answer_succeeds() -> None:
    cluster = FakeCluster()
    faults = iter([Fault.LOSE_ANSWER])
    cluster.fault_of = lambda _, request: next(faults, None) if isinstance(request, CreateTopicsRequest) else None
    async with an_admin(cluster) as admin:
        [created] = await admin.create_topics([NewTopic("t", 2)])
        assert (created.error_code, created.num_partitions, created.replication_factor) == (0, 2, 3)
        with pytest.raises(TopicAlreadyExistsError, match="t"):
            await admin.create_topics([NewTopic("t", 1)])


@on_virtual_time
async def test_topic_created_before_a_controller_change_is_not_an_error() -> None:
    cluster = FakeCluster()
    cluster.create("there")
    make = cluster.create

    def make_and_move(topic: str, partitions: int = 1) -> list[FakePartition]:
        cluster.controller = 3 - cluster.controller
        return make(topic, partitions)

    async with an_admin(cluster) as admin:
        cluster.create = make_and_move  # type: ignore[method-assign]
        created = await admin.create_topics([NewTopic("a", 1), NewTopic("b", 1)])
        assert [(each.name, each.error_code) for each in created] == [("a", 0), ("b", 0)]
        with pytest.raises(TopicAlreadyExistsError, match="'there'") as refused:
            await admin.create_topics([NewTopic("c", 1), NewTopic("there", 1)])
        assert not refused.value.others and "c" in cluster.partitions


@on_virtual_time
async def test_a_creation_that_zookeeper_did_not_confirm_is_not_waited_for() -> None:
    cluster = FakeCluster()
    cluster.refusals[CreateTopicsRequest].append(RequestTimedOutError.code)
    async with an_admin(cluster) as admin:
        started_ms = admin.clock.monotonic_ms()
        with pytest.raises(RequestTimedOutError, match="'t'"):
            await admin.create_topics([NewTopic("t", 1)])
        assert admin.clock.monotonic_ms() - started_ms < 1000, "no broker said that the topic exists"


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


@on_virtual_time
async def test_invalid_argument_is_named_before_any_request() -> None:
    cluster = FakeCluster()
    cluster.create("t", 1)
    wrong: Any = {"a": 5}
    async with an_admin(cluster) as admin:
        anything: Any = admin
        with pytest.raises(TypeError, match=r"topics\[0\] must be a NewTopic, not 't'"):
            await anything.create_topics(["t"])
        with pytest.raises(TypeError, match=r"topics\[0\] must be a NewPartitions, not 't'"):
            await anything.create_partitions({"t": 3})
        with pytest.raises(TypeError, match=r"topics\[0\]\.configs\['a'\] must be a str, not 5"):
            await admin.create_topics([NewTopic("n", 1, configs=wrong)])
        with pytest.raises(TypeError, match=r"configs\[topic t\]\['a'\] must be a str, not 5"):
            await admin.alter_configs({ConfigResource.topic("t"): wrong})
        (described,) = await admin.describe_topics("t")
        assert described.topic == "t", "one name is a name, not its letters"
