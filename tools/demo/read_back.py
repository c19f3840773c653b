"""How many records a topic holds, read through the consumer: what can be said when there is no time for the audit."""

from __future__ import annotations

import time

from tidelog import Consumer, TopicPartition


def count_records(consumer: Consumer, topic: str, partitions: int, timeout_s: float) -> tuple[int, dict[int, int]]:
    """Records that were read from the beginning within the time, and each partition's end offset."""
    deadline = time.monotonic() + timeout_s
    assigned = [TopicPartition(topic, number) for number in range(partitions)]
    ends = consumer.end_offsets(assigned, timeout_ms=int(timeout_s * 1000))
    consumer.assign(assigned)
    consumer.seek_to_beginning()
    positions = dict.fromkeys(assigned, 0)
    read = 0
    while positions != ends and time.monotonic() < deadline:
        for partition, fetched in consumer.poll_batches(timeout_ms=200).items():
            read += fetched.next_offset - fetched.fetch_offset  # offsets have no holes: nothing is compacted here
            positions[partition] = fetched.next_offset
    return read, {partition.partition: end for partition, end in ends.items()}
