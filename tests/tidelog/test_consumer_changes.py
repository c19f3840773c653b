"""Test a reader during changes: truncated logs, recreated topics, added and deleted partitions."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.clients import a_consumer, put, read, seconds
from tests.tidelog.fake_cluster import FakeCluster, FakePartition, Fault
from tests.virtual_time import on_virtual_time, until
from tidelog.aio import Consumer
from tidelog.errors import (
    BrokerError,
    InconsistentTopicIdError,
    LogTruncationError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import OffsetCommitPartition
from tidelog.protocol.messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    Request,
)
from tidelog.records.header import read_header

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def batches(partition: FakePartition, *values: bytes) -> None:
    for value in values:
        put(partition, value)


# --- a log that was truncated by an unclean election ----------------------------------------------


@on_virtual_time
async def test_reader_goes_back_to_where_the_new_leaders_log_diverges() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0", b"1", b"lost 2", b"lost 3")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 4)
        partition.elect_uncleanly(2, keeping=2)
        batches(partition, b"new 2", b"new 3", b"new 4")  # the position, 4, is in range again
        assert await read(consumer, 3) == [(0, 2, b"new 2"), (0, 3, b"new 3"), (0, 4, b"new 4")]


@on_virtual_time
async def test_reader_without_a_policy_gets_log_truncation_error_until_it_seeks() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0", b"1", b"lost 2")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 3)
        partition.elect_uncleanly(2, keeping=1)
        batches(partition, b"new 1", b"new 2", b"new 3")
        for _ in range(2):
            with pytest.raises(LogTruncationError, match=r"t-0: .* from offset 1 on") as raised:
                await consumer.poll(5000)
            assert (raised.value.topic_partition, raised.value.offset, raised.value.divergent_offset) == (P0, 3, 1)
        assert await consumer.position(P0) == 3
        consumer.seek(P0, 1)
        assert (await read(consumer, 3))[0] == (0, 1, b"new 1")


@on_virtual_time
async def test_fetched_data_is_dropped_if_the_new_leader_lacks_it() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, *[b"%d" % number for number in range(6)])
    async with a_consumer(cluster, max_partition_fetch_bytes=1) as consumer:
        consumer.assign([P0])
        await read(consumer, 2)
        await asyncio.sleep(1)
        assert await consumer.position(P0) == 2  # and 2 and 3 are here already
        partition.elect_uncleanly(2, keeping=3)
        batches(partition, b"new 3", b"new 4")
        assert [record.value for record in (await consumer.poll(5000, max_records=1))[P0]] == [b"2"]
        await asyncio.sleep(1)  # there is room for more, of a leader that is asked first
        assert await read(consumer, 2) == [(0, 3, b"new 3"), (0, 4, b"new 4")]


@on_virtual_time
async def test_position_is_validated_once_per_leader_before_the_first_fetch() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        assert cluster.sent(OffsetForLeaderEpochRequest) == [], "nothing was read yet that could be lost"
        for number in (1, 2):
            cluster.requests.clear()
            cluster.move(partition)
            batches(partition, b"%d" % number)
            assert (await read(consumer, 1))[0][1] == number
            await consumer.poll(2000)
            (asked,) = cluster.sent(OffsetForLeaderEpochRequest)
            assert isinstance(asked, OffsetForLeaderEpochRequest)
            (each,) = asked.partitions
            assert (each.current_leader_epoch, each.leader_epoch, asked.replica_id) == (number, number - 1, -1)
            new = [
                request
                for _, request in cluster.requests[cluster.requests.index((partition.leader, asked)) :]
                if isinstance(request, FetchRequest)
            ]
            assert all(request.partitions[0].current_leader_epoch == number for request in new)


@on_virtual_time
async def test_unanswered_validation_is_repeated_and_a_failed_one_is_reported() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        faults = iter([Fault.LOSE_REQUEST, Fault.LOSE_ANSWER, Fault.MOVE_LEADERS])
        cluster.fault_of = lambda broker, request: (
            next(faults, None) if isinstance(request, OffsetForLeaderEpochRequest) else None
        )
        cluster.move(partition)
        batches(partition, b"1")
        assert await read(consumer, 1) == [(0, 1, b"1")]
        cluster.refusals[OffsetForLeaderEpochRequest].append(UnknownServerError.code)
        cluster.move(partition)
        batches(partition, b"2")
        with pytest.raises(UnknownServerError, match="t-0"):
            await consumer.poll(5000)
        assert await read(consumer, 1) == [(0, 2, b"2")]


@on_virtual_time
async def test_seek_during_the_validation_wins() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0", b"1", b"2")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 3)
        cluster.fault_of = lambda broker, request: (
            Fault.DELAY if isinstance(request, OffsetForLeaderEpochRequest) else None
        )
        partition.elect_uncleanly(2, keeping=1)
        batches(partition, b"new 1", b"new 2", b"new 3", b"new 4")
        await consumer.poll(1000)
        assert cluster.sent(OffsetForLeaderEpochRequest)
        consumer.seek(P0, 4)
        assert (await read(consumer, 1))[0] == (0, 4, b"new 4")
        await asyncio.sleep(6)
        assert await consumer.position(P0) == 5


# --- a log that also differs below the position ----------------------------------------------------


def two_logs(cluster: FakeCluster) -> tuple[FakePartition, list[bytes]]:
    """A partition whose uncleanly elected leader has other records 1 and 2; and the log of the leader before, which has
    its own records 1 to 5.
    """
    (partition,) = cluster.create("t")
    batches(partition, *[b"%d" % number for number in range(6)])
    earlier = partition.batches
    partition.elect_uncleanly(2, keeping=1)
    batches(partition, b"another 1", b"another 2")
    return partition, earlier


@on_virtual_time
async def test_position_within_a_different_log_goes_back_to_the_divergence() -> None:
    cluster = FakeCluster()
    partition, earlier = two_logs(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        assert (await read(consumer, 3))[-1] == (0, 2, b"another 2")
        partition.elect_another(1, earlier)
        assert await read(consumer, 5) == [(0, number, b"%d" % number) for number in range(1, 6)]


@on_virtual_time
async def test_log_truncation_error_has_the_first_divergent_offset() -> None:
    cluster = FakeCluster()
    partition, earlier = two_logs(cluster)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 3)
        partition.elect_another(1, earlier)
        for _ in range(2):
            with pytest.raises(LogTruncationError, match=r"t-0: .* from offset 1 on") as raised:
                await consumer.poll(5000)
            assert (raised.value.offset, raised.value.divergent_offset) == (3, 1)
        consumer.seek(P0, 1)
        assert (await read(consumer, 5))[0] == (0, 1, b"1")


@on_virtual_time
async def test_reader_goes_back_epoch_by_epoch() -> None:
    cluster = FakeCluster()
    partition, earlier = two_logs(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        cluster.move(partition)
        batches(partition, b"another 3", b"another 4")
        await read(consumer, 5)
        partition.elect_another(1, earlier)
        assert await read(consumer, 5) == [(0, number, b"%d" % number) for number in range(1, 6)]


@on_virtual_time
async def test_a_log_from_which_compaction_took_all_of_an_epoch_is_no_other_one() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0", b"1")
    partition.elect(2)
    batches(partition, b"2", b"3")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 4)
        partition.elect(3)
        batches(partition, b"4")
        partition.elect_another(1, partition.batches[:2] + partition.batches[4:])
        assert partition.end_of_epoch(1) == (0, 4), "as if it had gone on in the epoch before"
        assert await read(consumer, 1) == [(0, 4, b"4")]


@on_virtual_time
async def test_an_epoch_in_which_nothing_was_read_is_not_missed() -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"0", b"1")
    partition.elect(2)
    async with (
        a_consumer(cluster, auto_offset_reset="none") as at_the_end,
        a_consumer(cluster, auto_offset_reset="none", group_id="g") as member,
    ):
        at_the_end.assign([P0])
        at_the_end.seek_to_end(P0)
        assert await at_the_end.position(P0) == 2
        cluster.coordinator.committed["g"][P0] = OffsetCommitPartition("t", 0, 2, 1)
        member.assign([P0])
        assert await member.position(P0) == 2
        partition.elect(3)
        batches(partition, b"2")
        assert partition.end_of_epoch(1) == (0, 2)
        for consumer in (at_the_end, member):
            assert await read(consumer, 1) == [(0, 2, b"2")]
    assert {each.partitions[0].leader_epoch for each in cluster.sent(OffsetForLeaderEpochRequest)} == {1}  # type: ignore[attr-defined]


@on_virtual_time
async def test_records_that_the_new_leader_deleted_do_not_count_as_divergence() -> None:
    cluster = FakeCluster()
    partition, earlier = two_logs(cluster)
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 3)
        partition.first_offset = 3
        partition.elect_another(1, earlier)
        assert (await read(consumer, 3))[0] == (0, 3, b"3")


@on_virtual_time
async def test_validation_waits_until_the_new_leader_may_show_the_record_before() -> None:
    cluster = FakeCluster()
    partition, earlier = two_logs(cluster)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 3)
        partition.high_watermark = 2
        partition.elect_another(1, earlier)
        assert await consumer.poll(2000) == {}
        assert len(cluster.sent(OffsetForLeaderEpochRequest)) < 100
        partition.high_watermark = None
        assert (await read(consumer, 5))[0] == (0, 1, b"1")


@given(
    story=st.lists(
        st.tuples(st.sampled_from(["write", "cut", "keep", "return", "move", "read"]), st.integers(0, 4)), max_size=30
    ),
    ahead=st.booleans(),
)
@on_virtual_time
async def test_reader_ends_up_with_the_present_log_after_any_truncation(
    story: list[tuple[str, int]], ahead: bool
) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    seen: dict[int, bytes | None] = {}
    written = 0
    away: list[list[bytes]] = []
    async with a_consumer(cluster, max_partition_fetch_bytes=1 << 20 if ahead else 1) as consumer:
        consumer.assign([P0])

        async def read_on(time_limit_ms: int, count: int) -> bool:
            polled = await consumer.poll(time_limit_ms, max_records=count)
            seen.update({record.offset: record.value for each in polled.values() for record in each})
            return bool(polled)

        for what, number in story:
            if what == "write":
                for _ in range(number):
                    batches(partition, b"%d" % written)
                    written += 1
            elif what == "cut":
                keeping = max(0, len(partition.batches) - number)
                partition.elect_uncleanly(partition.leader % 3 + 1, keeping)
            elif what == "keep":
                away.append(list(partition.batches))
            elif what == "return" and away:
                partition.elect_another(partition.leader % 3 + 1, away[number % len(away)])
            elif what == "move":
                cluster.move(partition)
            elif what == "read":
                await read_on(300, number + 1)
        batches(partition, b"the last")
        while await read_on(3000, 500):
            pass
    log = {record.offset: record.value for record in partition.records()}
    assert {offset: seen.get(offset) for offset in log} == log


@given(
    story=st.lists(
        st.tuples(st.sampled_from(["lead", "compact", "trim", "read", "to end", "to time"]), st.integers(0, 4)),
        max_size=30,
    )
)
@on_virtual_time
async def test_compaction_and_deletion_never_look_like_divergence(
    story: list[tuple[str, int]],
) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    batches(partition, b"first")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        for what, number in [*story, ("lead", 1), ("read", 0)]:
            last = partition.end_offset - 1
            if what == "lead":
                cluster.move(partition)
                batches(partition, *[b"x"] * number)
            elif what == "compact":
                # The leader is like a rebuilt replica, which does not know an epoch whose records are gone.
                *older, newest = partition.batches
                gone = partition.epoch - number
                older = [batch for batch in older if read_header(batch).partition_leader_epoch != gone]
                partition.batches[:] = [*older, newest]
            elif what == "trim":
                first = partition.first_offset = min(partition.first_offset + number, last)
                partition.batches[:] = [batch for batch in partition.batches if read_header(batch).last_offset >= first]
            elif what == "to end":
                consumer.seek_to_end(P0)
            elif what == "to time":
                await consumer.seek_to_time(0)
            else:
                try:
                    await consumer.poll(300)
                except OffsetOutOfRangeError as error:
                    assert not isinstance(error, LogTruncationError)
                    consumer.seek(P0, partition.first_offset)


# --- a leader that was replaced without knowing it -------------------------------------------------


def a_group_that_read_under_a_later_leader(cluster: FakeCluster, *behind: int) -> FakePartition:
    """Broker 1 was replaced as leader, and neither it nor the brokers in `behind` know that."""
    (partition,) = cluster.create("t")
    put(partition, *[b"%d" % number for number in range(10)])
    for broker in (1, *behind):
        cluster.leave_behind(broker)
    partition.elect(2)
    batches(partition, b"10", b"11")
    cluster.coordinator.move("g")
    cluster.coordinator.committed["g"][P0] = OffsetCommitPartition("t", 0, 11, 1)
    return partition


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("behind", [(), (3,), (3, 4, 5)])
@on_virtual_time
async def test_reader_that_hears_of_a_replaced_leader_starts_at_its_commit(
    behind: tuple[int, ...], policy: str
) -> None:
    cluster = FakeCluster(brokers=5)
    a_group_that_read_under_a_later_leader(cluster, *behind)
    async with a_consumer(cluster, group_id="g", bootstrap_servers="fake:1001", auto_offset_reset=policy) as consumer:
        consumer.assign([P0])
        assert await read(consumer, 1) == [(0, 11, b"11")]
    assert {broker for broker, each in cluster.requests if isinstance(each, OffsetForLeaderEpochRequest)} == {2}


@on_virtual_time
async def test_a_later_leader_that_cannot_be_reached_at_first_is_waited_for() -> None:
    cluster = FakeCluster()
    a_group_that_read_under_a_later_leader(cluster, 3)
    began = seconds()
    cluster.fault_of = lambda broker, request: (
        Fault.SWALLOW if broker == 2 and isinstance(request, MetadataRequest) and seconds() < began + 2 else None
    )
    async with a_consumer(cluster, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        assert await read(consumer, 1) == [(0, 11, b"11")]


@pytest.mark.parametrize("brokers", [1, 3])
@on_virtual_time
async def test_epoch_that_no_broker_knows_for_seconds_is_validated_like_others(brokers: int) -> None:
    cluster = FakeCluster(brokers)
    p0, p1 = cluster.create("t", 2)
    p1.leader = p0.leader
    batches(p0, b"0", b"1")
    batches(p1, b"0", b"1")
    cluster.coordinator.committed["g"] = {
        P0: OffsetCommitPartition("t", 0, 1, 7),
        P1: OffsetCommitPartition("t", 1, 1, 0),
    }
    async with a_consumer(cluster, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([P0, P1])
        started = seconds()
        assert await read(consumer, 1, 500) == [(1, 1, b"1")], "no other reader waits for it"
        with pytest.raises(LogTruncationError, match="t-0"):
            await consumer.poll(5000)
        assert 3 <= seconds() - started < 4.5
        assert len(cluster.sent(MetadataRequest)) < 30, "as often as for a leader that is being elected"


@on_virtual_time
async def test_later_leader_is_looked_for_while_the_known_one_cannot_know_it() -> None:
    cluster = FakeCluster()
    a_group_that_read_under_a_later_leader(cluster, 3)

    def fault_of(broker: int, request: Request) -> Fault | None:
        if broker == 1 and isinstance(request, OffsetForLeaderEpochRequest):
            cluster.refusals[OffsetForLeaderEpochRequest].append(OffsetNotAvailableError.code)
        hidden = broker == 2 and isinstance(request, MetadataRequest) and seconds() < began + 20
        return Fault.SWALLOW if hidden else None

    began = seconds()
    cluster.fault_of = fault_of
    async with a_consumer(cluster, group_id="g", auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        assert await read(consumer, 1, 35_000) == [(0, 11, b"11")]
    assert any(broker == 1 and isinstance(each, OffsetForLeaderEpochRequest) for broker, each in cluster.requests)


# --- a topic that was deleted ---------------------------------------------------------------------


async def hear_from_one_that_knows_no_topic(cluster: FakeCluster, consumer: Consumer) -> None:
    """Answer as a broker does that has just started."""
    cluster.known_to = {broker_id: set() for broker_id in cluster.live}
    await consumer.client.refresh_soon()
    cluster.known_to = {}


@pytest.mark.parametrize("group", [None, "g"])
@on_virtual_time
async def test_topic_that_was_denied_once_a_minute_ago_exists(group: str | None) -> None:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"0")
    async with a_consumer(cluster, **({"group_id": group} if group else {})) as consumer:
        if group:
            consumer.subscribe(["t"])
        else:
            consumer.assign([P0])
        await read(consumer, 1, 60_000)
        await hear_from_one_that_knows_no_topic(cluster, consumer)
        for _ in range(60):
            assert not await consumer.poll(1000)
        cluster.move(partition)
        put(partition, b"1")
        assert await read(consumer, 1, 30_000) == [(0, 1, b"1")]


@on_virtual_time
async def test_topic_denied_once_is_requested_again_if_no_leader_can_answer() -> None:
    cluster = FakeCluster()
    put(*cluster.create("t"), b"0")
    async with a_consumer(cluster) as consumer:
        assert await consumer.end_offsets([P0]) == {P0: 1}
        await hear_from_one_that_knows_no_topic(cluster, consumer)
        await asyncio.sleep(10)
        cluster.refusals[ListOffsetsRequest].append(OffsetNotAvailableError.code)
        assert await consumer.end_offsets([P0]) == {P0: 1}


@on_virtual_time
async def test_recreated_topic_is_read_by_the_policy_and_not_from_the_old_offset() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    batches(old, b"0", b"1")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 2)
        del cluster.partitions["t"]
        await consumer.poll(500)
        (new,) = cluster.create("t")
        new.leader = 2
        old.grown.set()
        batches(new, b"a", b"b", b"c", b"d")
        assert await read(consumer, 4) == [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (0, 3, b"d")]


@on_virtual_time
async def test_reader_of_a_recreated_topic_without_policy_fails_until_it_seeks() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    batches(old, b"0", b"1")
    async with a_consumer(cluster, auto_offset_reset="none") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 2)
        (new,) = cluster.create("t")
        new.leader = 2
        old.grown.set()
        batches(new, b"a", b"b", b"c")
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match=r"t-0: .* created again") as raised:
                await consumer.poll(5000)
            assert raised.value.made_anew
        consumer.seek(P0, 1)
        assert (await read(consumer, 1))[0] == (0, 1, b"b")


@pytest.mark.parametrize("error", [InconsistentTopicIdError, UnknownTopicIdError])
@on_virtual_time
async def test_every_partition_of_a_recreated_topic_is_read_by_the_policy(error: type[BrokerError]) -> None:
    cluster = FakeCluster()
    cluster.wrong_topic = error
    for old in cluster.create("t", 3):
        batches(old, b"0", b"1")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0, P1, P2])
        await read(consumer, 6)
        gone = cluster.partitions["t"]
        for old, new in zip(gone, cluster.create("t", 3), strict=True):
            new.leader = old.leader % 3 + 1
            batches(new, b"a", b"b", b"c")
            old.grown.set()
        again = [(number, offset, value) for number in range(3) for offset, value in enumerate((b"a", b"b", b"c"))]
        assert sorted(await read(consumer, 9)) == again


@pytest.mark.parametrize("leads_both", [False, True])
@pytest.mark.parametrize("who_lags_leads", [False, True])
@on_virtual_time
async def test_broker_with_metadata_of_the_old_topic_moves_no_reader(leads_both: bool, who_lags_leads: bool) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    late = cluster.metadata(1, MetadataRequest(("t",)))
    (partition,) = cluster.create("t")
    if not leads_both:
        partition.elect(2)
    batches(partition, b"0", b"1")
    async with a_consumer(cluster, auto_offset_reset="earliest", metadata_max_age_ms=10_000) as consumer:
        consumer.assign([P0])
        await read(consumer, 2)
        cluster.late_metadata.append(late)
        await until(lambda: not cluster.late_metadata, timeout_s=20)
        if who_lags_leads:
            cluster.refusals[FetchRequest].append(InconsistentTopicIdError.code)
        await asyncio.sleep(5)
        batches(partition, b"2")
        assert await read(consumer, 1) == [(0, 2, b"2")]


@pytest.mark.parametrize(
    "refusals", [(NotLeaderOrFollowerError,), (InconsistentTopicIdError, NotLeaderOrFollowerError)]
)
@on_virtual_time
async def test_one_stale_broker_moves_no_reader_whose_fetch_failed_before(
    refusals: tuple[type[BrokerError], ...],
) -> None:
    cluster = FakeCluster()
    cluster.create("t")
    late = cluster.metadata(1, MetadataRequest(("t",)))
    (partition,) = cluster.create("t")
    batches(partition, b"0", b"1")
    async with a_consumer(cluster, auto_offset_reset="latest") as consumer:
        consumer.assign([P0])
        consumer.seek(P0, 0)
        await read(consumer, 2)
        # A metadata request follows each failure, and its first addressee is behind, as a leader and in its metadata.
        cluster.late_metadata.extend([late] * len(refusals))
        cluster.refusals[FetchRequest].extend(each.code for each in (*refusals, InconsistentTopicIdError))
        batches(partition, b"2")
        await asyncio.sleep(5)
        assert not cluster.refusals[FetchRequest]
        assert await read(consumer, 1) == [(0, 2, b"2")]


@on_virtual_time
async def test_deleted_topic_is_reported_in_seconds_and_its_return_noticed() -> None:
    cluster = FakeCluster()
    (old,) = cluster.create("t")
    batches(old, b"0")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        del cluster.partitions["t"]
        old.grown.set()
        started = seconds()
        with pytest.raises(UnknownTopicOrPartitionError, match="'t' does not exist"):
            await consumer.poll(60_000)
        assert seconds() - started < 5
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.poll(60_000)
        batches(*cluster.create("t"), b"a")
        started = seconds()
        assert await read(consumer, 1) == [(0, 0, b"a")]
        assert seconds() - started < 2


# --- partitions that are added --------------------------------------------------------------------


@on_virtual_time
async def test_added_partition_is_found_with_older_metadata() -> None:
    cluster = FakeCluster()
    partitions = cluster.create("t", 1)
    batches(partitions[0], b"0")
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await read(consumer, 1)
        partitions.append(FakePartition("t", 1, 2))
        batches(partitions[1], b"a")
        started = seconds()
        consumer.assign([P0, P1])
        assert await read(consumer, 1) == [(1, 0, b"a")]
        assert seconds() - started < 0.2


@on_virtual_time
async def test_a_partition_that_some_broker_does_not_know_yet_is_waited_for() -> None:
    cluster = FakeCluster(brokers=1)
    partitions = cluster.create("t", 1)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        await consumer.poll(100)
        consumer.assign([P0, P1])
        assert await consumer.poll(1000) == {}
        partitions.append(FakePartition("t", 1, 1))
        batches(partitions[1], b"a")
        assert await read(consumer, 1) == [(1, 0, b"a")]
        asked = len(cluster.sent(MetadataRequest))
        consumer.assign([P0, TopicPartition("t", 9)])
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 9"):
            await consumer.poll(60_000)
        assert len(cluster.sent(MetadataRequest)) - asked < 50


# --- fairness -------------------------------------------------------------------------------------


@on_virtual_time
async def test_when_every_partition_has_plenty_each_gets_its_turn() -> None:
    cluster = FakeCluster(brokers=1)
    for partition in cluster.create("t", 10):
        put(partition, *[b"x"] * 1000)
    async with a_consumer(cluster, max_poll_records=300) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(10)])
        await asyncio.sleep(1)
        seen = [tuple(sorted(tp.partition for tp in await consumer.poll(1000))) for _ in range(20)]
        turns = [sum(number in each for each in seen) for number in range(10)]
        assert max(turns) - min(turns) <= 1
