"""Test which request the fetcher sends in each state of a partition, and that no story leaves the transition table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tidelog.clients import a_consumer, put
from tests.tidelog.fake_cluster import FakeCluster, FakePartition
from tests.tidelog.position_setup import P0, Committed, PositionSetup, position_setup
from tests.virtual_time import on_virtual_time
from tidelog.aio import Consumer
from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetcher import MAX_FETCHES_PER_BROKER, Fetcher
from tidelog.client.consumer.fetching.position_state import AwaitingCommit, Failed, Fetching, Resetting, Validating
from tidelog.errors import (
    InternalError,
    OffsetOutOfRangeError,
    TidelogError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition
from tidelog.protocol.messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    Request,
)

P1 = TopicPartition("t", 1)


def a_cluster(partitions: int = 1) -> FakeCluster:
    cluster = FakeCluster()
    for log in cluster.create("t", partitions):
        put(log, b"v", at_ms=20)
    return cluster


class FetcherSetup:
    """A fetcher without its task, so that a test makes the turns."""

    def __init__(self, setup: PositionSetup, cluster: FakeCluster, *, in_group: bool = False) -> None:
        self.setup = setup
        self.cluster = cluster
        self.fetcher = Fetcher(
            setup.client,
            setup.settings,
            setup.committed if in_group else None,  # type: ignore[arg-type]
        )
        self.fetcher.assign([P0])

    @property
    def partition(self) -> AssignedPartition:
        return self.fetcher.partitions[P0]

    def turn(self) -> int | None:
        return self.fetcher._turn(self.setup.client.clock.monotonic_ms())

    async def sent(self) -> set[type[Request]]:
        """Make one turn; return the kinds of the requests that follow from it, without those for metadata."""
        self.cluster.requests.clear()
        self.turn()
        await asyncio.sleep(0.01)
        return {type(request) for _, request in self.cluster.requests} - {MetadataRequest}


@asynccontextmanager
async def fetcher_setup(
    cluster: FakeCluster, *, committed: Committed | None = None, **options: Any
) -> AsyncIterator[FetcherSetup]:
    async with position_setup(cluster, committed, **options) as setup:
        fetcher = FetcherSetup(setup, cluster, in_group=committed is not None)
        yield fetcher
        await fetcher.fetcher.stop()


# --- the request of each state ----------------------------------------------------------------------


@on_virtual_time
async def test_awaiting_a_commit_the_group_is_asked() -> None:
    committed = Committed()
    async with fetcher_setup(a_cluster(), committed=committed) as each:
        assert each.partition.state == AwaitingCommit(EARLIEST_TIMESTAMP)
        assert await each.sent() == set()
        assert committed.asked == [[P0]]
        assert each.partition.state == Resetting(EARLIEST_TIMESTAMP)


@pytest.mark.parametrize(("to", "position"), [(EARLIEST_TIMESTAMP, 0), (LATEST_TIMESTAMP, 1), (20, 0), (21, 1)])
@on_virtual_time
async def test_resetting_the_offset_is_looked_up(to: int, position: int) -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.reset(to)
        assert await each.sent() == {ListOffsetsRequest}
        assert each.partition.position == position and each.partition.state == Fetching()


@on_virtual_time
async def test_failed_without_a_position_the_reader_gets_the_error() -> None:
    async with fetcher_setup(a_cluster(), auto_offset_reset="none") as each:
        assert each.partition.state == Failed()
        assert await each.sent() == set()
        assert isinstance(each.partition.standing_error.error, OffsetOutOfRangeError)
        assert each.fetcher.arrived.is_set() and each.partition.state == Failed()


@on_virtual_time
async def test_validating_the_leader_is_asked_for_the_end_of_the_epoch() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.seek(1, 0)
        assert await each.sent() == {OffsetForLeaderEpochRequest}
        assert each.partition.state == Fetching()


@on_virtual_time
async def test_validating_in_an_older_epoch_only_metadata_is_asked_for() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.seek(1, 7)
        assert await each.sent() == set()
        assert each.cluster.sent(MetadataRequest)
        assert isinstance(each.partition.state, Validating) and each.partition.state.behind_since_ms is not None
        await asyncio.sleep(3)
        assert await each.sent() == {OffsetForLeaderEpochRequest}


@on_virtual_time
async def test_fetching_records_are_fetched_and_the_reader_woken() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.seek(0)
        assert await each.sent() == {FetchRequest}
        assert each.partition.has_data and each.fetcher.arrived.is_set()
        assert each.partition.state == Fetching() and each.partition.validated_epoch == 0


@on_virtual_time
async def test_another_topic_of_this_name_is_decided_by_the_answer_to_a_fetch() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.seek(0, 0)
        each.partition.topic_id = "old"
        assert await each.sent() == {FetchRequest}
        assert each.partition.retry.wrong_topics == 1 and each.partition.state == Validating()
        await asyncio.sleep(1)
        assert await each.sent() == {FetchRequest}
        assert each.partition.state == Resetting(EARLIEST_TIMESTAMP)


@on_virtual_time
async def test_without_a_position_another_topic_of_this_name_is_reset() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.reset(20)
        each.partition.topic_id = "old"
        assert await each.sent() == set()
        assert each.partition.state == Resetting(EARLIEST_TIMESTAMP) and each.partition.topic_id == ""


# --- when no request is sent ------------------------------------------------------------------------


@on_virtual_time
async def test_leader_is_looked_for_if_none_is_known() -> None:
    cluster = a_cluster()
    cluster.partitions["t"][0].leader = -1
    async with fetcher_setup(cluster) as each:
        each.partition.seek(0)
        assert await each.sent() == set()
        assert cluster.sent(MetadataRequest)


@on_virtual_time
async def test_partition_waits_for_the_end_of_its_pause() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.seek(0)
        now_ms = each.setup.client.clock.monotonic_ms()
        each.partition.retry = each.partition.retry.after_failure(await each.setup.leader(), now_ms + 500)
        assert each.turn() == now_ms + 500
        assert await each.sent() == set()
        await asyncio.sleep(0.5)
        assert await each.sent() == {FetchRequest}


@on_virtual_time
async def test_partition_is_in_one_request_at_a_time() -> None:
    cluster = a_cluster()
    cluster.hung.add(1)
    async with fetcher_setup(cluster) as each:
        each.partition.seek(0)
        each.turn()
        work = each.partition.work
        assert each.partition.is_busy
        each.turn()
        assert each.partition.work is work
        each.partition.seek(1)
        each.turn()
        assert each.partition.work is not work


@on_virtual_time
async def test_paused_data_is_dropped_when_there_is_no_room() -> None:
    async with fetcher_setup(a_cluster(2), prefetch_max_bytes=1) as each:
        each.fetcher.assign([P0, P1])
        paused, other = each.fetcher.partitions.values()
        paused.seek(0)
        assert await each.sent() == {FetchRequest, ListOffsetsRequest}
        assert paused.has_data and other.position == 0
        assert await each.sent() == set()
        paused.paused = True
        assert await each.sent() == {FetchRequest}
        assert not paused.has_data and other.has_data


@on_virtual_time
async def test_leader_holds_a_limited_number_of_fetches() -> None:
    count = MAX_FETCHES_PER_BROKER + 1
    cluster = FakeCluster(brokers=1)
    cluster.create("t", count)
    async with fetcher_setup(cluster) as each:
        each.fetcher.assign([TopicPartition("t", number) for number in range(count)])
        for partition in each.fetcher.partitions.values():
            partition.seek(0)
            partition.is_alone = True
        assert await each.sent() == {FetchRequest}
        assert len(cluster.sent(FetchRequest)) == MAX_FETCHES_PER_BROKER


# --- failures and the assignment --------------------------------------------------------------------


@on_virtual_time
async def test_request_whose_task_is_cancelled_is_repeated_alone_after_a_pause() -> None:
    async with fetcher_setup(a_cluster()) as each:
        each.partition.seek(0)
        each.turn()
        assert each.partition.work is not None
        each.partition.work.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert each.partition.is_alone and each.partition.retry.attempts == 1
        assert await each.sent() == set()


@on_virtual_time
async def test_missing_partition_is_reported_once_it_is_certain() -> None:
    async with fetcher_setup(a_cluster()) as each:
        missing = TopicPartition("t", 5)
        each.fetcher.assign([missing])
        each.fetcher.start()
        await asyncio.sleep(9)
        partition = each.fetcher.partitions[missing]
        assert isinstance(partition.standing_error.error, UnknownTopicOrPartitionError)
        assert partition.state == Resetting(EARLIEST_TIMESTAMP)


@on_virtual_time
async def test_assignment_keeps_partitions_and_outdates_answers_of_others() -> None:
    async with fetcher_setup(a_cluster(2)) as each:
        each.fetcher.assign([P0, P1])
        kept, gone = each.fetcher.partitions.values()
        kept.seek(1)
        generation = gone.generation
        each.fetcher.assign([P0])
        assert each.fetcher.partitions == {P0: kept} and kept.position == 1
        assert gone.generation == generation + 1


@on_virtual_time
async def test_partition_that_returned_records_moves_to_the_end() -> None:
    async with fetcher_setup(a_cluster(2)) as each:
        each.fetcher.assign([P0, P1])
        each.partition.seek(0)
        each.fetcher.partitions[P1].seek(1)
        await each.sent()
        assert list(each.fetcher.partitions) == [P1, P0]


# --- any story --------------------------------------------------------------------------------------

#: What happens in the cluster, and what the user does; polls and elections are more frequent.
ACTIONS = [
    "write", "write", "move", "cut", "cut", "trim", "recreate", "no leader", "hang", "unhang",
    "wait", "poll", "poll", "poll", "batches", "iterate", "leave behind", "refuse", "unread", "commit", "assign",
    "seek", "to end", "to start", "to time", "pause", "resume",
]  # fmt: skip


async def act(what: str, number: int, cluster: FakeCluster, log: FakePartition, consumer: Consumer) -> FakePartition:
    if what == "write":
        put(log, *[b"v"] * (number + 1))
    elif what == "move":
        cluster.move(log)
    elif what == "cut":
        log.elect_uncleanly(number % 3 + 1, keeping=number)
        log.first_offset = min(log.first_offset, log.end_offset)
    elif what == "trim":
        log.first_offset = min(log.end_offset, log.first_offset + number)
    elif what == "recreate":
        (log, _) = cluster.create("t", 2)
    elif what == "no leader":
        log.elect(-1)
    elif what == "wait":
        await asyncio.sleep(number)
    elif what == "leave behind":
        cluster.leave_behind(number % 3 + 1)
    elif what == "refuse":
        cluster.refusals[OffsetForLeaderEpochRequest].append(UnsupportedVersionError.code)
        cluster.move(log)
    elif what in ("hang", "unhang"):
        (cluster.hung.add if what == "hang" else cluster.hung.discard)(number % 3 + 1)
    elif what == "poll":
        await consumer.poll(number * 200, max_records=number + 1)
    elif what == "batches":
        await consumer.poll_batches(number * 200)
    elif what == "unread":
        consumer.reader.give_back(await consumer.poll(100))
    elif what == "iterate":
        async for _ in consumer:
            break
    elif what == "commit":
        await consumer.commit(timeout_ms=500)
        consumer.assign([P1])
        consumer.assign([P0])
    elif what == "seek":
        consumer.seek(P0, number)
    elif what == "to end":
        consumer.seek_to_end()
    elif what == "to start":
        consumer.seek_to_beginning(P0)
    elif what == "to time":
        await consumer.seek_to_time(number, timeout_ms=500)
    elif what == "pause":
        consumer.pause(P0)
        await asyncio.sleep(0.1)
    elif what == "resume":
        consumer.resume(P0)
    else:
        consumer.assign([P0, P1][: number % 2 + 1])
    return log


@settings(max_examples=150)
@given(
    story=st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 4)), min_size=10, max_size=60),
    policy=st.sampled_from(["earliest", "latest", "none", "by_duration:PT1H"]),
    in_group=st.booleans(),
    prefetch=st.sampled_from([1, 1 << 20]),
)
@on_virtual_time
async def test_no_story_of_a_consumer_leaves_the_table(
    story: list[tuple[str, int]], policy: str, in_group: bool, prefetch: int
) -> None:
    """An event that the table does not have raises InternalError in a task, and the next poll would raise it."""
    cluster = FakeCluster()
    log, _ = cluster.create("t", 2)
    for _ in range(5):
        put(log, b"v")
    group: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False} if in_group else {}
    async with a_consumer(
        cluster, auto_offset_reset=policy, prefetch_max_bytes=prefetch, consumer_timeout_ms=300, **group
    ) as consumer:
        consumer.assign([P0])
        for what, number in [*story, ("wait", 4), ("poll", 1), ("poll", 1)]:
            try:
                log = await act(what, number, cluster, log, consumer)
            except TidelogError as error:
                assert not isinstance(error, InternalError), f"{what} {number}: {error!r}"
