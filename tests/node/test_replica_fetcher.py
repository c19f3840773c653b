"""The requests of a follower to its leader: fetch sessions, fetches in flight, epoch requests."""

from __future__ import annotations

import asyncio
from weakref import ref

import pytest

from tests.executed_lines import executed_lines_until
from tests.node.client_requests import TP
from tests.node.scripted_leader import OTHER, ScriptedFollower, answer_to, follow_in, named, replica_of, stored, values
from tests.reference_cycles import until_freed, without_collections
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    NotLeaderOrFollowerError,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import (
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)


@on_virtual_time
async def test_answer_to_a_later_fetch_proves_that_the_earlier_was_lost() -> None:
    async with ScriptedFollower() as following:
        replica, other = replica_of(TP), replica_of(OTHER)
        leader = await following.begin(replica)
        await leader.answer_fetch()
        await leader.next_fetch()
        following.fetchers.follow(other)
        await until(lambda: len(leader.asked) == 3)
        later, answer = leader.asked[2]
        assert isinstance(later, FetchRequest)
        answer.set_result(answer_to(later))
        await until(lambda: len(leader.asked) == 4, timeout_s=0.01)
        again = leader.fetch(3)
        assert (again.session_id, again.session_epoch, named(again)) == (0, 0, [(0, 0), (1, 0)])


@on_virtual_time
async def test_fetches_without_news_wait_longer_until_one_brings_news() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of())
        waits = []
        for _ in range(5):
            request, answer = await leader.next_fetch()
            waits.append(request.max_wait_ms)
            answer.set_result(FetchResponse((), 1))
        assert waits == [500, 1000, 2000, 2000, 2000]
        _, answer = await leader.next_fetch()
        something = FetchPartitionResponse("t", 0, 0, 0, 0, 0, records=stored(b"a", offset=0))
        answer.set_result(FetchResponse((something,), 1))
        request, _ = await leader.next_fetch()
        assert request.max_wait_ms == 500


@on_virtual_time
async def test_fetcher_waits_for_a_large_answer_over_a_narrow_link() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        await asyncio.sleep(request.max_bytes * 8 / 3e6)
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        request, _ = await leader.next_fetch()
        assert values(replica) == [b"a"]
        assert len(leader.asked) == 2, "a second request would only delay the answer"


@on_virtual_time
async def test_unanswered_epoch_request_delays_no_other_partition() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of(TP))
        request, answer = await leader.next_fetch()
        following.fetchers.follow(replica_of(OTHER, b"a"))
        await until(lambda: isinstance(leader.asked[-1][0], OffsetForLeaderEpochRequest))
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        await until(lambda: isinstance(leader.asked[-1][0], FetchRequest), timeout_s=0.01)
        request, _ = await leader.next_fetch()
        assert [(each.partition, each.fetch_offset) for each in request.partitions] == [(0, 1)]


@on_virtual_time
async def test_next_epoch_request_covers_all_partitions_added_meanwhile() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of(TP, b"a"))
        await until(lambda: bool(leader.asked))
        for number in range(1, 4):
            following.fetchers.follow(replica_of(TopicPartition("t", number), b"a"))
            await asyncio.sleep(0.01)
        assert len(leader.asked) == 1
        leader.asked[0][1].set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 3, 1),)))
        await until(lambda: len(leader.asked) == 3, timeout_s=0.01)
        look_up = next(request for request, _ in leader.asked[1:] if isinstance(request, OffsetForLeaderEpochRequest))
        assert [each.partition for each in look_up.partitions] == [1, 2, 3]
        fetch, _ = await leader.next_fetch()
        assert [each.partition for each in fetch.partitions] == [0]


@on_virtual_time
async def test_refused_partition_is_delayed_alone() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of(TP), replica_of(OTHER))
        request, answer = await leader.next_fetch()
        refused = request.partitions[0].partition
        answer.set_result(answer_to(request, error_code=FencedLeaderEpochError.code))
        request, _ = await leader.next_fetch()
        assert (named(request), request.forgotten) == ([], ()), (
            "an error has removed the partition from the session already"
        )
        await until(lambda: len(leader.asked) == 3)
        again = leader.fetch(2)
        assert named(again) == [(refused, 0)], "a second fetch while the first is parked"


@on_virtual_time
async def test_fetcher_has_at_most_two_fetches_in_flight() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of())
        first, answer = await leader.next_fetch()
        answer.set_result(answer_to(first))
        second, answer = await leader.next_fetch()
        for number in range(1, 20):
            following.fetchers.follow(replica_of(TopicPartition("t", number)))
            await asyncio.sleep(0.001)
        assert len(leader.asked) == 3
        answer.set_result(answer_to(second))
        await until(lambda: len(leader.asked) == 4)
        latest = leader.fetch(3)
        assert [each.partition for each in latest.partitions] == list(range(2, 20))


@on_virtual_time
async def test_fetches_name_many_partitions_a_few_at_a_time() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(*(replica_of(TopicPartition("t", number)) for number in range(1200)))
        first, answer = await leader.next_fetch()
        answer.set_result(answer_to(first))
        await until(lambda: len(leader.asked) == 3, timeout_s=0.01)
        requests = [leader.fetch(number) for number in range(3)]
        assert [len(each.partitions) for each in requests] == [512, 512, 176]
        assert [each.session_epoch for each in requests] == [0, 1, 2]
        assert {each.partition for request in requests for each in request.partitions} == set(range(1200))


@on_virtual_time
async def test_session_that_is_lost_early_leaves_no_partition_unnamed() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(*(replica_of(TopicPartition("t", number)) for number in range(1200)))
        named_numbers: set[int] = set()
        for _ in range(3):
            request, answer = await leader.next_fetch()
            assert request.session_epoch == 0
            named_numbers |= {each.partition for each in request.partitions}
            answer.set_exception(FetchSessionIdNotFoundError())
        assert named_numbers == set(range(1200))


@on_virtual_time
async def test_many_partitions_align_a_few_at_a_time() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(*(replica_of(TopicPartition("t", number), b"a") for number in range(1000)))
        await until(lambda: bool(leader.asked))
        first = leader.look_up(0)
        answers = (EpochEndOffset("t", each.partition, 0, 3, 1) for each in first.partitions)
        leader.asked[0][1].set_result(OffsetForLeaderEpochResponse(tuple(answers)))
        await until(lambda: len(leader.asked) > 2, timeout_s=0.01)
        second = next(each for each, _ in leader.asked[1:] if isinstance(each, OffsetForLeaderEpochRequest))
        assert [len(each.partitions) for each in (first, second)] == [512, 488]
        assert {each.partition for each in (*first.partitions, *second.partitions)} == set(range(1000))


@pytest.mark.parametrize("code", [None, NotLeaderOrFollowerError.code], ids=["aligning", "delayed"])
@on_virtual_time
async def test_news_of_one_partition_costs_the_same_beside_many(code: int | None) -> None:
    """The others align, or wait because the leader has refused them."""
    lines = []
    for others in (10, 500):
        async with ScriptedFollower() as following:
            leader = await following.begin(*(replica_of(TopicPartition("t", 1 + n), b"a") for n in range(others)))
            await until(lambda leader=leader: bool(leader.asked))  # type: ignore[misc]
            if code is not None:
                refused = (EpochEndOffset("t", each.partition, code) for each in leader.look_up(0).partitions)
                leader.asked[0][1].set_result(OffsetForLeaderEpochResponse(tuple(refused)))
                await turns(10)
            following.fetchers.follow(replica_of(TP))
            fetch, answer = await leader.next_fetch()
            answer.set_result(answer_to(fetch))
            _, answer = await leader.next_fetch()
            news = FetchPartitionResponse("t", 0, 0, 1, 1, 0, stored(b"a", offset=0))
            answer.set_result(FetchResponse((news,), 7))
            lines.append(await executed_lines_until(turns(10)))
            assert named(leader.fetch(-1)) == [(0, 1)]
    assert lines[0] == lines[1]


async def turns(count: int) -> None:
    """Let the event loop turn so often, without a step of the time."""
    for _ in range(count):
        await asyncio.sleep(0)


@on_virtual_time
async def test_unchanged_partition_is_named_once() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of(TP), replica_of(OTHER))
        request, answer = await leader.next_fetch()
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [(0, 0), (1, 0)])
        answer.set_result(answer_to(request))
        request, answer = await leader.next_fetch()
        assert (request.session_id, request.session_epoch, named(request)) == (7, 1, [])
        news = FetchPartitionResponse("t", 1, 0, 1, 1, 0, stored(b"a", offset=0))
        answer.set_result(FetchResponse((news,), 7))
        request, _ = await leader.next_fetch()
        assert (request.session_epoch, named(request)) == (2, [(1, 1)])


@on_virtual_time
async def test_only_one_fetch_is_in_flight_until_the_session_has_an_id() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of())
        request, answer = await leader.next_fetch()
        following.fetchers.follow(replica_of(OTHER))
        await asyncio.sleep(0.1)
        assert len(leader.asked) == 1
        answer.set_result(answer_to(request))
        request, _ = await leader.next_fetch()
        assert (request.session_id, named(request)) == (7, [(1, 0)])


@on_virtual_time
async def test_lost_session_begins_again_over_the_same_connection() -> None:
    for lost in (FetchSessionIdNotFoundError("gone"), InvalidFetchSessionEpochError("not the next")):
        async with ScriptedFollower() as following:
            leader = await following.begin(replica_of(TP), replica_of(OTHER))
            request, answer = await leader.next_fetch()
            answer.set_result(answer_to(request))
            _, answer = await leader.next_fetch()
            answer.set_exception(lost)
            request, _ = await leader.next_fetch()
            assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [(0, 0), (1, 0)])
            assert len(following.connections) == 1


@on_virtual_time
async def test_new_connection_begins_a_new_session() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of())
        await leader.answer_fetch()
        await leader.next_fetch()
        following.fetchers.reconnect()
        request, _ = await (await following.connection(1)).next_fetch()
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [(0, 0)])


@on_virtual_time
async def test_error_for_an_older_entry_of_a_partition_is_ignored() -> None:
    async with ScriptedFollower() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        await leader.answer_fetch()
        _, answer = await leader.next_fetch()
        follow_in(replica, 6)
        following.fetchers.follow(replica)
        await until(lambda: len(leader.asked) == 3)
        fenced = FetchPartitionResponse("t", 0, FencedLeaderEpochError.code)
        answer.set_result(FetchResponse((fenced,), 7))
        await asyncio.sleep(0.4)
        assert len(leader.asked) == 3


@pytest.mark.parametrize("connected", [True, False])
@on_virtual_time
async def test_fetcher_without_partitions_is_freed(connected: bool) -> None:
    async with ScriptedFollower() as following:
        following.refuse = 0 if connected else 1_000_000
        following.fetchers.follow(replica_of(TP))
        await until(lambda: bool(following.connected_at))
        with without_collections():
            fetcher = ref(following.fetchers._fetchers[1])
            following.fetchers.drop(TP)
            await until_freed(fetcher)
        assert all(connection.closed for connection in following.connections)
