"""Test that the data that is fetched ahead of a reader is limited."""

from __future__ import annotations

from tidelog.client.consumer.fetch_buffer import MAX_CHUNKS, PartitionBuffer
from tidelog.model import TopicPartition
from tidelog.records import encode_batch


def put(buffer: PartitionBuffer) -> None:
    batch = encode_batch([(1, None, b"v", ())], base_offset=buffer.fetch_offset)
    assert buffer.put(memoryview(batch), high_watermark=99, log_start_offset=0, check_crcs=True)


def test_fetch_is_planned_only_while_there_is_space() -> None:
    buffer = PartitionBuffer(TopicPartition("t", 0), None)
    buffer.seek(0)
    for _ in range(MAX_CHUNKS):
        assert buffer.wants_data
        put(buffer)
    assert not buffer.wants_data
    assert [record.offset for record in buffer.take_records(1)] == [0]
    assert buffer.wants_data
    assert (buffer.position, buffer.fetch_offset) == (1, MAX_CHUNKS)
