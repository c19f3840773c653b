"""Test that readers record what they receive, session by session."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from tests.chaos.clients.chaos_stage import World
from tests.checker.judging import verdict_on
from tests.tidelog.clients import put
from tests.virtual_time import on_virtual_time, until
from tidelog.aio import Consumer
from tidelog.history.columns import DAMAGED
from tidelog.history.operations import (
    Client,
    EarliestOk,
    LatestOk,
    LookUpOk,
    ProduceInvoked,
    ProduceOk,
    Read,
    ReadFailed,
)
from tidelog.model import TopicPartition
from tidelog.protocol.messages import FetchRequest
from verify.chaos.clients.client_context import AcknowledgedRecord
from verify.chaos.clients.direct import DirectReader
from verify.chaos.clients.lookup_client import LookupClient
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.clients.reading import RandomSeekReader, ResetReader, TailReader
from verify.chaos.load import LoadTopic
from verify.chaos.payload import make_id, payload
from verify.checker.checker import Checker

ORDERS = LoadTopic("orders", 2)


def contiguous(reads: list[Read]) -> bool:
    """Check that each session has consecutive offsets."""
    sessions: dict[tuple[int, TopicPartition], list[int]] = {}
    for read in reads:
        sessions.setdefault((read.session, read.tp), []).extend(read.offsets)
    return all(b == a + 1 for offsets in sessions.values() for a, b in pairwise(offsets))


@on_virtual_time
async def test_random_seek_reader_accepts_a_shorter_log_of_another_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = World(ORDERS)
    asked = Consumer.beginning_offsets

    async def from_a_longer_log(self: Consumer, tps: Any) -> dict[TopicPartition, int]:
        return {tp: 1_000_000 for tp in await asked(self, tps)}

    monkeypatch.setattr(Consumer, "beginning_offsets", from_a_longer_log)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), RandomSeekReader(stage.context, "w")):
        await until(lambda: len(stage.events(ReadFailed)) > 3)


@pytest.mark.parametrize("batches", [False, True])
@on_virtual_time
async def test_tail_reader_records_every_record_once(batches: bool) -> None:
    stage = World(ORDERS)
    reader = TailReader(stage.context, "tail", batches=batches)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), reader):
        await until(lambda: len(stage.ids(Read)) > 500)
    reads = stage.events(Read)
    for partition in range(2):
        log = stage.log("orders", partition)
        seen = [(o, i) for read in reads if read.tp.partition == partition for o, i in zip(read.offsets, read.ids)]  # noqa: B905
        assert seen == list(enumerate(log))[: len(seen)]
    assert contiguous(reads) and len({read.session for read in reads}) == 2
    assert all((read.hw > read.offsets[-1]) is batches for read in reads)


@pytest.mark.parametrize("batches", [False, True])
@on_virtual_time
async def test_skipped_record_is_a_gap_in_the_session(batches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, call, lost = World(LoadTopic("orders", 1)), "poll_batches" if batches else "poll", []
    poll = getattr(Consumer, call)

    async def forgetful(consumer: Consumer, *arguments: Any) -> Any:
        polled = await poll(consumer, *arguments)
        if polled and stage.events(Read) and not lost:
            lost.append(polled)
            return {}
        return polled

    monkeypatch.setattr(Consumer, call, forgetful)
    reader = TailReader(stage.context, "tail", batches=batches)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), reader):
        await until(lambda: bool(lost) and len(stage.ids(Read)) > 100)
    diary = stage.diaries["tail"]
    assert len(verdict_on(diary.events, "I7", client=diary.header).findings) == 1


@on_virtual_time
async def test_damaged_value_is_recorded_as_damaged() -> None:
    stage = World(LoadTopic("orders", 1))
    good = make_id(1, 1)
    put(stage.cluster.partitions["orders"][0], payload(good, 50), b"foreign", payload(good, 50)[:-1])
    async with stage.running(TailReader(stage.context, "tail", batches=True)):
        await until(lambda: len(stage.ids(Read)) == 3)
    assert stage.ids(Read) == [good, DAMAGED, DAMAGED]


@on_virtual_time
async def test_missing_records_are_recorded_and_begin_a_new_session() -> None:
    stage = World(LoadTopic("orders", 1))
    partition = stage.cluster.partitions["orders"][0]
    for sequence in range(5):
        put(partition, payload(make_id(1, sequence), 30))
    async with stage.running(TailReader(stage.context, "tail", batches=True)):
        await until(lambda: len(stage.ids(Read)) == 5)
        partition.elect_uncleanly(leader=2, keeping=2)
        await until(lambda: len(stage.events(ReadFailed)) > 0)
        put(partition, payload(make_id(2, 0), 30))
        await until(lambda: len(stage.ids(Read)) > 5)
    (failed,) = stage.events(ReadFailed)
    assert (failed.error, failed.offset) == ("LOG_TRUNCATION", 5)
    last = stage.events(Read)[-1]
    assert last.session > failed.session and last.offsets[0] == 2


@on_virtual_time
async def test_random_seek_reader_reads_existing_records_again() -> None:
    stage = World(ORDERS)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=200), RandomSeekReader(stage.context, "w")):
        await until(lambda: len(stage.events(Read)) > 60)
    reads = stage.events(Read)
    assert contiguous(reads) and len({read.session for read in reads}) > 10
    assert len({read.offsets[0] for read in reads}) > 20
    for read in reads:
        log = stage.log(*read.tp)
        assert [log[offset] for offset in read.offsets] == list(read.ids)


@on_virtual_time
async def test_position_after_a_reset_is_recorded_as_an_end_offset() -> None:
    stage = World(ORDERS)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=30), ResetReader(stage.context, "r")):
        await until(lambda: len(stage.events(EarliestOk)) > 2 and len(stage.events(LatestOk)) > 2)
    assert {event.offset for event in stage.events(EarliestOk)} == {0}
    assert max(event.offset for event in stage.events(LatestOk)) > 20
    assert contiguous(stage.events(Read))


@on_virtual_time
async def test_direct_reader_queries_all_brokers_and_non_leaders_refuse() -> None:
    stage = World(LoadTopic("orders", 1))
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), DirectReader(stage.context, "d")):
        await until(lambda: len(stage.events(Read)) > 30 and len(stage.events(ReadFailed)) > 30)
    asked = {broker for broker, request in stage.cluster.requests if isinstance(request, FetchRequest)}
    assert asked == {1, 2, 3}
    assert {event.error for event in stage.events(ReadFailed)} == {"NOT_LEADER_OR_FOLLOWER"}
    assert all(read.hw > read.offsets[-1] for read in stage.events(Read) if read.offsets)
    assert len({read.session for read in stage.events(Read)}) == len(stage.events(Read))
    assert stage.events(LatestOk) and stage.events(EarliestOk) and stage.events(LookUpOk)


@on_virtual_time
async def test_direct_reader_sends_the_known_leader_epoch_every_other_time() -> None:
    stage = World(LoadTopic("orders", 1))
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), DirectReader(stage.context, "d")):
        await until(lambda: len(stage.events(Read)) > 30)
        stage.cluster.partitions["orders"][0].elect(leader=2)
        await until(lambda: len(stage.events(Read)) > 60)
    fetches = [request for _, request in stage.cluster.requests if isinstance(request, FetchRequest)]
    assert {each.partitions[0].current_leader_epoch for each in fetches} == {-1, 0, 1}


@on_virtual_time
async def test_leader_without_acknowledged_records_is_found_by_its_epoch() -> None:
    stage, tp = World(LoadTopic("orders", 1)), TopicPartition("orders", 0)
    partition, ids = stage.cluster.partitions["orders"][0], [make_id(1, sequence) for sequence in range(9)]
    for each in ids:
        put(partition, payload(each, 30))
    stage.context.acknowledged[tp].extend(AcknowledgedRecord(offset, 0) for offset in range(9))

    def refused() -> list[ReadFailed]:
        return [each for each in stage.events(ReadFailed) if each.error == "OFFSET_OUT_OF_RANGE"]

    def lost() -> list[int]:
        return [each.offset for each in refused() if 0 <= each.offset < 9]

    async with stage.running(DirectReader(stage.context, "d")):
        await until(lambda: any(8 in read.offsets for read in stage.events(Read)))
        partition.elect_uncleanly(leader=2, keeping=3)
        await until(lambda: bool(lost()) and any(each.offset < 0 for each in refused()))

    checker = Checker()
    producer, reader = checker.begin(Client("p")), checker.begin(Client("d"))
    checker.take(producer, ProduceInvoked(tp, ids, [0] * 9, [0] * 9))
    checker.take(producer, ProduceOk(tp, ids, range(9), [0] * 9))
    for each in refused():
        checker.take(reader, each)
    assert [each.invariant for each in checker.new_findings()] == ["I8"] * len(lost())


@on_virtual_time
async def test_lookup_client_uses_times_of_new_records() -> None:
    stage = World(LoadTopic("orders", 1))
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), LookupClient(stage.context, "a")):
        await until(lambda: len(stage.events(LookUpOk)) > 100)
    records = stage.cluster.partitions["orders"][0].records()
    found = [event for event in stage.events(LookUpOk) if event.offset >= 0]
    assert len(found) > 50 and any(event.offset < 0 for event in stage.events(LookUpOk))
    for event in found:
        assert records[event.offset].timestamp == event.ts and event.ts >= event.target
    assert stage.events(LatestOk) and stage.events(EarliestOk)


@on_virtual_time
async def test_clients_finish_without_reachable_brokers() -> None:
    stage = World(ORDERS, timeout_ms=2_000)
    clients = [
        TailReader(stage.context, "tail", batches=True),
        RandomSeekReader(stage.context, "w"),
        ResetReader(stage.context, "r"),
        DirectReader(stage.context, "d"),
        LookupClient(stage.context, "a"),
    ]
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), *clients):
        await until(lambda: len(stage.events(Read)) > 20)
        for broker in (1, 2, 3):
            stage.cluster.kill(broker, elect=False)
        await asyncio.sleep(10)
        before = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - before < 5
