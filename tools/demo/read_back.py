"""Counts the records of a topic through the consumer, for when there is no time for the audit."""

from __future__ import annotations

import time

from tidelog import Consumer, TopicPartition


def count_records(consumer: Consumer, topic: str, partitions: int, timeout_s: float) -> tuple[int, dict[int, int]]:
    """Read the topic from its beginning, at most `timeout_s`; return the number of records, and the end offsets.

    The end offsets are by partition, as they were at the start.
    """
    deadline = time.monotonic() + timeout_s
    assigned = [TopicPartition(topic, number) for number in range(partitions)]
    ends = consumer.end_offsets(assigned, timeout_ms=int(timeout_s * 1000))
    consumer.assign(assigned)
    consumer.seek_to_beginning()
    positions = dict.fromkeys(assigned, 0)
    read = 0
    while positions != ends and time.monotonic() < deadline:
        for partition, fetched in consumer.poll_batches(timeout_ms=200).items():
            # offsets have no holes, because the topic is not compacted
            read += fetched.next_offset - fetched.fetch_offset
            positions[partition] = fetched.next_offset
    return read, {partition.partition: end for partition, end in ends.items()}
