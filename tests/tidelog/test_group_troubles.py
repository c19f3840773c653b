"""Failures that members of a group must handle: missing polls, lost coordinators, errors, and rivals."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.group_stories import Notes, Reading, committed, parts, shared
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    ClosedError,
    CommitFailedError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    RebalanceInProgressError,
    TimeoutError,
)
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    SyncGroupRequest,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


# --- what goes wrong ------------------------------------------------------------------------------


@on_virtual_time
async def test_consumer_without_polls_leaves_and_rejoins_at_its_next_poll() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 3)
    slow = Reading(cluster, max_poll_interval_ms=20_000, enable_auto_commit=False).begin()
    await slow.owns(0, 1)
    await until(lambda: len(slow.seen) == 6)
    await slow.rest()
    other = Reading(cluster, max_poll_interval_ms=20_000)
    other.consumer.subscribe(["t"])
    other.poll_on()
    began = seconds()
    await other.owns(0, 1)
    assert seconds() - began < 25
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        await slow.consumer.commit()
    slow.poll_on()
    await shared([slow, other], 2)
    assert ("lost", parts(0, 1)) in slow.notes.shown
    await until(lambda: len(other.seen) >= 6)  # nothing was committed
    await slow.close()
    await other.close()


@on_virtual_time
async def test_unanswered_heartbeat_does_not_keep_a_member_without_polls() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    slow = Reading(cluster, max_poll_interval_ms=4000, session_timeout_ms=30_000).begin()
    await slow.owns(0)
    await slow.rest()
    began = seconds()
    cluster.fault_of = lambda _, request: Fault.SWALLOW if isinstance(request, HeartbeatRequest) else None
    await until(lambda: cluster.coordinator.groups["g"].members == {})
    assert seconds() - began < 5
    await slow.close()


@on_virtual_time
async def test_late_poll_reports_lost_partitions_before_the_leave_is_answered() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    slow = Reading(cluster, max_poll_interval_ms=4000, session_timeout_ms=20_000).begin()
    await slow.owns(0)
    await slow.rest()
    cluster.fault_of = lambda _, request: Fault.SWALLOW if isinstance(request, LeaveGroupRequest) else None
    await asyncio.sleep(5)
    put(partition, b"x")
    assert await slow.consumer.poll(1000) == {}, "by now it may be another's"
    assert slow.notes.shown[1:] == [("lost", parts(0))]
    slow.poll_on()
    await slow.owns(0)
    await asyncio.sleep(60)
    assert slow.notes.shown[1:] == [("lost", parts(0)), ("assigned", parts(0))]
    await slow.close()


@on_virtual_time
async def test_member_removed_during_assignment_does_not_adopt_it() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    generations = []
    notes = Notes(lambda what: generations.append(slow.consumer.group_metadata().generation_id))
    slow = Reading(cluster, notes=notes, max_poll_interval_ms=4000, enable_auto_commit=False)
    slow.consumer.subscribe(["t"], listener=notes)
    while not cluster.sent(JoinGroupRequest):
        await slow.consumer.poll(1)
    await until(lambda: bool(cluster.sent(SyncGroupRequest)))
    await until(lambda: bool(cluster.sent(LeaveGroupRequest)))
    assert notes.shown == [] and slow.consumer.assignment() == set()
    slow.poll_on()
    await slow.owns(0, 1)
    assert notes.shown == [("assigned", parts(0, 1))] and generations[0] > 0
    await slow.close()


@on_virtual_time
async def test_busy_member_stays_until_max_poll_interval() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"x", b"y")
    busy = Reading(cluster, max_poll_records=1).begin()
    await until(lambda: len(busy.seen) == 2)
    await busy.rest()
    await asyncio.sleep(200)  # many sessions
    await busy.consumer.commit()
    assert committed(cluster) == {P0: 2}
    assert len(cluster.sent(HeartbeatRequest)) > 50
    await busy.close()


@pytest.mark.parametrize("forget", [False, True], ids=["moved", "forgotten"])
@pytest.mark.parametrize("kind", [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, OffsetCommitRequest])
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_coordinator_may_move_at_any_moment(kind: type, forget: bool, strategy: str) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        log = cluster.create("t", 4)
        moves = 0

        def move(_: int, request: object) -> None:
            nonlocal moves
            if isinstance(request, kind) and moves < 5:
                moves += 1
                cluster.coordinator.move("g", forget=forget)

        cluster.fault_of = move  # type: ignore[assignment]
        first = Reading(cluster, partition_assignment_strategy=strategy).begin()
        second = Reading(cluster, partition_assignment_strategy=strategy).begin()
        for number in range(50):
            for partition in log:
                put(partition, b"%d" % number)
            await asyncio.sleep(0.5)
        await until(lambda: moves == 5)
        await shared([first, second], 4)
        await until(lambda: set(first.seen + second.seen) == {(tp, n) for tp in parts(0, 1, 2, 3) for n in range(50)})
        if not forget:
            assert len(first.seen + second.seen) == 200
        assert first.errors == second.errors == []
        await first.close()
        await second.close()
        assert set(committed(cluster).values()) == {50}

    story()


@on_virtual_time
async def test_group_survives_the_death_of_the_coordinators_broker() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 5)
    first, second = Reading(cluster).begin(), Reading(cluster).begin()
    await shared([first, second], 2)
    cluster.kill(cluster.coordinator.broker_of("g"))
    await until(lambda: len(first.seen) + len(second.seen) == 10)
    await first.close()
    await second.owns(0, 1)
    await second.close()
    assert set(committed(cluster).values()) == {5}


@on_virtual_time
async def test_poll_raises_final_errors() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    ranging = Reading(cluster, partition_assignment_strategy="range").begin()
    await ranging.owns(0)
    async with a_consumer(cluster, group_id="g", partition_assignment_strategy="sticky") as other:
        other.subscribe(["t"])
        with pytest.raises(InconsistentGroupProtocolError, match="group 'g'"):
            await other.poll(5000)
        with pytest.raises(InconsistentGroupProtocolError, match="group 'g'"):
            await other.poll(5000)
    cluster.refusals[JoinGroupRequest].append(GroupMaxSizeReachedError.code)
    async with a_consumer(cluster, group_id="g") as other:
        other.subscribe(["t"])
        with pytest.raises(GroupMaxSizeReachedError):
            await other.poll(5000)
    await ranging.close()


@on_virtual_time
async def test_missing_coordinator_is_reported_and_joined_later() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"x")
    cluster.coordinator.missing.add("g")
    async with a_consumer(cluster, group_id="g", default_api_timeout_ms=3000) as consumer:
        consumer.subscribe(["t"])
        with pytest.raises(TimeoutError, match="group 'g': no coordinator answered"):
            await consumer.poll(10_000)
        cluster.coordinator.missing.clear()
        assert len(await read(consumer, 1)) == 1


@on_virtual_time
async def test_commit_during_a_rebalance_names_the_next_step() -> None:
    cluster = FakeCluster()
    put(cluster.create("t", 2)[0], b"x")
    first = Reading(cluster, enable_auto_commit=False).begin()
    await until(lambda: len(first.seen) == 1)
    hanging = a_consumer(cluster, group_id="g")
    hanging.subscribe(["t"])
    await hanging.poll(10)
    await until(lambda: first.consumer.assignment() == set())
    with pytest.raises(RebalanceInProgressError, match="poll until it is complete"):
        await first.consumer.commit({P0: OffsetAndMetadata(1)})
    await hanging.close()
    await first.close()


@on_virtual_time
async def test_closing_consumer_does_not_delay_the_join_of_others() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    first = Reading(cluster).begin()
    await first.owns(0, 1)
    second = Reading(cluster).begin()
    await until(lambda: cluster.coordinator.groups["g"].state.value == "PreparingRebalance")
    await second.close()
    began = seconds()
    await first.owns(0, 1)
    await until(lambda: cluster.coordinator.groups["g"].state.value == "Stable")
    assert seconds() - began < 5
    assert len(cluster.coordinator.groups["g"].members) == 1
    await first.close()


@on_virtual_time
async def test_close_ends_in_time_without_a_coordinator() -> None:
    for blow in ("kill", "hang", "missing"):
        cluster = FakeCluster(brokers=1)
        put(cluster.create("t")[0], b"x")
        reading = Reading(cluster).begin()
        await until(lambda reading=reading: len(reading.seen) == 1)
        await reading.rest()
        if blow == "kill":
            cluster.kill(1)
        elif blow == "hang":
            cluster.hung.add(1)
        else:
            cluster.coordinator.missing.add("g")
            reading.consumer.client.coordinators.clear()
        began = seconds()
        await reading.consumer.close(timeout_ms=3000)
        assert seconds() - began < 3.5, blow


# --- static members -------------------------------------------------------------------------------


@on_virtual_time
async def test_static_member_gets_its_partitions_back_without_a_rebalance() -> None:
    cluster = FakeCluster()
    log = cluster.create("t", 4)
    one = Reading(cluster, group_instance_id="one").begin()
    two = Reading(cluster, group_instance_id="two").begin()
    await shared([one, two], 4)
    before, shown = one.consumer.assignment(), list(two.notes.shown)
    generation = cluster.coordinator.groups["g"].generation
    await one.close()
    assert cluster.sent(LeaveGroupRequest) == []
    await asyncio.sleep(3)
    one = Reading(cluster, group_instance_id="one").begin()
    await until(lambda: one.consumer.assignment() == before)
    assert two.notes.shown == shown and cluster.coordinator.groups["g"].generation == generation
    for partition in log:
        put(partition, b"x")
    await until(lambda: len(one.seen) == 2 and len(two.seen) == 2)
    await one.close()
    await two.close()


@on_virtual_time
async def test_static_member_without_polls_is_removed_after_its_session() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    slow = Reading(cluster, group_instance_id="one", max_poll_interval_ms=5000).begin()
    other = Reading(cluster, group_instance_id="two", max_poll_interval_ms=5000).begin()
    await shared([slow, other], 2)
    await slow.rest()
    began = seconds()
    await other.owns(0, 1)
    assert 10 < seconds() - began < 5 + 10 + 5
    assert cluster.sent(LeaveGroupRequest) == []
    slow.poll_on()
    await shared([slow, other], 2)
    await slow.close()
    await other.close()


@on_virtual_time
async def test_a_listener_may_close_its_consumer() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    reading = Reading(cluster, notes=Notes(lambda what: reading.consumer.close()))
    reading.consumer.subscribe(["t"], listener=reading.notes)
    with pytest.raises(ClosedError):
        await reading.consumer.poll(5000)
    assert cluster.coordinator.groups["g"].members == {}


@on_virtual_time
async def test_second_consumer_with_an_instance_id_fences_the_first() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    first = Reading(cluster, group_instance_id="one").begin()
    await first.owns(0, 1)
    second = Reading(cluster, group_instance_id="one").begin()
    await second.owns(0, 1)
    await until(lambda: len(first.errors) > 5)
    assert {type(error) for error in first.errors} == {FencedInstanceIdError}
    assert "another consumer runs as 'one'" in str(first.errors[0])
    assert ("lost", parts(0, 1)) in first.notes.shown and first.consumer.assignment() == set()
    with pytest.raises(FencedInstanceIdError):
        await first.consumer.commit({P0: OffsetAndMetadata(0)})
    assert second.errors == [] and second.consumer.assignment() == parts(0, 1)
    await first.close()
    await second.close()
