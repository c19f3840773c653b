"""The start positions of group members, and the extent of their commits."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.group_stories import Reading, committed, shared
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    CommitFailedError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    RebalanceInProgressError,
    TimeoutError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import JoinGroupRequest, OffsetCommitPartition, OffsetCommitRequest
from tidelog.protocol.messages import FetchRequest, OffsetForLeaderEpochRequest

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@on_virtual_time
async def test_member_starts_at_the_committed_offset_and_epoch() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    partition.elect(2)
    put(partition, b"y")
    cluster.coordinator.committed["g"][P0] = OffsetCommitPartition("t", 0, 7, 0, "note")
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert (await read(consumer, 4))[0][1] == 7
        assert await consumer.committed([P0, P1]) == {P0: OffsetAndMetadata(7, "note", 0), P1: None}
        assert await consumer.committed(P0) == 7 and await consumer.committed(P1) is None
        asked = cluster.sent(OffsetForLeaderEpochRequest)
        assert asked and asked[0].partitions[0].leader_epoch == 0  # type: ignore[attr-defined]


@on_virtual_time
async def test_no_fetch_starts_before_committed_offsets_are_known() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    cluster.coordinator.committed["g"][P0] = OffsetCommitPartition("t", 0, 7)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.assign([P0])
        cluster.coordinator.loading.add("g")
        assert await consumer.poll(3000) == {}
        assert cluster.sent(FetchRequest) == []
        cluster.coordinator.loading.clear()
        assert [offset for _, offset, _ in await read(consumer, 3)] == [7, 8, 9]


@on_virtual_time
async def test_reset_policy_applies_without_a_committed_offset() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    for policy, begin in (("earliest", 0), ("latest", 10)):
        async with a_consumer(cluster, group_id=policy, auto_offset_reset=policy) as consumer:
            consumer.assign([P0])
            assert await consumer.position(P0) == begin
    async with a_consumer(cluster, group_id="none", auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        with pytest.raises(OffsetOutOfRangeError):
            await consumer.poll(1000)


@on_virtual_time
async def test_poll_raises_failed_offset_fetches_and_retries() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    cluster.coordinator.missing.add("g")
    async with a_consumer(cluster, group_id="g", default_api_timeout_ms=2000) as consumer:
        consumer.assign([P0])
        with pytest.raises(TimeoutError, match=r"group 'g': no coordinator answered in 2 s"):
            await consumer.poll(5000)
        cluster.coordinator.missing.clear()
        assert len(await read(consumer, 1)) == 1


@on_virtual_time
async def test_seek_is_not_undone_by_a_late_offset_fetch() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    cluster.coordinator.committed["g"][P0] = OffsetCommitPartition("t", 0, 7)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.assign([P0])
        cluster.coordinator.loading.add("g")
        await consumer.poll(200)
        consumer.seek(P0, 2)
        cluster.coordinator.loading.clear()
        await asyncio.sleep(1)
        assert (await read(consumer, 8))[0][1] == 2


@on_virtual_time
async def test_reassigned_partition_starts_after_its_own_commit() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    async with a_consumer(cluster, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([P0])
        await read(consumer, 10)
        faults = [Fault.SWALLOW]
        cluster.fault_of = lambda _, request: (
            faults.pop() if isinstance(request, OffsetCommitRequest) and faults else None
        )
        consumer.assign([])
        consumer.assign([P0])
        put(partition, b"y")
        assert await read(consumer, 1, 60_000) == [(0, 10, b"y")]


@on_virtual_time
async def test_commit_is_retried_until_the_coordinator_knows_the_topic() -> None:
    cluster = FakeCluster()
    (known,) = cluster.create("known")
    put(known, b"x")
    (partition,) = cluster.create("t")
    put(partition, b"x")
    cluster.coordinator.unheard.add("t")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0, TopicPartition("known", 0)])
        await read(consumer, 2)
        committing = asyncio.ensure_future(consumer.commit())
        await asyncio.sleep(5)
        assert not committing.done()
        cluster.coordinator.unheard.clear()
        await committing
    assert cluster.coordinator.history == [("g", TopicPartition("known", 0), 1), ("g", P0, 1)], "each of them once"


@on_virtual_time
async def test_commit_for_a_missing_topic_fails_once_that_is_certain() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.coordinator.unheard |= {"t", "gone"}
    async with a_consumer(cluster, group_id="g") as consumer:
        began = seconds()
        nowhere = [TopicPartition("gone", number) for number in range(10)]
        nowhere += [TopicPartition("t", number) for number in range(1, 10)]
        with pytest.raises(UnknownTopicOrPartitionError, match="group 'g', gone-0"):
            await consumer.commit(dict.fromkeys(nowhere, OffsetAndMetadata(1)))
        assert 2 < seconds() - began < 5
        with pytest.raises(UnknownTopicOrPartitionError, match="group 'g', t-0"):  # the coordinator never hears of it
            await consumer.commit({P0: OffsetAndMetadata(1)}, timeout_ms=6000)
        assert 8 < seconds() - began < 12


@on_virtual_time
async def test_auto_commit_covers_the_records_of_earlier_polls() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    async with a_consumer(cluster, group_id="g", max_poll_records=4) as consumer:
        consumer.subscribe(["t"])
        assert len(await read(consumer, 4)) == 4
        await asyncio.sleep(20)
        assert committed(cluster) == {}  # the user may still be processing the records
        await read(consumer, 4)
        await asyncio.sleep(1)
        assert committed(cluster) == {P0: 4}
        await consumer.close()
    assert committed(cluster) == {P0: 8}
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert [offset for _, offset, _ in await read(consumer, 2)] == [8, 9]
        await consumer.close(autocommit=False)
    assert committed(cluster) == {P0: 8}


@on_virtual_time
async def test_iteration_commits_only_returned_records() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 10)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        seen = []
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 13:
                break
        await consumer.commit()
        counts = [sum(partition == number for partition, _ in seen) for number in (0, 1)]
        assert committed(cluster) == {P0: counts[0], P1: counts[1]}
        assert (await consumer.committed([P0]))[P0] == OffsetAndMetadata(counts[0], "", 0)
        consumer.seek(P0, 1)
        await consumer.commit()
        assert committed(cluster)[P0] == 1
    async with a_consumer(cluster, group_id="g", consumer_timeout_ms=1000) as consumer:
        consumer.subscribe(["t"])
        rest = [(record.partition, record.offset) async for record in consumer]
    assert sorted(rest) == [(0, n) for n in range(1, 10)] + [(1, n) for n in range(counts[1], 10)]


@on_virtual_time
async def test_buffered_records_are_not_committed_to_a_recreated_topic() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    put(old, b"old 0", b"old 1", b"old 2")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        await anext(consumer)
        (new,) = cluster.create("t")
        put(new, b"new 0", b"new 1")
        old.grown.set()
        await asyncio.sleep(1)  # the consumer starts in the new topic, with two old records buffered
        await consumer.commit()
        assert committed(cluster) == {P0: 0}
        assert (await anext(consumer)).value == b"new 0"
        await consumer.commit()
        assert committed(cluster) == {P0: 1}


@on_virtual_time
async def test_recreated_topic_is_not_committed_before_a_seek() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    put(old, b"old 0", b"old 1")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await anext(consumer)
        (new,) = cluster.create("t")
        put(new, *[b"new"] * 4)
        old.grown.set()
        await asyncio.sleep(1)
        await consumer.commit()
        assert await anext(consumer)
        await consumer.commit()
        assert committed(cluster) == {}
        with pytest.raises(OffsetOutOfRangeError, match="created again"):
            await anext(consumer)
        await consumer.commit()
        assert committed(cluster) == {}
        consumer.seek(P0, 3)
        await consumer.commit()
        assert committed(cluster) == {P0: 3}


@on_virtual_time
async def test_commit_after_a_truncation_ends_at_the_divergent_offset() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0")
    put(partition, b"lost 1", b"lost 2", b"lost 3")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        for _ in range(3):
            await anext(consumer)
        partition.elect_uncleanly(2, keeping=1)
        put(partition, b"new 1")
        await asyncio.sleep(1)
        await consumer.commit()
        assert committed(cluster) == {P0: 1}


@on_virtual_time
async def test_buffered_records_in_the_log_are_not_committed_early() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"kept"] * 8)
    put(partition, b"lost 8", b"lost 9")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        await consumer.position(P0)
        await asyncio.sleep(1)  # so that the next poll takes all ten
        for _ in range(3):
            await anext(consumer)
        partition.elect_uncleanly(2, keeping=1)
        await asyncio.sleep(1)
        assert await consumer.position(P0) == 3, "the logs part at 8, behind what was yielded"
        await consumer.commit()
        assert (await consumer.committed([P0]))[P0] == OffsetAndMetadata(3, "", 0)
        assert [(await anext(consumer)).offset for _ in range(5)] == [3, 4, 5, 6, 7]
        await consumer.commit()
        assert committed(cluster) == {P0: 8}


@on_virtual_time
async def test_returned_records_are_committed_though_later_ones_were_dropped() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0", b"1")
    put(partition, b"2", b"3")
    narrow = {"max_poll_records": 2, "max_partition_fetch_bytes": 1, "prefetch_max_bytes": 1}
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False, **narrow) as consumer:
        consumer.assign([P0])
        await anext(consumer)
        await asyncio.sleep(1)
        consumer.pause(P0)
        await asyncio.sleep(1)  # 2 and 3 were here, and are not any more
        await consumer.commit()
        assert committed(cluster) == {P0: 1}


@on_virtual_time
async def test_untouched_partition_is_committed_at_its_start() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 10)
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0, P1])
        consumer.seek(P0, 2)
        consumer.seek(P1, 3)
        await asyncio.sleep(1)  # so that the next poll takes both
        first = await anext(consumer)
        await consumer.commit()
        ends = {P0: 2, P1: 3}
        ends[TopicPartition("t", first.partition)] += 1
        assert {tp: await consumer.position(tp) for tp in ends} == ends
        assert committed(cluster) == ends


@on_virtual_time
async def test_manually_assigned_partitions_are_committed_without_membership() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 5)
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.assign([P0, P1])
        await read(consumer, 10)
        consumer.assign([P1])
        await until(lambda: committed(cluster) == {P0: 5})
        await consumer.unsubscribe()
        assert consumer.assignment() == set()
        assert committed(cluster) == {P0: 5, P1: 5}
        with pytest.raises(OffsetMetadataTooLargeError, match="group 'g', t-0: "):
            await consumer.commit({P0: OffsetAndMetadata(1, "x" * 5000)})
        await consumer.commit({P0: OffsetAndMetadata(1, "x" * 4096)})
        assert cluster.sent(JoinGroupRequest) == []


@on_virtual_time
async def test_non_member_cannot_commit_for_a_group_with_members() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    member = Reading(cluster).begin()
    await member.owns(0)
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as stranger:
        stranger.assign([P0])
        with pytest.raises(CommitFailedError, match="only members may commit"):
            await stranger.commit({P0: OffsetAndMetadata(0)})
    await member.close()


@on_virtual_time
async def test_earlier_commit_does_not_overwrite_a_later_one() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 5)
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        cluster.coordinator.loading.add("g")
        first = asyncio.create_task(consumer.commit({P0: OffsetAndMetadata(3)}))
        await asyncio.sleep(0.3)
        second = asyncio.create_task(consumer.commit({P0: OffsetAndMetadata(5)}))
        with pytest.raises(TimeoutError, match="waiting for an earlier commit"):
            await consumer.commit({P0: OffsetAndMetadata(9)}, timeout_ms=500)
        cluster.coordinator.loading.clear()
        await asyncio.gather(first, second)
    assert [offset for _, _, offset in cluster.coordinator.history] == [3, 5]


@on_virtual_time
async def test_delayed_copy_of_a_repeated_commit_overwrites_no_later_one() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        faults = [Fault.LOSE_REQUEST]
        cluster.fault_of = lambda _, request: (
            faults.pop() if isinstance(request, OffsetCommitRequest) and faults else None
        )
        await consumer.commit({P0: OffsetAndMetadata(1960)})
        await consumer.commit({P0: OffsetAndMetadata(1976)})
        first, repeated, later = cluster.sent(OffsetCommitRequest)
        assert first == repeated and first.committer_id == later.committer_id and first.sequence < later.sequence
        late = await cluster.coordinator.handle(1, 0, first)  # the network has delayed it on the first connection
        assert [each.error_code for each in late.partitions] == [OutOfOrderSequenceError.code]  # type: ignore[attr-defined]
        assert (await consumer.committed([P0]))[P0] == OffsetAndMetadata(1976)


@on_virtual_time
async def test_delayed_copy_reaches_no_coordinator_of_a_later_epoch() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        broker = cluster.coordinator.broker_of("g")
        faults = [Fault.LOSE_REQUEST]
        cluster.fault_of = lambda _, request: (
            faults.pop() if isinstance(request, OffsetCommitRequest) and faults else None
        )
        commit = asyncio.create_task(consumer.commit({P0: OffsetAndMetadata(5)}))
        await until(lambda: not faults)
        cluster.coordinator.move("g")
        await commit
        await consumer.commit({P0: OffsetAndMetadata(6)})
        while cluster.coordinator.broker_of("g") != broker:
            cluster.coordinator.move("g")
        late = await cluster.coordinator.handle(broker, 0, cluster.sent(OffsetCommitRequest)[0])
        assert [each.error_code for each in late.partitions] == [NotCoordinatorError.code]  # type: ignore[attr-defined]
        assert (await consumer.committed([P0]))[P0] == OffsetAndMetadata(6)
        await consumer.commit({P0: OffsetAndMetadata(7)})
        assert (await consumer.committed([P0]))[P0] == OffsetAndMetadata(7)


@on_virtual_time
async def test_commit_goes_to_no_coordinator_of_an_earlier_epoch() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        cluster.coordinator.broker_of("g")
        cluster.coordinator.epochs["g"] = 6
        await consumer.commit({P0: OffsetAndMetadata(5)})
        cluster.coordinator.epochs["g"] = 5  # no broker has heard of epoch 6 but the one that was asked
        consumer.client.coordinators.clear()
        commit = asyncio.create_task(consumer.commit({P0: OffsetAndMetadata(6)}))
        await asyncio.sleep(1)
        assert cluster.coordinator.history == [("g", P0, 5)] and not commit.done()
        cluster.coordinator.epochs["g"] = 6
        await commit
        cluster.coordinator.epochs["g"] = 0  # the topic was created again
        with pytest.raises(TimeoutError, match="no coordinator answered"):
            await consumer.commit({P0: OffsetAndMetadata(7)}, timeout_ms=2000)
        await consumer.commit({P0: OffsetAndMetadata(8)}, timeout_ms=2000)
    assert [offset for _, _, offset in cluster.coordinator.history] == [5, 6, 8]


@on_virtual_time
async def test_two_consumers_of_a_group_have_sequences_of_their_own() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with (
        a_consumer(cluster, group_id="g", enable_auto_commit=False) as one,
        a_consumer(cluster, group_id="g", enable_auto_commit=False) as other,
    ):
        for offset, consumer in enumerate([one, one, other, one, other]):
            consumer.assign([P0])
            await consumer.commit({P0: OffsetAndMetadata(offset)})
    assert [offset for _, _, offset in cluster.coordinator.history] == [0, 1, 2, 3, 4]


@on_virtual_time
async def test_waiting_commit_is_not_sent_in_another_generation() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    first = Reading(cluster, enable_auto_commit=False, request_timeout_ms=5000).begin()
    await first.owns(0, 1)
    faults = [Fault.SWALLOW]
    cluster.fault_of = lambda _, request: faults.pop() if isinstance(request, OffsetCommitRequest) and faults else None
    commits = [asyncio.create_task(first.consumer.commit({tp: OffsetAndMetadata(1)})) for tp in (P0, P1)]
    second = Reading(cluster, enable_auto_commit=False).begin()
    await shared([first, second], 2)
    outcomes = await asyncio.gather(*commits, return_exceptions=True)
    assert [type(each) for each in outcomes] == [CommitFailedError, RebalanceInProgressError]
    assert committed(cluster) == {}
    await first.close()
    await second.close()
