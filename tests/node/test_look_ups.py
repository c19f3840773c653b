"""The answers of a leader to look-ups by time, to epoch requests, and to DescribeReplicas."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from node.handlers.records.list_offsets import AT_ONCE, MAX_LONG_LOOK_UPS
from node.net.server import RequestContext
from storage.segments.timestamp_search import MAX_QUICK_BYTES
from tests.node.client_requests import TP, batch_of, produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.memory_node import Node
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    FencedLeaderEpochError,
    InvalidRecordError,
    InvalidRequestError,
    NotLeaderOrFollowerError,
    OffsetNotAvailableError,
    RequestTimedOutError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP, READ_COMMITTED, READ_UNCOMMITTED
from tidelog.protocol.messages import (
    DescribePartition,
    DescribeReplicasRequest,
    EpochPartition,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
)
from tidelog.records import HEADER_BYTES, Codec, compress, encode_batch
from tidelog.records.header import HEADER, seal

T0 = 1_700_000_000_000
OF_A_CLIENT = RequestContext(b"client", "test", -1, -1, False)


@on_virtual_time
async def test_look_ups_by_time_find_only_committed_records() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=batch_of(b"a", b"b", timestamp=T0)))
        cluster.cut(1, 2, 3)
        await leader.ask(produce_request(batch=batch_of(b"c", timestamp=T0 + 5000), acks=1))
        assert await leader.look_up(T0 + 1) == (0, 1, T0 + 1)
        assert await leader.look_up(T0 + 2) == (0, -1, -1)
        assert await leader.look_up(LATEST_TIMESTAMP) == (0, 2, -1)
        assert await leader.look_up(MAX_TIMESTAMP) == (0, 1, T0 + 1)
        assert await leader.look_up(EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert await leader.look_up(LATEST_TIMESTAMP, replica_id=2) == (0, 3, -1)
        assert await leader.look_up(T0 + 2, replica_id=2) == (0, 2, T0 + 5000)
        assert (await leader.look_up(-7))[0] == InvalidRequestError.code


@on_virtual_time
async def test_only_the_leader_answers_look_ups_except_for_debugging() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        follower = cluster.nodes[2]
        assert (await follower.look_up(LATEST_TIMESTAMP))[0] == NotLeaderOrFollowerError.code
        assert await follower.look_up(LATEST_TIMESTAMP, replica_id=-2) == (0, 1, -1)
        assert (await cluster.leader.look_up(LATEST_TIMESTAMP, epoch=9))[0] == UnknownLeaderEpochError.code
        assert (await cluster.leader.look_up(LATEST_TIMESTAMP, replica_id=-3))[0] == InvalidRequestError.code


@on_virtual_time
async def test_partition_named_twice_is_refused_alone() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        other = TP._replace(partition=1)
        await cluster.elect(1, tp=other)
        twice = ListOffsetsPartition(TP.topic, 0, LATEST_TIMESTAMP)
        once = ListOffsetsPartition(TP.topic, 1, LATEST_TIMESTAMP)
        response = await cluster.leader.ask(ListOffsetsRequest((twice, once, twice)))
        assert [p.error_code for p in response.partitions] == [42, 0, 42]


@on_virtual_time
async def test_new_leader_does_not_report_an_unknown_committed_end() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.cut(2, 1, 3)  # so that broker 2 gets no acknowledgement
        await cluster.elect(2)
        leader = cluster.leader
        assert leader.replica().partition.high_watermark == 0, "the follower did not know the high watermark yet"
        for timestamp in (LATEST_TIMESTAMP, MAX_TIMESTAMP, T0):
            assert (await leader.look_up(timestamp))[0] == OffsetNotAvailableError.code
        assert await leader.look_up(EARLIEST_TIMESTAMP) == (0, 0, -1)
        assert (await leader.look_up(LATEST_TIMESTAMP, replica_id=3))[1] == 1
        cluster.heal()
        await until(lambda: leader.replica().partition.high_watermark_is_known)
        assert await leader.look_up(LATEST_TIMESTAMP) == (0, 1, -1)


@on_virtual_time
async def test_answers_carry_the_epoch_in_which_their_record_was_written() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        assert await reported_epoch(leader, EARLIEST_TIMESTAMP) == -1, "the log is empty"
        await leader.ask(produce_request(batch=batch_of(b"a", timestamp=T0)))
        await cluster.elect(1)
        await leader.ask(produce_request(batch=batch_of(b"b", timestamp=T0 + 5)))
        assert await reported_epoch(leader, EARLIEST_TIMESTAMP) == await reported_epoch(leader, T0) == 0
        assert await reported_epoch(leader, T0 + 1) == await reported_epoch(leader, MAX_TIMESTAMP) == 1
        assert await reported_epoch(leader, LATEST_TIMESTAMP) == 1
        assert await reported_epoch(leader, T0 + 6) == -1


async def reported_epoch(node: Node, timestamp: int) -> int:
    answer = await node.ask(ListOffsetsRequest((ListOffsetsPartition(TP.topic, 0, timestamp),)))
    assert answer.partitions[0].error_code == 0
    return int(answer.partitions[0].leader_epoch)


@pytest.mark.parametrize("timestamp", [T0, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP])
@on_virtual_time
async def test_every_look_up_is_fenced_by_the_leader_epoch(timestamp: int) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1)
        leader = cluster.leader
        assert (await leader.look_up(timestamp, epoch=0))[0] == FencedLeaderEpochError.code
        assert (await leader.look_up(timestamp, epoch=2))[0] == UnknownLeaderEpochError.code
        assert (await leader.look_up(timestamp, epoch=1))[0] == 0
        debugged = cluster.nodes[2]
        await until(lambda: debugged.replica().partition.leader_epoch == 1)
        assert (await debugged.look_up(timestamp, replica_id=-2, epoch=0))[0] == FencedLeaderEpochError.code


@on_virtual_time
async def test_last_stable_offset_is_the_high_watermark() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=batch_of(b"a", timestamp=T0)))
        cluster.cut(1, 2, 3)
        await leader.ask(produce_request(batch=batch_of(b"b", timestamp=T0 + 5), acks=1))
        asked = tuple(ListOffsetsPartition(TP.topic, 0, at) for at in (LATEST_TIMESTAMP,))
        for isolation_level in (READ_UNCOMMITTED, READ_COMMITTED):
            answer = await leader.ask(ListOffsetsRequest(asked, isolation_level=isolation_level))
            assert answer.partitions[0].offset == 1
        with pytest.raises(InvalidRequestError, match="isolation"):
            await leader.ask(ListOffsetsRequest(asked, isolation_level=2))


@on_virtual_time
async def test_failed_look_up_of_one_partition_leaves_the_others_answered() -> None:
    async with MemoryCluster() as cluster:
        offline, followed, led, other = TP, TP._replace(partition=1), TP._replace(partition=2), TP._replace(partition=3)
        for tp, broker in ((offline, 1), (followed, 2), (led, 1), (other, 1)):
            await cluster.elect(broker, tp=tp)
        leader = cluster.nodes[1]
        leader.replica(offline).offline = True
        asked = tuple(
            ListOffsetsPartition(topic, number, LATEST_TIMESTAMP, epoch)
            for topic, number, epoch in (
                ("t", 1, -1),
                ("t", 2, -1),
                ("t", 9, -1),
                ("u", 0, -1),
                ("t", 3, 7),
                ("t", 0, -1),
            )
        )
        answer = await leader.ask(ListOffsetsRequest(asked))
        assert [(part.error_code, part.offset) for part in answer.partitions] == [
            (NotLeaderOrFollowerError.code, -1),
            (0, 0),
            (UnknownTopicOrPartitionError.code, -1),
            (UnknownTopicOrPartitionError.code, -1),
            (UnknownLeaderEpochError.code, -1),
            (StorageError.code, -1),
        ]


@on_virtual_time
async def test_epochs_end_where_the_next_one_begins() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        await cluster.elect(1)
        await cluster.produce(b"b")
        answers = []
        for current, asked in ((1, 0), (1, 1), (1, 2), (0, 0)):
            request = OffsetForLeaderEpochRequest((EpochPartition(TP.topic, 0, current, asked),))
            end = (await cluster.leader.ask(request)).partitions[0]
            answers.append((end.error_code, end.leader_epoch, end.end_offset))
        assert answers == [(0, 0, 1), (0, 1, 2), (0, -1, -1), (FencedLeaderEpochError.code, -1, -1)]


@pytest.mark.parametrize("lost", ["cut_off", "connection"])
@on_virtual_time
async def test_cut_off_leader_does_not_deny_a_later_epoch(lost: str) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        cluster.leader.cut_off, cluster.leader.connected = lost == "cut_off", lost != "connection"
        answers = []
        follower = cluster.nodes[2]
        for asked, replica_id, sender_epoch in ((0, -1, -1), (1, -1, -1), (1, 2, follower.epoch)):
            request = OffsetForLeaderEpochRequest((EpochPartition(TP.topic, 0, 0, asked),), replica_id)
            end = (await cluster.leader.ask(request, sender_epoch=sender_epoch)).partitions[0]
            answers.append((end.error_code, end.leader_epoch, end.end_offset))
        assert answers == [(0, 0, 1), (OffsetNotAvailableError.code, -1, -1), (0, -1, -1)]


@on_virtual_time
async def test_the_leader_describes_its_replicas() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        request = DescribeReplicasRequest((DescribePartition(TP.topic, 0),))
        described = (await cluster.leader.ask(request)).partitions[0]
        assert (described.high_watermark, described.log_end_offset, described.isr) == (1, 1, (1, 2, 3))
        assert described.log_end_offsets == {1: 1, 2: 1, 3: 1}


def unreadable() -> bytes:
    """Return a batch with a valid CRC and invalid records. The leader appends it because it is compressed."""
    data = bytearray(HEADER_BYTES) + compress(Codec.ZSTD, b"no record")
    HEADER.pack_into(data, 0, 0, len(data) - 12, -1, 2, 0, Codec.ZSTD, 0, T0 + 9, T0 + 9, -1, -1, -1, 1)
    seal(data, 0, len(data))
    return bytes(data)


@on_virtual_time
async def test_look_up_names_the_offset_of_unreadable_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=batch_of(b"a", b"b", timestamp=T0)))
        await leader.ask(produce_request(batch=unreadable()))
        assert await leader.look_up(T0) == (0, 0, T0)
        for timestamp in (T0 + 5, MAX_TIMESTAMP):
            assert await leader.look_up(timestamp) == (InvalidRecordError.code, 2, -1)
        assert not InvalidRecordError.retriable
        assert "t-0" in caplog.text and "offset 2 cannot be read" in caplog.text


def large(timestamp: int) -> bytes:
    """Return a batch of a few hundred bytes that is too large to decompress on the event loop."""
    return encode_batch([(timestamp, None, bytes(MAX_QUICK_BYTES), ())], codec=Codec.ZSTD)


@on_virtual_time
async def test_long_look_up_does_not_delay_other_requests() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        for request in (batch_of(b"a", timestamp=T0), large(T0 + 5), large(T0 + 7)):
            await leader.ask(produce_request(batch=request))
        later, at_once = (
            leader.handlers.handle(ListOffsetsRequest((ListOffsetsPartition(TP.topic, 0, timestamp),)), OF_A_CLIENT)
            for timestamp in (T0 + 6, T0)
        )
        assert isinstance(at_once, ListOffsetsResponse) and not isinstance(later, ListOffsetsResponse)
        assert await leader.look_up(T0 + 6) == await leader.look_up(MAX_TIMESTAMP) == (0, 2, T0 + 7)
        answer = (await later).partitions[0]  # type: ignore[misc, union-attr]
        assert (answer.offset, answer.timestamp) == (2, T0 + 7)


@on_virtual_time
async def test_look_up_of_very_many_partitions_lets_others_run() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.produce(b"a")
        others = tuple(ListOffsetsPartition("other", number, LATEST_TIMESTAMP) for number in range(3 * AT_ONCE))
        request = ListOffsetsRequest((*others, ListOffsetsPartition(TP.topic, 0, LATEST_TIMESTAMP)))
        later = cluster.leader.handlers.handle(request, OF_A_CLIENT)
        assert not isinstance(later, ListOffsetsResponse)
        answered = asyncio.ensure_future(later)  # type: ignore[arg-type, var-annotated]
        turns = 0
        while not answered.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 3
        answers = answered.result().partitions
        assert [(each.topic, each.partition) for each in answers[:-1]] == [("other", each.partition) for each in others]
        assert {each.error_code for each in answers[:-1]} == {UnknownTopicOrPartitionError.code}
        assert (answers[-1].error_code, answers[-1].offset) == (0, 1)


@on_virtual_time
async def test_waiting_look_ups_are_bounded_in_number_and_time() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=large(T0)))
        asked = await asyncio.gather(
            *(leader.look_up(T0) for _ in range(MAX_LONG_LOOK_UPS + 1)), return_exceptions=True
        )
        assert asked[:-1] == [(0, 0, T0)] * MAX_LONG_LOOK_UPS
        assert isinstance(asked[-1], RequestTimedOutError)
        request = ListOffsetsRequest((ListOffsetsPartition(TP.topic, 0, T0),))
        past = replace(OF_A_CLIENT, deadline_ms=leader.replicas.clock.monotonic_ms() - 1)
        outcome = leader.handlers.handle(request, past)
        with pytest.raises(RequestTimedOutError):
            await outcome  # type: ignore[misc]


@on_virtual_time
async def test_leader_deposed_during_a_long_look_up_does_not_answer_it() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=large(T0)))
        later = asyncio.ensure_future(leader.look_up(T0))
        leader.replica().partition.stop()
        assert (await later)[0] == NotLeaderOrFollowerError.code


@on_virtual_time
async def test_look_up_starts_again_in_the_log_of_a_recreated_topic() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=large(T0)))
        later = leader.handlers.handle(ListOffsetsRequest((ListOffsetsPartition(TP.topic, 0, T0),)), OF_A_CLIENT)
        await leader.ask(cluster.leader_and_isr(topic_id="topic-id-2"), sender_epoch=1)
        await leader.ask(produce_request(batch=batch_of(b"a", timestamp=T0 + 3), acks=1))
        assert leader.replica().topic_id == "topic-id-2"
        answer = (await later).partitions[0]  # type: ignore[misc, union-attr]
        assert (answer.error_code, answer.offset) == (0, -1), "no record of the new topic is committed"


@on_virtual_time
async def test_look_up_does_not_count_records_committed_after_its_begin() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        leader = cluster.leader
        await leader.ask(produce_request(batch=large(T0)))
        later = leader.handlers.handle(
            ListOffsetsRequest((ListOffsetsPartition(TP.topic, 0, MAX_TIMESTAMP),)), OF_A_CLIENT
        )
        await leader.ask(produce_request(batch=batch_of(b"a", timestamp=T0 + 3)))
        answer = (await later).partitions[0]  # type: ignore[misc, union-attr]
        assert (answer.error_code, answer.offset) == (0, 0)
