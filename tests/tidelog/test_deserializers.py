"""Test consumers that turn the bytes of records into values with the user's functions."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.tidelog.clients import a_consumer, in_memory, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog import TopicPartition
from tidelog.errors import RecordDeserializationError, SerializationError
from tidelog.records import encode_batch

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def a_cluster(*logs: Sequence[bytes]) -> FakeCluster:
    """Return a cluster whose topic "t" has these values, each log in one partition and in batches of three."""
    cluster = FakeCluster()
    for partition, log in zip(cluster.create("t", len(logs)), logs, strict=True):
        for at in range(0, len(log), 3):
            put(partition, *log[at : at + 3])
    return cluster


def places(records: Sequence[Any]) -> list[tuple[int, Any]]:
    return [(record.offset, record.value) for record in records]


@on_virtual_time
async def test_poll_returns_what_the_deserializers_return() -> None:
    cluster = FakeCluster()
    cluster.create("t")[0].append(encode_batch([(7, b"k", b"5", ((("h"), b"x"),)), (8, None, None, ())]))
    async with a_consumer(cluster, key_deserializer=bytes.decode, value_deserializer=int) as consumer:
        consumer.assign([P0])
        (first, second) = (await consumer.poll(1000))[P0]
    assert (first.key, first.value, first.headers, first.timestamp) == ("k", 5, (("h", b"x"),), 7)
    assert (second.key, second.value, second.offset) == (None, None, 1)


@on_virtual_time
async def test_records_before_a_bad_one_come_before_its_error() -> None:
    async with a_consumer(a_cluster([b"0", b"1", b"bad", b"3"]), value_deserializer=int) as consumer:
        consumer.assign([P0])
        assert places((await consumer.poll(1000))[P0]) == [(0, 0), (1, 1)]
        assert await consumer.position(P0) == 2
        with pytest.raises(RecordDeserializationError, match=r"t-0: value_deserializer failed .* offset 2") as raised:
            await consumer.poll(1000)
        error = raised.value
        assert (error.topic_partition, error.offset, error.field) == (P0, 2, "value")
        assert (error.key, error.value, error.timestamp) == (None, b"bad", 0)
        assert isinstance(error.__cause__, ValueError)
        assert await consumer.position(P0) == 2


@on_virtual_time
async def test_bad_record_is_passed_by_a_seek() -> None:
    async with a_consumer(a_cluster([b"bad", b"1"]), value_deserializer=int) as consumer:
        consumer.assign([P0])
        with pytest.raises(RecordDeserializationError) as raised:
            await consumer.poll(1000)
        consumer.seek(raised.value.topic_partition, raised.value.offset + 1)
        assert places((await consumer.poll(1000))[P0]) == [(1, 1)]


@on_virtual_time
async def test_error_stays_until_a_seek_and_other_partitions_go_on() -> None:
    cluster = a_cluster([b"bad", b"1"], [b"0"])
    async with a_consumer(cluster, value_deserializer=int) as consumer:
        consumer.assign([P0, P1])
        polled, errors = [], 0
        for _ in range(4):
            try:
                polled.append(await consumer.poll(1000))
            except RecordDeserializationError:
                errors += 1
        assert [list(each) for each in polled] == [[P1]] and errors == 3
        put(cluster.partitions["t"][1], b"7")
        assert {tp: places(found) for tp, found in (await consumer.poll(1000)).items()} == {P1: [(1, 7)]}


@on_virtual_time
async def test_commit_covers_the_records_before_the_bad_one() -> None:
    options = {"group_id": "g", "value_deserializer": int, "enable_auto_commit": False}
    async with a_consumer(a_cluster([b"0", b"bad"]), **options) as consumer:
        consumer.assign([P0])
        await consumer.poll(1000)
        await consumer.commit()
        assert await consumer.committed(P0) == 1
        with pytest.raises(RecordDeserializationError):
            await consumer.poll(1000)
        await consumer.commit()
        assert await consumer.committed(P0) == 1


@on_virtual_time
async def test_iteration_yields_the_records_before_the_bad_one() -> None:
    async with a_consumer(a_cluster([b"0", b"1", b"bad", b"3"]), value_deserializer=int) as consumer:
        consumer.assign([P0])
        seen = []
        with pytest.raises(RecordDeserializationError) as raised:
            async for record in consumer:
                seen.append((record.offset, record.value))  # noqa: PERF401
        assert seen == [(0, 0), (1, 1)] and raised.value.offset == 2
        consumer.seek(P0, 3)
        assert (await anext(consumer)).value == 3


def test_synchronous_iteration_yields_the_records_before_the_bad_one() -> None:
    cluster = a_cluster([b"0", b"1", b"bad", b"3"])
    with in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        consumer.assign([P0])
        seen = []
        with pytest.raises(RecordDeserializationError) as raised:
            for record in consumer:
                seen.append((record.offset, record.value))  # noqa: PERF401
        assert seen == [(0, 0), (1, 1)] and raised.value.offset == 2
        assert consumer.position(P0) == 2
        consumer.seek(P0, 3)
        assert next(consumer).value == 3


def test_synchronous_poll_returns_the_records_before_the_bad_one() -> None:
    cluster = a_cluster([b"0", b"bad"])
    with in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        consumer.assign([P0])
        assert places(consumer.poll(5000)[P0]) == [(0, 0)]
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(5000)
        assert raised.value.offset == consumer.position(P0) == 1


def test_deserializer_runs_in_the_thread_that_polls() -> None:
    threads = []

    def note(value: bytes) -> bytes:
        threads.append(threading.current_thread())
        return value

    cluster = a_cluster([b"0", b"1", b"2"])
    with in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest", value_deserializer=note) as consumer:
        consumer.assign([P0])
        consumer.poll(5000, max_records=1)
        next(consumer)
        consumer.consume(1, 5000)
    assert threads == [threading.current_thread()] * 3


@pytest.mark.parametrize("way", ["poll", "iteration", "consume"])
def test_interrupted_deserializer_loses_no_record(way: str) -> None:
    interrupts = [b"1"]

    def interrupted(value: bytes) -> int:
        if value in interrupts:
            interrupts.remove(value)
            raise KeyboardInterrupt
        return int(value)

    cluster = a_cluster([b"0", b"1", b"2"])
    with in_memory(tidelog.Consumer, cluster, auto_offset_reset="earliest", value_deserializer=interrupted) as consumer:
        consumer.assign([P0])
        if way == "iteration":
            assert next(consumer).value == 0
        read = {"poll": consumer.poll, "iteration": lambda _: next(consumer), "consume": consumer.consume}[way]
        with pytest.raises(KeyboardInterrupt):
            read(3000)
        expected = [(1, 1), (2, 2)] if way == "iteration" else [(0, 0), (1, 1), (2, 2)]
        assert places(consumer.poll(5000)[P0]) == expected


@pytest.mark.parametrize("way", ["poll", "iteration", "consume"])
@on_virtual_time
async def test_deserializer_that_ends_the_program_loses_no_record(way: str) -> None:
    exits = [b"1"]

    def leave(value: bytes) -> int:
        if value in exits:
            exits.remove(value)
            raise SystemExit(1)
        return int(value)

    async with a_consumer(a_cluster([b"0", b"1", b"2"]), value_deserializer=leave) as consumer:
        consumer.assign([P0])
        if way == "iteration":
            assert (await anext(consumer)).value == 0
        read = {"poll": consumer.poll, "iteration": lambda _: anext(consumer), "consume": consumer.consume}[way]
        with pytest.raises(SystemExit):
            await read(3000)
        expected = [(1, 1), (2, 2)] if way == "iteration" else [(0, 0), (1, 1), (2, 2)]
        assert places((await consumer.poll(5000))[P0]) == expected


@on_virtual_time
async def test_interrupt_after_a_close_is_raised_itself() -> None:
    async with a_consumer(a_cluster([b"0"])) as consumer:
        consumer.assign([P0])
        polled = await consumer.poll(3000)
        await consumer.close()
        consumer.reader.give_back(polled)


@pytest.mark.parametrize("kind", [RecordDeserializationError, SerializationError])
def test_error_of_a_users_function_can_be_sent_to_another_process(kind: type[Exception]) -> None:
    location: dict[str, Any] = {"topic": "t", "field": "value"}
    if kind is RecordDeserializationError:
        location = {"topic_partition": P0, "offset": 3, "timestamp": 5, "field": "value", "key": None, "value": b"x"}
    received = pickle.loads(pickle.dumps(kind("t-0: failed", **location)))
    assert type(received) is kind and str(received) == "t-0: failed"
    assert vars(received) == location


@on_virtual_time
async def test_poll_batches_returns_bytes_past_the_bad_record() -> None:
    async with a_consumer(a_cluster([b"0", b"bad", b"2"]), value_deserializer=int) as consumer:
        consumer.assign([P0])
        await consumer.poll(1000)
        with pytest.raises(RecordDeserializationError):
            await consumer.poll(1000)
        await asyncio.sleep(5)  # no fetch is in flight
        batches = (await consumer.poll_batches(1000))[P0]
        assert (batches.fetch_offset, batches.next_offset) == (1, 3)
        assert await consumer.position(P0) == 3


VALUES = st.lists(st.sampled_from([b"1", b"2", b"bad"]), max_size=8)


@given(logs=st.lists(VALUES, min_size=1, max_size=3), limit=st.integers(1, 5), way=st.sampled_from(["poll", "consume"]))
def test_every_good_record_comes_once_if_bad_ones_are_skipped(logs: list[list[bytes]], limit: int, way: str) -> None:
    @on_virtual_time
    async def story() -> None:
        expected = {(number, offset): value for number, log in enumerate(logs) for offset, value in enumerate(log)}
        seen: dict[tuple[int, int], Any] = {}
        async with a_consumer(a_cluster(*logs), value_deserializer=int) as consumer:
            consumer.assign([TopicPartition("t", number) for number in range(len(logs))])
            while len(seen) < len(expected):
                try:
                    if way == "poll":
                        polled = await consumer.poll(5000, limit)
                        records = [record for each in polled.values() for record in each]
                    else:
                        records = await consumer.consume(limit, 500)
                except RecordDeserializationError as error:
                    new = [((error.topic_partition.partition, error.offset), error.value)]
                    consumer.seek(error.topic_partition, error.offset + 1)
                else:
                    new = [((record.partition, record.offset), b"%d" % record.value) for record in records]
                assert new and not seen.keys() & dict(new).keys()
                seen.update(new)
        assert seen == expected

    story()
