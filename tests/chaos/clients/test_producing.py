"""Test that producers record each record before they send it, and its outcome afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tests.chaos.clients.chaos_stage import World
from tests.tidelog.fake_cluster import Fault
from tests.virtual_time import on_virtual_time, until
from tidelog.aio import Producer
from tidelog.errors import InvalidTimestampError, UnknownTopicOrPartitionError
from tidelog.history.operations import ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.model import TopicPartition
from tidelog.protocol.messages import ProduceRequest
from verify.chaos.clients.producing import ProducingClient
from verify.chaos.load import LoadTopic, Times
from verify.chaos.payload import producer_of, sequence_of

ORDERS = LoadTopic("orders", 2)


@on_virtual_time
async def test_producer_sends_at_its_rate_and_records_each_offset() -> None:
    stage = World(ORDERS, LoadTopic("clicks", 2, keys=10), LoadTopic("scattered", 1, times=Times.SCATTERED))
    async with stage.running(ProducingClient(stage.context, "p", 7, rate=200)):
        await asyncio.sleep(10)
    invoked = stage.ids(ProduceInvoked)
    assert 1_900 <= len(invoked) <= 2_010
    assert sorted(stage.ids(ProduceOk)) == sorted(invoked)
    assert {producer_of(each) for each in invoked} == {7}
    assert sorted(map(sequence_of, invoked)) == list(range(len(invoked)))
    for event in stage.events(ProduceOk):
        log = stage.log(*event.tp)
        assert [log[offset] for offset in event.offsets] == list(event.ids)
    by_record = {each: t for event in stage.events(ProduceInvoked) for each, t in zip(event.ids, event.t, strict=True)}
    assert all(
        by_record[each] <= t for event in stage.events(ProduceOk) for each, t in zip(event.ids, event.t, strict=True)
    )


@on_virtual_time
async def test_repeated_requests_of_an_idempotent_producer_store_records_once() -> None:
    stage = World(ORDERS)
    sent: Counter[tuple[bytes, ...]] = Counter()

    def count(broker: int, request: object) -> None:
        if isinstance(request, ProduceRequest):
            sent[tuple(bytes(each.records) for each in request.partitions)] += 1

    stage.cluster.fault_of = count
    others = ProducingClient(stage.context, "q", 2, rate=20, idempotent=False)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100), others):
        await asyncio.sleep(3)
    twice = [request for request, times in sent.items() if times == 2]
    assert set(sent.values()) == {1, 2} and len(twice) < len(sent) // 4
    stored = stage.log("orders", 0) + stage.log("orders", 1)
    assert sorted(stored) == sorted(stage.ids(ProduceInvoked)) == sorted(stage.ids(ProduceOk))
    for event in stage.events(ProduceOk):
        log = stage.log(*event.tp)
        assert [log[offset] for offset in event.offsets] == list(event.ids)


@on_virtual_time
async def test_repeated_request_hides_no_refusal_and_no_acknowledgement() -> None:
    stage = World(ORDERS)
    sent: Counter[tuple[bytes, ...]] = Counter()

    def refuse_the_second(broker: int, request: object) -> Fault | None:
        if not isinstance(request, ProduceRequest):
            return None
        same = tuple(bytes(each.records) for each in request.partitions)
        sent[same] += 1
        return Fault.NOT_ENOUGH_REPLICAS if sent[same] == 2 else None

    stage.cluster.fault_of = refuse_the_second
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100, options={"retries": 0})):
        await asyncio.sleep(3)
    assert max(sent.values()) == 2
    assert sorted(stage.ids(ProduceOk)) == sorted(stage.ids(ProduceInvoked))


@on_virtual_time
async def test_keyed_record_is_announced_for_the_partition_of_its_key() -> None:
    stage = World(LoadTopic("clicks", 5, keys=50))
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=500)):
        await asyncio.sleep(3)
    for partition in range(5):
        tp = TopicPartition("clicks", partition)
        announced = [each for event in stage.events(ProduceInvoked) if event.tp == tp for each in event.ids]
        assert announced and sorted(announced) == sorted(stage.log(*tp))


@on_virtual_time
async def test_record_with_refusals_only_has_failed() -> None:
    stage = World(ORDERS)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100, options={"retries": 0})):
        await until(lambda: len(stage.ids(ProduceOk)) > 20)
        stage.cluster.fault_of = lambda broker, request: (
            Fault.NOT_ENOUGH_REPLICAS if isinstance(request, ProduceRequest) else None
        )
        await until(lambda: len(stage.ids(ProduceFailed)) > 20)
        stage.cluster.fault_of = lambda broker, request: None
    assert {name for event in stage.events(ProduceFailed) for name in event.errors} == {"NOT_ENOUGH_REPLICAS"}
    stored = {*stage.log("orders", 0), *stage.log("orders", 1)}
    assert stored.isdisjoint(stage.ids(ProduceFailed))
    assert not stage.events(ProduceUnknown)


@on_virtual_time
async def test_refusal_after_a_stored_attempt_is_an_unknown_outcome() -> None:
    stage = World(LoadTopic("orders", 1), timeout_ms=2_000)
    attempts: dict[int, int] = {}

    def fault(broker: int, request: object) -> Fault | None:
        if not isinstance(request, ProduceRequest):
            return None
        attempts[broker] = attempts.get(broker, 0) + 1
        return Fault.LOSE_ANSWER if attempts[broker] == 1 else Fault.NOT_ENOUGH_REPLICAS

    async with stage.running(ProducingClient(stage.context, "p", 1, rate=50, options={"retries": 1})):
        stage.cluster.fault_of = fault
        await until(lambda: len(stage.ids(ProduceUnknown)) > 0)
    assert set(stage.ids(ProduceUnknown)) & set(stage.log("orders"))
    assert not set(stage.ids(ProduceFailed)) & set(stage.log("orders"))


@on_virtual_time
async def test_every_record_gets_an_outcome_without_broker_answers() -> None:
    stage = World(ORDERS, timeout_ms=2_000)
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=100)):
        await until(lambda: len(stage.ids(ProduceOk)) > 20)
        stage.cluster.fault_of = lambda broker, request: Fault.SWALLOW if isinstance(request, ProduceRequest) else None
        await asyncio.sleep(5)
    ended = [*stage.ids(ProduceOk), *stage.ids(ProduceFailed), *stage.ids(ProduceUnknown)]
    assert sorted(ended) == sorted(stage.ids(ProduceInvoked))
    invoked = {each: t for event in stage.events(ProduceInvoked) for each, t in zip(event.ids, event.t, strict=True)}
    for event in stage.events(ProduceUnknown):
        assert all(t - invoked[each] <= 3e9 for each, t in zip(event.ids, event.t, strict=True))


@on_virtual_time
async def test_duplicate_with_a_forgotten_offset_has_an_unknown_outcome() -> None:
    stage = World(LoadTopic("orders", 1))
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=10)):
        await until(lambda: len(stage.ids(ProduceOk)) > 3)
        stage.cluster.refusals[ProduceRequest].extend([46] * 3)
        await until(lambda: len(stage.ids(ProduceUnknown)) > 0)
    assert all(min(event.offsets) >= 0 for event in stage.events(ProduceOk))


@on_virtual_time
async def test_header_has_acks_and_idempotence_of_the_producer() -> None:
    stage = World(ORDERS)
    unsafe = ProducingClient(stage.context, "unsafe", 1, rate=10, acks=1, idempotent=False)
    async with stage.running(unsafe, ProducingClient(stage.context, "safe", 2, rate=10)):
        await asyncio.sleep(2)
    headers = {name: (diary.header.acks, diary.header.idempotent) for name, diary in stage.diaries.items()}
    assert headers == {"unsafe": (1, False), "safe": (-1, True)}
    safe = {each for diary in ("safe",) for event in stage.diaries[diary].events if isinstance(event, ProduceOk)
            for each in event.offsets}  # fmt: skip
    known = {place.offset for places in stage.context.acknowledged.values() for place in places}
    assert known <= safe  # other clients look up only records acknowledged with acks=all


@on_virtual_time
async def test_refusal_of_a_topic_is_recorded_per_record() -> None:
    stage = World(LoadTopic("orders", 1))
    stage.cluster.partitions["orders"][0].max_batch_bytes = 0
    stage.cluster.partitions["orders"][0].too_large = InvalidTimestampError
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=20)):
        await until(lambda: len(stage.ids(ProduceFailed)) > 5)
    assert {name for event in stage.events(ProduceFailed) for name in event.errors} == {"INVALID_TIMESTAMP"}


@on_virtual_time
async def test_records_behind_a_failed_send_are_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait_in_vain(producer: Producer, *_: object, **__: object) -> None:
        await asyncio.sleep(3)
        raise UnknownTopicOrPartitionError

    monkeypatch.setattr(Producer, "send", wait_in_vain)
    stage = World(LoadTopic("orders", 1))
    async with stage.running(ProducingClient(stage.context, "p", 1, rate=10, tick_s=1)):
        await until(lambda: len(stage.ids(ProduceFailed)) > 5)
    began = {each: t for event in stage.events(ProduceInvoked) for each, t in zip(event.ids, event.t, strict=True)}
    ended = {each: t for event in stage.events(ProduceFailed) for each, t in zip(event.ids, event.t, strict=True)}
    assert max(t - began[each] for each, t in ended.items()) <= 3e9
