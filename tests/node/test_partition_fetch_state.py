"""The effects of a leader's answers on a follower's log, and the answers without effect."""

from __future__ import annotations

import asyncio

from tests.node.client_requests import TP
from tests.node.memory_log import MemoryLog
from tests.node.scripted_leader import (
    OTHER,
    ScriptedFollower,
    ScriptedLeader,
    answer_to,
    follow_in,
    named,
    replica_of,
    stored,
    values,
)
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    UnknownLeaderEpochError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import (
    EpochEndOffset,
    ForgottenPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)


async def align(leader: ScriptedLeader, *, end: int) -> None:
    """Answer the epoch request, so that the follower's log ends at `end`."""
    await until(lambda: bool(leader.asked))
    leader.asked[0][1].set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 3, end),)))


@on_virtual_time
async def test_next_fetch_acknowledges_the_records_of_the_answer() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        assert (request.replica_id, request.partitions[0].current_leader_epoch) == (2, 5)
        assert request.partitions[0].fetch_offset == 0
        answer.set_result(answer_to(request, records=stored(b"a", offset=0), high_watermark=7))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 1
        assert replica.partition.high_watermark == 1, "bounded by the follower's own log end"


@on_virtual_time
async def test_log_is_aligned_with_a_fenced_request_before_the_first_fetch() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of(TP, b"a", b"b")
        leader = await following.begin(replica)
        await until(lambda: bool(leader.asked))
        question, answer = leader.asked[0]
        assert isinstance(question, OffsetForLeaderEpochRequest)
        assert (question.partitions[0].current_leader_epoch, question.partitions[0].leader_epoch) == (5, 3)
        answer.set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 3, 1),)))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 1
        assert values(replica) == [b"a"]


@on_virtual_time
async def test_log_that_ends_at_the_leaders_log_start_restarts_there() -> None:
    """The epochs cannot prove that the leader had the same records, because it may have dropped an other history."""
    async with ScriptedFollower() as following:
        replica = replica_of(TP, b"lost", b"lost", b"lost")
        leader = await following.begin(replica)
        await align(leader, end=2)
        request, answer = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 2
        answer.set_result(answer_to(request, records=stored(b"c", offset=2), high_watermark=3, log_start_offset=2))
        await leader.next_fetch()
        assert (replica.log.log_start_offset, values(replica)) == (2, [b"c"])
        assert replica.log.truncation_count == 2, "the log was truncated, so that no file holds the lost records"


@on_virtual_time
async def test_leader_trimming_to_the_log_end_later_keeps_an_aligned_log() -> None:
    """The log is not truncated. Periodic work removes the files below the log start."""
    async with ScriptedFollower() as following:
        replica = replica_of(TP, b"a", b"b")
        leader = await following.begin(replica)
        await align(leader, end=2)
        await leader.answer_fetch(records=stored(b"c", offset=2), high_watermark=2)
        await leader.answer_fetch(high_watermark=3, log_start_offset=3)
        await leader.next_fetch()
        assert (replica.log.log_start_offset, replica.log.truncation_count) == (3, 0)


@on_virtual_time
async def test_epoch_without_records_is_dropped_and_not_asked_for_again() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of(TP, b"a", epoch=9)
        replica.log.assign_leader_epoch(8)
        leader = await following.begin(replica)
        await until(lambda: bool(leader.asked))
        assert leader.look_up(0).partitions[0].leader_epoch == 8
        leader.asked[0][1].set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 5, 4),)))
        await until(lambda: len(leader.asked) > 1)
        assert leader.look_up(1).partitions[0].leader_epoch == 3
        leader.asked[1][1].set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 3, 1),)))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 1
        assert values(replica) == [b"a"]


@on_virtual_time
async def test_refused_alignment_is_retried_and_truncates_nothing() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of(TP, b"a")
        leader = await following.begin(replica)
        for number in range(3):
            await until(lambda number=number: len(leader.asked) > number)  # type: ignore[misc]
            question, answer = leader.asked[number]
            assert isinstance(question, OffsetForLeaderEpochRequest)
            refused = EpochEndOffset("t", 0, UnknownLeaderEpochError.code)
            answer.set_result(OffsetForLeaderEpochResponse((refused,)))
        assert values(replica) == [b"a"]


@on_virtual_time
async def test_answer_for_an_earlier_leader_epoch_is_not_applied() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        follow_in(replica, 6)
        following.fetchers.follow(replica)
        answer.set_result(answer_to(request, records=stored(b"old", offset=0)))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].current_leader_epoch == 6
        assert values(replica) == []


@on_virtual_time
async def test_answer_for_another_log_end_is_not_applied() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        replica.log.append_as_follower(stored(b"a", offset=0))
        answer.set_result(answer_to(request, records=stored(b"late", offset=0), high_watermark=1))
        await asyncio.sleep(0.01)
        assert values(replica) == [b"a"]
        assert replica.partition.high_watermark == 0


@on_virtual_time
async def test_alignment_for_an_earlier_leader_epoch_truncates_nothing() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of(TP, b"a", b"b")
        leader = await following.begin(replica)
        await until(lambda: bool(leader.asked))
        follow_in(replica, 6)
        following.fetchers.follow(replica)
        leader.asked[0][1].set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 3, 0),)))
        await until(lambda: len(leader.asked) == 2)
        question = leader.look_up(1)
        assert question.partitions[0].current_leader_epoch == 6
        assert values(replica) == [b"a", b"b"]


@on_virtual_time
async def test_dropped_partition_gets_no_more_records() -> None:
    async with ScriptedFollower() as following:
        replica, other = replica_of(), replica_of(OTHER)
        leader = await following.begin(replica, other)
        request, answer = await leader.next_fetch()
        assert len(request.partitions) == 2
        following.fetchers.drop(TP)
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        request, _ = await leader.next_fetch()
        assert (named(request), request.forgotten) == ([], (ForgottenPartition("t", 0),))
        assert values(replica) == []


@on_virtual_time
async def test_corrupt_records_are_fetched_again() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        await leader.answer_fetch(records=stored(b"gap", offset=5))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 0
        assert values(replica) == []


@on_virtual_time
async def test_failed_disk_is_reported() -> None:
    async with ScriptedFollower() as following:
        failed: list[TopicPartition] = []
        replica = replica_of(on_storage_error=lambda error, tp: failed.append(tp))
        assert isinstance(replica.log, MemoryLog)
        replica.log.broken = True
        leader = await following.begin(replica)
        await leader.answer_fetch(records=stored(b"a", offset=0))
        await until(lambda: bool(failed))
        assert failed == [replica.topic_partition]


@on_virtual_time
async def test_raised_high_watermark_names_no_partition_again() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        await leader.answer_fetch(records=stored(b"a", offset=0))
        await leader.answer_fetch(high_watermark=1)
        request, _ = await leader.next_fetch()
        assert replica.partition.high_watermark == 1
        assert named(request) == []


@on_virtual_time
async def test_adopted_log_start_is_reported_to_the_leader() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        await leader.answer_fetch(records=stored(b"a", offset=0))
        await leader.answer_fetch(high_watermark=1, log_start_offset=1)
        request, _ = await leader.next_fetch()
        assert request.partitions[0].log_start_offset == 1
