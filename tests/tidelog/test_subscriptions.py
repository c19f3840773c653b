"""Consumers that share topics: who gets what, from where, and what becomes of it when members come and go."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.group_stories import STRATEGIES, Notes, Reading, parts, shared
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    ClosedError,
    CommitFailedError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    IllegalStateError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidTopicError,
    OffsetMetadataTooLargeError,
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    TimeoutError,
)
from tidelog.group_messages import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tidelog.messages import FetchRequest, OffsetForLeaderEpochRequest
from tidelog.model import OffsetAndMetadata, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(cluster: FakeCluster) -> dict[TopicPartition, int]:
    return {tp: each.committed_offset for tp, each in cluster.coordinator.committed["g"].items()}


# --- sharing ---------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_member_alone_gets_every_partition_and_its_records() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 4):
        put(partition, b"a", b"b")
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.subscribe(["t"])
        assert consumer.subscription() == {"t"} and consumer.assignment() == set()
        assert consumer.group_metadata() == ("g", -1, "", None)
        assert len(await read(consumer, 8)) == 8
        assert consumer.assignment() == parts(0, 1, 2, 3)
        (member_id,) = cluster.coordinator.groups["g"].members
        assert consumer.group_metadata() == ("g", 1, member_id, None)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_members_share_and_hand_over_without_gap_or_repetition(strategy: str) -> None:
    @on_virtual_time
    async def story() -> None:
        cluster = FakeCluster()
        log = cluster.create("t", 4)
        first = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await first.owns(0, 1, 2, 3)
        expected = []

        async def write() -> None:
            for number in range(200):
                for partition in log:
                    put(partition, b"%d" % number)
                    expected.append((TopicPartition("t", partition.number), number))
                await asyncio.sleep(0.1)

        writing = asyncio.create_task(write())
        second = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await shared([first, second], 4)
        assert len(first.consumer.assignment()) == len(second.consumer.assignment()) == 2
        third = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await shared([first, second, third], 4)
        await first.close()
        await shared([second, third], 4)
        await second.close()
        await third.owns(0, 1, 2, 3)
        await writing
        await until(lambda: len(first.seen + second.seen + third.seen) >= len(expected))
        assert sorted(first.seen + second.seen + third.seen) == sorted(expected)
        await third.close()
        assert committed(cluster) == {TopicPartition("t", n): 200 for n in range(4)}

    story()


@on_virtual_time
async def test_who_has_gone_silent_is_missed_after_its_session_and_its_records_come_from_its_last_commit_on() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 10)
    lost, left = Reading(cluster).begin(), Reading(cluster).begin()
    await shared([lost, left], 2)
    await until(lambda: len(lost.seen) == 10 and len(left.seen) == 10)
    await asyncio.sleep(6)  # auto-commit
    for partition in cluster.partitions["t"]:
        put(partition, *[b"y"] * 5)
    await until(lambda: len(lost.seen) == 15)
    began = seconds()
    await lost.die()
    await left.owns(0, 1)
    assert seconds() - began < 10 + 5
    await until(lambda: len(left.seen) == 10 + 5 + 5)
    theirs = [offset for tp, offset in left.seen if tp == lost.seen[0][0]]
    assert theirs == [10, 11, 12, 13, 14]
    await left.close()


@on_virtual_time
async def test_an_eager_member_gives_up_everything_and_a_cooperative_one_only_what_goes() -> None:
    told = {}
    for strategy in ("sticky", "cooperative-sticky"):
        cluster = FakeCluster()
        cluster.create("t", 4)
        first = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await first.owns(0, 1, 2, 3)
        second = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await shared([first, second], 4)
        told[strategy] = first.notes.told
        kept = first.consumer.assignment()
        assert len(kept) == 2
        await first.close()
        await second.close()
    eager, cooperative = told["sticky"], told["cooperative-sticky"]
    assert eager[:3] == [("assigned", parts(0, 1, 2, 3)), ("revoked", parts(0, 1, 2, 3)), ("assigned", kept)]
    assert cooperative[0] == ("assigned", parts(0, 1, 2, 3))
    assert ("revoked", parts(0, 1, 2, 3) - kept) in cooperative
    assert ("revoked", parts(0, 1, 2, 3)) not in cooperative
    assert [each for what, each in cooperative[1:] if what == "assigned" and each] == []


@on_virtual_time
async def test_a_cooperative_member_reads_on_what_it_keeps_while_others_join() -> None:
    cluster = FakeCluster()
    log = cluster.create("t", 2)
    first = Reading(cluster, partition_assignment_strategy="cooperative-sticky").begin()
    await first.owns(0, 1)
    # Who comes next does not answer: the round lasts until it is given up.
    second = Reading(cluster, partition_assignment_strategy="cooperative-sticky", max_poll_interval_ms=8000)
    second.consumer.subscribe(["t"])
    polling = asyncio.create_task(second.consumer.poll(1000))
    await until(lambda: cluster.coordinator.groups["g"].state.value == "PreparingRebalance")
    before = len(first.seen)
    put(log[0], b"a")
    put(log[1], b"b")
    await until(lambda: len(first.seen) == before + 2, timeout_s=5)
    await polling
    await second.close()
    await first.close()


# --- listeners -------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_listener_may_commit_what_it_gives_up_and_seek_in_what_it_gets() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, *[b"x"] * 10)

    class Careful(Notes):
        async def on_partitions_revoked(self, revoked: object) -> None:
            await first.consumer.commit()
            assert committed(cluster).keys() >= first.consumer.assignment()

        async def on_partitions_assigned(self, assigned: object) -> None:
            if not first.seen:
                first.consumer.seek(P1, 7)

    first = Reading(cluster, notes=Careful(), enable_auto_commit=False)
    first.begin()
    await until(lambda: len(first.seen) == 13)
    second = Reading(cluster, enable_auto_commit=False).begin()
    await shared([first, second], 2)
    assert committed(cluster) == {P0: 10, P1: 10}
    await asyncio.sleep(3)
    assert second.seen == [] and first.errors == []
    await first.close()
    await second.close()


@on_virtual_time
async def test_what_a_listener_raises_comes_out_of_poll_and_the_rebalance_goes_on() -> None:
    cluster = FakeCluster()
    for partition in cluster.create("t", 2):
        put(partition, b"x")

    def fail(what: str) -> None:
        raise ZeroDivisionError(what)

    first = Reading(cluster, notes=Notes(fail)).begin()
    await until(lambda: len(first.seen) == 2)
    second = Reading(cluster).begin()
    await shared([first, second], 2)
    await until(lambda: len(first.errors) >= 3)
    assert [str(error) for error in first.errors[:3]] == ["assigned", "revoked", "assigned"]
    await first.rest()
    with pytest.raises(ZeroDivisionError, match="revoked"):
        await first.consumer.close()
    await second.owns(0, 1)
    await second.close()


@on_virtual_time
async def test_a_listener_that_polls_is_told_that_it_must_not() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    reading = Reading(cluster, notes=Notes(lambda what: reading.consumer.poll()))
    reading.begin()
    await until(lambda: bool(reading.errors))
    assert isinstance(reading.errors[0], IllegalStateError) and "must not poll" in str(reading.errors[0])
    await reading.rest()
    with pytest.raises(IllegalStateError):
        await reading.consumer.close()


@on_virtual_time
async def test_a_poll_that_is_cancelled_in_a_listener_leaves_the_rebalance_whole() -> None:
    cluster = FakeCluster()
    log = cluster.create("t", 2)

    async def never(what: str) -> None:
        if what == "revoked":
            await asyncio.sleep(3600)

    first = Reading(cluster, notes=Notes(lambda what: never(what))).begin()
    await first.owns(0, 1)
    second = Reading(cluster).begin()
    await until(lambda: ("revoked", parts(0, 1)) in first.notes.told)
    await first.rest()
    first.poll_on()
    await shared([first, second], 2)
    for partition in log:
        put(partition, b"a")
    await until(lambda: len(first.seen) + len(second.seen) == 2)
    await first.rest()
    first.notes._then = lambda what: None
    await first.close()
    await second.close()


# --- where a member begins, and what it commits -------------------------------------------------------


@on_virtual_time
async def test_a_member_begins_where_the_group_left_off_in_the_log_of_that_epoch() -> None:
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
async def test_nothing_is_fetched_before_it_is_known_where_the_group_left_off() -> None:
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
async def test_where_nothing_is_committed_the_reset_policy_says_where_to_begin() -> None:
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
async def test_a_committed_position_that_cannot_be_asked_for_is_an_error_of_poll_and_asked_for_again() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"x")
    cluster.coordinator.missing.add("g")
    async with a_consumer(cluster, group_id="g", default_api_timeout_ms=2000) as consumer:
        consumer.assign([P0])
        with pytest.raises(TimeoutError, match=r"group 'g': no coordinator answered in 20\d\d ms"):
            await consumer.poll(5000)
        cluster.coordinator.missing.clear()
        assert len(await read(consumer, 1)) == 1


@on_virtual_time
async def test_a_seek_is_not_undone_by_the_answer_of_what_was_committed() -> None:
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
async def test_auto_commit_reaches_as_far_as_polls_have_returned_when_the_next_one_comes() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 10)
    async with a_consumer(cluster, group_id="g", max_poll_records=4) as consumer:
        consumer.subscribe(["t"])
        assert len(await read(consumer, 4)) == 4
        await asyncio.sleep(20)
        assert committed(cluster) == {}  # they may be worked on still
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
async def test_of_an_iteration_only_what_was_handed_out_is_committed() -> None:
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
async def test_by_hand_assigned_partitions_are_committed_too_without_any_member() -> None:
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
async def test_who_is_no_member_cannot_commit_for_a_group_that_has_some() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    member = Reading(cluster).begin()
    await member.owns(0)
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as stranger:
        stranger.assign([P0])
        with pytest.raises(CommitFailedError, match="has members that were assigned"):
            await stranger.commit({P0: OffsetAndMetadata(0)})
    await member.close()


@on_virtual_time
async def test_a_commit_is_not_overtaken_by_an_earlier_one_that_is_still_under_way() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, *[b"x"] * 5)
    async with a_consumer(cluster, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([P0])
        cluster.coordinator.loading.add("g")
        first = asyncio.create_task(consumer.commit({P0: OffsetAndMetadata(3)}))
        await asyncio.sleep(0.3)
        second = asyncio.create_task(consumer.commit({P0: OffsetAndMetadata(5)}))
        with pytest.raises(TimeoutError, match="an earlier commit is under way"):
            await consumer.commit({P0: OffsetAndMetadata(9)}, timeout_ms=500)
        cluster.coordinator.loading.clear()
        await asyncio.gather(first, second)
    assert [offset for _, _, offset in cluster.coordinator.history] == [3, 5]


@on_virtual_time
async def test_a_commit_that_waited_for_its_turn_is_not_made_in_the_name_of_another_generation() -> None:
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


# --- what goes wrong ---------------------------------------------------------------------------------


@on_virtual_time
async def test_who_does_not_poll_leaves_its_group_and_joins_again_when_it_does() -> None:
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
    assert ("lost", parts(0, 1)) in slow.notes.told
    await until(lambda: len(other.seen) >= 6)  # nothing was committed
    await slow.close()
    await other.close()


@on_virtual_time
async def test_a_heartbeat_that_is_not_answered_does_not_keep_a_member_in_that_does_not_poll() -> None:
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
async def test_a_member_that_is_busy_for_long_stays_as_long_as_it_may() -> None:
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
def test_the_coordinator_may_move_in_the_midst_of_anything(kind: type, forget: bool, strategy: str) -> None:
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
async def test_the_coordinators_broker_may_die() -> None:
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
async def test_refusals_that_are_final_come_out_of_poll() -> None:
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
async def test_a_group_without_a_coordinator_is_told_of_and_joined_once_there_is_one() -> None:
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
async def test_while_a_rebalance_is_under_way_a_commit_says_what_to_do() -> None:
    cluster = FakeCluster()
    put(cluster.create("t", 2)[0], b"x")
    first = Reading(cluster, enable_auto_commit=False).begin()
    await until(lambda: len(first.seen) == 1)
    hanging = a_consumer(cluster, group_id="g")
    hanging.subscribe(["t"])
    await hanging.poll(10)
    await until(lambda: first.consumer.assignment() == set())
    with pytest.raises(RebalanceInProgressError, match="poll until it is over"):
        await first.consumer.commit({P0: OffsetAndMetadata(1)})
    await hanging.close()
    await first.close()


@on_virtual_time
async def test_a_consumer_that_closes_while_it_joins_is_not_waited_for() -> None:
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
async def test_a_close_ends_in_time_whatever_has_become_of_the_coordinator() -> None:
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


# --- static members ----------------------------------------------------------------------------------


@on_virtual_time
async def test_a_static_member_finds_its_partitions_again_and_nobody_else_notices() -> None:
    cluster = FakeCluster()
    log = cluster.create("t", 4)
    one = Reading(cluster, group_instance_id="one").begin()
    two = Reading(cluster, group_instance_id="two").begin()
    await shared([one, two], 4)
    before, told = one.consumer.assignment(), list(two.notes.told)
    generation = cluster.coordinator.groups["g"].generation
    await one.close()
    assert cluster.sent(LeaveGroupRequest) == []
    await asyncio.sleep(3)
    one = Reading(cluster, group_instance_id="one").begin()
    await until(lambda: one.consumer.assignment() == before)
    assert two.notes.told == told and cluster.coordinator.groups["g"].generation == generation
    for partition in log:
        put(partition, b"x")
    await until(lambda: len(one.seen) == 2 and len(two.seen) == 2)
    await one.close()
    await two.close()


@on_virtual_time
async def test_a_static_member_that_does_not_poll_is_missed_after_its_session() -> None:
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
async def test_of_two_with_one_instance_id_the_first_is_fenced_and_stays_so() -> None:
    cluster = FakeCluster()
    cluster.create("t", 2)
    first = Reading(cluster, group_instance_id="one").begin()
    await first.owns(0, 1)
    second = Reading(cluster, group_instance_id="one").begin()
    await second.owns(0, 1)
    await until(lambda: len(first.errors) > 5)
    assert {type(error) for error in first.errors} == {FencedInstanceIdError}
    assert "another consumer runs as 'one'" in str(first.errors[0])
    assert ("lost", parts(0, 1)) in first.notes.told and first.consumer.assignment() == set()
    assert second.errors == [] and second.consumer.assignment() == parts(0, 1)
    await first.close()
    await second.close()


# --- topics ------------------------------------------------------------------------------------------


@on_virtual_time
async def test_a_pattern_follows_topics_that_come() -> None:
    cluster = FakeCluster()
    cluster.create("log-a", 2)
    cluster.create("other")
    reading = Reading(cluster, metadata_max_age_ms=5000).begin(pattern="log-.*")
    await until(lambda: reading.consumer.assignment() == parts(0, 1, topic="log-a"))
    assert reading.consumer.subscription() == {"log-a"}
    put(cluster.create("log-b")[0], b"x")
    began = seconds()
    await until(lambda: len(reading.seen) == 1)
    assert seconds() - began < 7
    assert reading.consumer.subscription() == {"log-a", "log-b"}
    await reading.close()


@on_virtual_time
async def test_partitions_that_are_added_and_topics_that_are_made_later_are_assigned() -> None:
    cluster = FakeCluster()
    first = Reading(cluster, metadata_max_age_ms=5000).begin()
    second = Reading(cluster, metadata_max_age_ms=5000).begin()
    await until(lambda: len(cluster.coordinator.groups.get("g", type("", (), {"members": ()})).members) == 2)
    await asyncio.sleep(10)
    put(cluster.create("t", 2)[0], b"x")
    await shared([first, second], 2)
    cluster.create("t", 4)
    await shared([first, second], 4)
    await first.close()
    await second.close()


@on_virtual_time
async def test_a_leader_also_sees_topics_come_that_others_are_subscribed_to() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    leader = Reading(cluster).begin(["t"])
    await leader.owns(0)
    other = Reading(cluster).begin(["u"])
    await until(lambda: len(cluster.coordinator.groups["g"].members) == 2)
    await asyncio.sleep(30)
    cluster.create("u")
    await until(lambda: other.consumer.assignment() == parts(0, topic="u"), timeout_s=10)
    assert leader.consumer.assignment() == parts(0)
    await other.close()
    await leader.close()


@on_virtual_time
async def test_a_topic_that_is_deleted_is_told_of_and_given_up() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    (kept,) = cluster.create("u")
    reading = Reading(cluster, metadata_max_age_ms=5000).begin(["t", "u"])
    await until(lambda: len(reading.consumer.assignment()) == 2)
    del cluster.partitions["t"]
    await until(lambda: reading.consumer.assignment() == parts(0, topic="u"))
    assert [str(error) for error in reading.errors] == ["topic 't' does not exist"]
    put(kept, b"x")
    await until(lambda: len(reading.seen) == 1)
    await reading.close()


@on_virtual_time
async def test_another_subscription_takes_the_place_of_the_first() -> None:
    for strategy in ("range", "cooperative-sticky"):
        cluster = FakeCluster()
        cluster.create("t", 2)
        cluster.create("u", 2)
        reading = Reading(cluster, partition_assignment_strategy=strategy).begin(["t"])
        await reading.owns(0, 1)
        reading.consumer.subscribe(["t", "u"], listener=reading.notes)
        wanted = parts(0, 1) | parts(0, 1, topic="u")
        await until(lambda reading=reading, wanted=wanted: reading.consumer.assignment() == wanted)
        reading.consumer.subscribe(["u"], listener=reading.notes)
        await until(lambda reading=reading: reading.consumer.assignment() == parts(0, 1, topic="u"))
        await reading.rest()
        await reading.consumer.unsubscribe()
        assert reading.consumer.assignment() == set() and reading.consumer.subscription() == set()
        assert cluster.coordinator.groups["g"].members == {}
        reading.begin(["t"])
        await reading.owns(0, 1)
        await reading.close()


@on_virtual_time
async def test_what_does_not_go_together_is_refused() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster) as consumer:
        for call in (lambda: consumer.subscribe(["t"]), consumer.commit, lambda: consumer.committed([P0])):
            with pytest.raises(InvalidGroupIdError, match="give the consumer a group_id"):
                if (waiting := call()) is not None:
                    await waiting
    with pytest.raises(InvalidGroupIdError, match="must not be empty"):
        a_consumer(cluster, group_id="")
    async with a_consumer(cluster, group_id="g") as consumer:
        consumer.assign([P0])
        with pytest.raises(IllegalStateError, match="unsubscribe before you subscribe"):
            consumer.subscribe(["t"])
        await consumer.unsubscribe()
        consumer.subscribe(["t"])
        with pytest.raises(IllegalStateError, match="unsubscribe before you assign"):
            consumer.assign([P0])
        with pytest.raises(IllegalStateError, match="exclude each other"):
            consumer.subscribe(pattern="t.*")
        for arguments, error in (
            ({"topics": "t"}, ValueError),
            ({"topics": []}, ValueError),
            ({"topics": ["t"], "pattern": "t"}, ValueError),
            ({"pattern": "("}, ValueError),
            ({"topics": ["t t"]}, InvalidTopicError),
        ):
            with pytest.raises(error):
                consumer.subscribe(**arguments)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="has a method on_partitions_revoked"):
            consumer.subscribe(["t"], listener=print)  # type: ignore[arg-type]
        for offsets in ({P0: 7}, {P0: OffsetAndMetadata(-1)}, {P0: OffsetAndMetadata(1, None)}):
            with pytest.raises(Exception, match="t-0: "):
                await consumer.commit(offsets)  # type: ignore[arg-type]
    assert len(cluster.sent(OffsetFetchRequest)) == 0
