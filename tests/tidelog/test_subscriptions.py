"""Consumers that share topics: their assignments, and the calls of their listeners."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_stories import STRATEGIES, Notes, Reading, committed, parts, shared
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    IllegalStateError,
    InvalidGroupIdError,
    InvalidTopicError,
)
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import OffsetAndMetadata, TopicPartition
from tidelog.protocol.group_messages import OffsetFetchRequest

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


# --- sharing --------------------------------------------------------------------------------------


@on_virtual_time
async def test_only_member_gets_every_partition_and_its_records() -> None:
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
def test_members_share_and_hand_over_without_loss_or_repetition(strategy: str) -> None:
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
async def test_records_of_a_silent_member_continue_from_its_last_commit() -> None:
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
async def test_eager_member_revokes_all_and_cooperative_only_moved_partitions() -> None:
    shown = {}
    for strategy in ("sticky", "cooperative-sticky"):
        cluster = FakeCluster()
        cluster.create("t", 4)
        first = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await first.owns(0, 1, 2, 3)
        second = Reading(cluster, partition_assignment_strategy=strategy).begin()
        await shared([first, second], 4)
        shown[strategy] = first.notes.shown
        kept = first.consumer.assignment()
        assert len(kept) == 2
        await first.close()
        await second.close()
    eager, cooperative = shown["sticky"], shown["cooperative-sticky"]
    assert eager[:3] == [("assigned", parts(0, 1, 2, 3)), ("revoked", parts(0, 1, 2, 3)), ("assigned", kept)]
    assert cooperative[0] == ("assigned", parts(0, 1, 2, 3))
    assert ("revoked", parts(0, 1, 2, 3) - kept) in cooperative
    assert ("revoked", parts(0, 1, 2, 3)) not in cooperative
    assert [each for what, each in cooperative[1:] if what == "assigned" and each] == []


@on_virtual_time
async def test_cooperative_member_reads_kept_partitions_during_a_join() -> None:
    cluster = FakeCluster()
    log = cluster.create("t", 2)
    first = Reading(cluster, partition_assignment_strategy="cooperative-sticky").begin()
    await first.owns(0, 1)
    # The next member does not answer, so that the rebalance lasts until its timeout.
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


# --- listeners ------------------------------------------------------------------------------------


@on_virtual_time
async def test_listener_may_commit_revoked_and_seek_in_added_partitions() -> None:
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
async def test_poll_raises_listener_errors_and_the_rebalance_continues() -> None:
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
async def test_listener_must_not_poll() -> None:
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
async def test_poll_cancelled_in_a_listener_leaves_the_rebalance_intact() -> None:
    cluster = FakeCluster()
    log = cluster.create("t", 2)

    async def never(what: str) -> None:
        if what == "revoked":
            await asyncio.sleep(3600)

    first = Reading(cluster, notes=Notes(lambda what: never(what))).begin()
    await first.owns(0, 1)
    second = Reading(cluster).begin()
    await until(lambda: ("revoked", parts(0, 1)) in first.notes.shown)
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


# --- topics ---------------------------------------------------------------------------------------


@on_virtual_time
async def test_pattern_subscribes_to_new_topics() -> None:
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
async def test_pattern_for_every_name_excludes_internal_topics() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.create(OFFSETS_TOPIC)
    reading = Reading(cluster).begin(pattern=".*")
    await reading.owns(0)
    assert reading.consumer.subscription() == {"t"}
    await reading.close()


@on_virtual_time
async def test_added_partitions_and_later_topics_are_assigned() -> None:
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
async def test_leader_notices_new_topics_of_other_members() -> None:
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
async def test_deleted_topic_is_reported_and_revoked() -> None:
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
async def test_recreated_topic_is_assigned_again_without_a_metadata_expiry() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    cluster.create("u")
    reading = Reading(cluster, metadata_max_age_ms=3_600_000).begin(["t", "u"])
    await until(lambda: len(reading.consumer.assignment()) == 2)
    del cluster.partitions["t"]
    await until(lambda: reading.consumer.assignment() == parts(0, topic="u"))
    await asyncio.sleep(30)
    put(cluster.create("t")[0], b"x")
    await until(lambda: len(reading.consumer.assignment()) == 2, timeout_s=10)
    await until(lambda: len(reading.seen) == 1)
    await reading.close()


@on_virtual_time
async def test_new_subscription_replaces_the_first() -> None:
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
async def test_incompatible_subscriptions_are_refused() -> None:
    cluster = FakeCluster()
    cluster.create("t")
    async with a_consumer(cluster) as consumer:
        for call in (consumer.commit, lambda: consumer.committed([P0])):
            with pytest.raises(InvalidGroupIdError, match="give the consumer a group_id"):
                await call()  # type: ignore[operator]
    with pytest.raises(InvalidGroupIdError, match="group_id must be None or a group's name"):
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
        with pytest.raises(TypeError, match="listener must have a method on_partitions_revoked"):
            consumer.subscribe(["t"], listener=print)  # type: ignore[arg-type]
        for offsets in ({P0: 7}, {P0: OffsetAndMetadata(-1)}, {P0: OffsetAndMetadata(1, None)}):
            with pytest.raises((TypeError, ValueError), match=r"offsets\[t-0\]"):
                await consumer.commit(offsets)  # type: ignore[arg-type]
    assert len(cluster.sent(OffsetFetchRequest)) == 0
