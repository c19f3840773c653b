"""One follower's conversation with its leader, answered by hand. The follower is broker 2, the leader broker 1."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

from cluster.partition import Partition
from cluster.state import PartitionState, VersionedState
from node.conversation import FetchSettings
from node.fetchers import Fetchers
from node.replica import Replica
from storage.config import LogConfig
from tests.node.client_requests import TP, batch_of
from tests.node.memory_log import MemoryLog
from tests.virtual_time import VirtualClock, on_virtual_time, until
from tidelog.control_messages import BrokerInfo, ListenerAddress
from tidelog.errors import (
    DisconnectedError,
    FencedLeaderEpochError,
    FetchSessionIdNotFoundError,
    InvalidFetchSessionEpochError,
    StorageError,
    TimeoutError,
    UnknownLeaderEpochError,
)
from tidelog.listeners import BROKERS
from tidelog.messages import (
    ApiVersionsResponse,
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    ForgottenPartition,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    Request,
    Response,
)
from tidelog.model import Endpoint, TopicPartition
from tidelog.records import assign_offsets

OTHER = TopicPartition("t", 1)
LEADER = BrokerInfo(1, 101, (ListenerAddress(BROKERS, "h", 101),))


class Scripted:
    """The leader's end of a connection: the test reads what was asked and says what is answered."""

    def __init__(self, broker_id: int = 1) -> None:
        self.peer = ApiVersionsResponse(0, "c", broker_id, 101, 0, ())
        self.closed = False
        self.asked: list[tuple[Request, asyncio.Future[Response]]] = []

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        timer = loop.call_later(timeout_ms / 1000, future.set_exception, TimeoutError("no answer"))
        future.add_done_callback(lambda _: timer.cancel())
        self.asked.append((request, future))
        return future

    def close(self) -> None:
        self.closed = True

    async def next_fetch(self) -> tuple[FetchRequest, asyncio.Future[Response]]:
        """The oldest fetch without an answer."""
        await until(lambda: any(isinstance(r, FetchRequest) and not f.done() for r, f in self.asked))
        request, future = next((r, f) for r, f in self.asked if isinstance(r, FetchRequest) and not f.done())
        assert isinstance(request, FetchRequest)
        return request, future


class Following:
    """Fetchers over scripted connections; `refuse` makes the next dials fail."""

    def __init__(self) -> None:
        self.connections: list[Scripted] = []
        self.dialled_at: list[float] = []
        self.refuse = 0
        self.answers_as = 1
        self.storage_errors: list[tuple[StorageError, TopicPartition]] = []
        self.fetchers = Fetchers(FetchSettings(2), self._open, VirtualClock())
        self.fetchers.on_storage_error = lambda error, tp: self.storage_errors.append((error, tp))
        self.fetchers.brokers_changed({1: LEADER})

    async def __aenter__(self) -> Following:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetchers.close()

    async def _open(self, endpoint: Endpoint) -> Scripted:
        self.dialled_at.append(asyncio.get_running_loop().time())
        assert endpoint == Endpoint("h", 101)
        if self.refuse:
            self.refuse -= 1
            raise DisconnectedError("refused")
        self.connections.append(Scripted(self.answers_as))
        return self.connections[-1]

    async def begin(self, *replicas: Replica) -> Scripted:
        """Follows these; the connection to their leader."""
        for replica in replicas:
            self.fetchers.follow(replica)
        return await self.connection()

    async def connection(self, number: int = 0) -> Scripted:
        await until(lambda: len(self.connections) > number)
        return self.connections[number]


def replica_of(tp: TopicPartition = TP, *values: bytes, epoch: int = 5) -> Replica:
    log = MemoryLog("id", LogConfig())
    for offset, value in enumerate(values):
        log.append_as_follower(stored(value, offset=offset, epoch=3))
    replica = Replica("id", log, Partition(2, tp, max_lag_ms=1000))
    follow_in(replica, epoch)
    return replica


def follow_in(replica: Replica, epoch: int) -> None:
    replica.partition.make_follower(VersionedState(PartitionState(1, epoch, (1, 2), 1), epoch), (1, 2))


def stored(value: bytes, *, offset: int, epoch: int = 5) -> bytes:
    batch = bytearray(batch_of(value))
    assign_offsets(batch, 0, offset, epoch)
    return bytes(batch)


def answer_to(request: FetchRequest, **fields: object) -> FetchResponse:
    """Nothing for every partition that was named, but `fields` for the first."""
    answers = [FetchPartitionResponse(each.topic, each.partition, 0, 0, 0, 0) for each in request.partitions]
    if fields:
        answers[0] = replace(answers[0], **fields)  # type: ignore[arg-type]
    return FetchResponse(tuple(answers), session_id=7)


def named(request: FetchRequest) -> list[tuple[int, int]]:
    """(partition, fetch offset)"""
    return [(each.partition, each.fetch_offset) for each in request.partitions]


def values(replica: Replica) -> list[bytes]:
    assert isinstance(replica.log, MemoryLog)
    return replica.log.values


@on_virtual_time
async def test_the_next_fetch_acknowledges_what_the_answer_brought() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        assert (request.replica_id, request.partitions[0].current_leader_epoch) == (2, 5)
        assert request.partitions[0].fetch_offset == 0
        answer.set_result(answer_to(request, records=stored(b"a", offset=0), high_watermark=7))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 1
        assert replica.partition.high_watermark == 1, "as far as its own log goes"


@on_virtual_time
async def test_a_log_is_aligned_before_the_first_fetch_and_the_question_is_fenced() -> None:
    async with Following() as following:
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
async def test_an_alignment_that_is_refused_is_asked_again_and_cuts_nothing() -> None:
    async with Following() as following:
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
async def test_an_answer_for_an_earlier_epoch_is_not_applied() -> None:
    async with Following() as following:
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
async def test_an_answer_for_another_end_of_the_log_is_not_applied() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        replica.log.append_as_follower(stored(b"a", offset=0))
        answer.set_result(answer_to(request, records=stored(b"late", offset=0), high_watermark=1))
        await asyncio.sleep(0.01)
        assert values(replica) == [b"a"]
        assert replica.partition.high_watermark == 0


@on_virtual_time
async def test_an_answer_to_a_later_fetch_shows_that_the_earlier_was_lost() -> None:
    async with Following() as following:
        replica, other = replica_of(TP), replica_of(OTHER)
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request))
        await leader.next_fetch()
        following.fetchers.follow(other)
        await until(lambda: len(leader.asked) == 3)
        later, answer = leader.asked[2]
        assert isinstance(later, FetchRequest)
        answer.set_result(answer_to(later))
        await until(lambda: len(leader.asked) == 4, timeout_s=0.01)
        again = leader.asked[3][0]
        assert isinstance(again, FetchRequest)
        assert (again.session_id, again.session_epoch, named(again)) == (0, 0, [(0, 0), (1, 0)])


@on_virtual_time
async def test_a_large_answer_through_a_narrow_link_is_waited_for() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        await asyncio.sleep(request.max_bytes * 8 / 3e6)
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        request, _ = await leader.next_fetch()
        assert values(replica) == [b"a"]
        assert len(leader.asked) == 2, "asking again would have made it later"


@on_virtual_time
async def test_a_leader_that_lives_and_never_answers_is_dialled_anew() -> None:
    async with Following() as following:
        leader = await following.begin(replica_of())
        await leader.next_fetch()
        await until(lambda: leader.closed, timeout_s=70)
        await (await following.connection(1)).next_fetch()


@on_virtual_time
async def test_a_connection_that_worked_is_replaced_soon() -> None:
    async with Following() as following:
        following.refuse = 8
        leader = await following.begin(replica_of())
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request))
        _, answer = await leader.next_fetch()
        answer.set_exception(DisconnectedError("gone"))
        failed_at = asyncio.get_running_loop().time()
        await following.connection(1)
        assert following.dialled_at[-1] - failed_at < 0.06


@on_virtual_time
async def test_a_look_up_without_an_answer_holds_up_no_other_partition() -> None:
    async with Following() as following:
        leader = await following.begin(replica_of(TP))
        request, answer = await leader.next_fetch()
        following.fetchers.follow(replica_of(OTHER, b"a"))
        await until(lambda: isinstance(leader.asked[-1][0], OffsetForLeaderEpochRequest))
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        await until(lambda: isinstance(leader.asked[-1][0], FetchRequest), timeout_s=0.01)
        request, _ = await leader.next_fetch()
        assert [(each.partition, each.fetch_offset) for each in request.partitions] == [(0, 1)]


@on_virtual_time
async def test_one_look_up_at_a_time_and_the_next_is_for_all_who_came_meanwhile() -> None:
    async with Following() as following:
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
async def test_an_alignment_for_an_earlier_epoch_cuts_nothing() -> None:
    async with Following() as following:
        replica = replica_of(TP, b"a", b"b")
        leader = await following.begin(replica)
        await until(lambda: bool(leader.asked))
        follow_in(replica, 6)
        following.fetchers.follow(replica)
        leader.asked[0][1].set_result(OffsetForLeaderEpochResponse((EpochEndOffset("t", 0, 0, 3, 0),)))
        await until(lambda: len(leader.asked) == 2)
        question = leader.asked[1][0]
        assert isinstance(question, OffsetForLeaderEpochRequest)
        assert question.partitions[0].current_leader_epoch == 6
        assert values(replica) == [b"a", b"b"]


@on_virtual_time
async def test_a_dropped_partition_gets_nothing_more() -> None:
    async with Following() as following:
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
async def test_one_refused_partition_pauses_alone() -> None:
    async with Following() as following:
        leader = await following.begin(replica_of(TP), replica_of(OTHER))
        request, answer = await leader.next_fetch()
        refused = request.partitions[0].partition
        answer.set_result(answer_to(request, error_code=FencedLeaderEpochError.code))
        request, _ = await leader.next_fetch()
        assert (named(request), request.forgotten) == ([], ()), "the leader fetches it no more by itself"
        await until(lambda: len(leader.asked) == 3)
        again = leader.asked[2][0]
        assert isinstance(again, FetchRequest)
        assert named(again) == [(refused, 0)], "sent on top of the one that is parked"


@on_virtual_time
async def test_spoilt_records_are_asked_for_again() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request, records=stored(b"gap", offset=5)))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].fetch_offset == 0
        assert values(replica) == []


@on_virtual_time
async def test_a_failing_disk_is_told() -> None:
    async with Following() as following:
        replica = replica_of()
        assert isinstance(replica.log, MemoryLog)
        replica.log.broken = True
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        await until(lambda: len(following.storage_errors) == 1)
        assert following.storage_errors[0][1] == replica.topic_partition


@on_virtual_time
async def test_a_leader_that_refuses_is_dialled_again_ever_more_rarely() -> None:
    async with Following() as following:
        following.refuse = 8
        following.fetchers.follow(replica_of())
        await following.connection()
        pauses = [round(after - before, 2) for before, after in pairwise(following.dialled_at)]
        assert pauses[0] == 0.05
        assert pauses == sorted(pauses)
        assert pauses[-1] == 0.25


@on_virtual_time
async def test_somebody_elses_port_is_left_alone() -> None:
    async with Following() as following:
        following.answers_as = 3
        stranger = await following.begin(replica_of())
        await until(lambda: stranger.closed)
        assert stranger.asked == []


@on_virtual_time
async def test_nobody_dials_a_leader_that_is_not_live() -> None:
    async with Following() as following:
        following.fetchers.brokers_changed({})
        following.fetchers.follow(replica_of())
        await asyncio.sleep(1)
        assert following.dialled_at == []
        following.fetchers.brokers_changed({1: LEADER})
        await following.connection()


@on_virtual_time
async def test_a_new_registration_is_introduced_on_a_new_connection() -> None:
    async with Following() as following:
        first = await following.begin(replica_of())
        await first.next_fetch()
        following.fetchers.reconnect()
        second = await following.connection(1)
        assert first.closed
        await second.next_fetch()


@on_virtual_time
async def test_a_new_registration_is_introduced_at_once_while_a_look_up_waits_too() -> None:
    async with Following() as following:
        first = await following.begin(replica_of(TP, b"a"))
        await until(lambda: bool(first.asked))
        following.fetchers.reconnect()
        await until(lambda: len(following.connections) == 2, timeout_s=0.01)
        assert first.closed


@on_virtual_time
async def test_a_leader_that_has_registered_anew_is_dialled_at_once() -> None:
    async with Following() as following:
        following.refuse = 8
        following.fetchers.follow(replica_of())
        await until(lambda: len(following.dialled_at) == 8)
        following.fetchers.brokers_changed({1: replace(LEADER, epoch=102)})
        await until(lambda: len(following.connections) == 1, timeout_s=0.01)


@on_virtual_time
async def test_partitions_that_come_while_the_leader_refuses_are_no_reason_to_dial() -> None:
    async with Following() as following:
        following.refuse = 8
        following.fetchers.follow(replica_of())
        await until(lambda: len(following.dialled_at) == 7)
        following.fetchers.follow(replica_of(OTHER))
        await until(lambda: len(following.dialled_at) == 8)
        assert round(following.dialled_at[7] - following.dialled_at[6], 2) == 0.25


@on_virtual_time
async def test_a_leader_that_changes_its_partitions_often_has_two_fetches_at_most() -> None:
    async with Following() as following:
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
        latest = leader.asked[3][0]
        assert isinstance(latest, FetchRequest)
        assert [each.partition for each in latest.partitions] == list(range(2, 20))


@on_virtual_time
async def test_what_has_not_changed_is_named_once() -> None:
    async with Following() as following:
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
async def test_only_one_fetch_is_in_flight_until_the_session_has_its_number() -> None:
    async with Following() as following:
        leader = await following.begin(replica_of())
        request, answer = await leader.next_fetch()
        following.fetchers.follow(replica_of(OTHER))
        await asyncio.sleep(0.1)
        assert len(leader.asked) == 1
        answer.set_result(answer_to(request))
        request, _ = await leader.next_fetch()
        assert (request.session_id, named(request)) == (7, [(1, 0)])


@on_virtual_time
async def test_a_high_watermark_that_rises_is_taken_over_and_nothing_is_named_again() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request, high_watermark=1))
        request, _ = await leader.next_fetch()
        assert replica.partition.high_watermark == 1
        assert named(request) == []


@on_virtual_time
async def test_a_log_start_that_is_taken_over_is_told_to_the_leader() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request, records=stored(b"a", offset=0)))
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request, high_watermark=1, log_start_offset=1))
        request, _ = await leader.next_fetch()
        assert request.partitions[0].log_start_offset == 1


@on_virtual_time
async def test_a_session_that_the_leader_has_lost_begins_anew_over_the_same_connection() -> None:
    for lost in (FetchSessionIdNotFoundError("gone"), InvalidFetchSessionEpochError("not the next")):
        async with Following() as following:
            leader = await following.begin(replica_of(TP), replica_of(OTHER))
            request, answer = await leader.next_fetch()
            answer.set_result(answer_to(request))
            _, answer = await leader.next_fetch()
            answer.set_exception(lost)
            request, _ = await leader.next_fetch()
            assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [(0, 0), (1, 0)])
            assert len(following.connections) == 1


@on_virtual_time
async def test_a_new_connection_begins_a_new_session() -> None:
    async with Following() as following:
        leader = await following.begin(replica_of())
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request))
        await leader.next_fetch()
        following.fetchers.reconnect()
        request, _ = await (await following.connection(1)).next_fetch()
        assert (request.session_id, request.session_epoch, named(request)) == (0, 0, [(0, 0)])


@on_virtual_time
async def test_an_error_about_what_was_named_again_since_changes_nothing() -> None:
    async with Following() as following:
        replica = replica_of()
        leader = await following.begin(replica)
        request, answer = await leader.next_fetch()
        answer.set_result(answer_to(request))
        _, answer = await leader.next_fetch()
        follow_in(replica, 6)
        following.fetchers.follow(replica)
        await until(lambda: len(leader.asked) == 3)
        fenced = FetchPartitionResponse("t", 0, FencedLeaderEpochError.code)
        answer.set_result(FetchResponse((fenced,), 7))
        await asyncio.sleep(0.4)
        assert len(leader.asked) == 3
