"""A member of a group, run as a program. It writes each operation into its diary before the effect is visible.

Usage: group_member.py SERVERS GROUP TOPIC STRATEGY FILE. One JSON object a line, with the monotonic time in `at_s`.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TextIO

from tidelog import Consumer, ConsumerRebalanceListener, OffsetAndMetadata, TopicPartition
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.errors import TidelogError

SESSION_TIMEOUT_MS = 6_000
_MOST_AT_ONCE = 200
#: What it takes at most to process what one poll brings, so that a kill meets records that are not committed yet.
_LONGEST_WORK_S = 0.1


class Diary:
    """Lines that outlive a SIGKILL: each is in the page cache when `write` returns."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, did: str, **what: object) -> None:
        self._file.write(json.dumps({"did": did, "at_s": time.monotonic(), **what}) + "\n")
        self._file.flush()


class Listener(ConsumerRebalanceListener):
    """Notes what its consumer owns."""

    def __init__(self, diary: Diary, consumer: Consumer) -> None:
        self._diary = diary
        self._consumer = consumer

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        owned = sorted(tp.partition for tp in self._consumer.assignment())
        metadata = self._consumer.group_metadata()
        self._diary.write("owns", partitions=owned, generation=metadata.generation_id, member=metadata.member_id)

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._diary.write("gives up", partitions=sorted(tp.partition for tp in partitions))

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._diary.write("lost", partitions=sorted(tp.partition for tp in partitions))


def runs(records: list[ConsumerRecord]) -> Iterator[tuple[int, int]]:
    """First and last offset of each run without a gap."""
    numbered = enumerate(record.offset for record in records)
    for _, run in itertools.groupby(numbered, lambda pair: pair[1] - pair[0]):
        offsets = [offset for _, offset in run]
        yield offsets[0], offsets[-1]


def work(diary: Diary, consumer: Consumer, polled: Mapping[TopicPartition, list[ConsumerRecord]]) -> None:
    """Process, then commit: each step is written down before the next one begins."""
    for tp, records in polled.items():
        for first, last in runs(records):
            diary.write("processed", partition=tp.partition, first=first, last=last)
    time.sleep(random.random() * _LONGEST_WORK_S)
    offsets = {tp: records[-1].offset + 1 for tp, records in polled.items()}
    shown = {
        "offsets": {tp.partition: offset for tp, offset in offsets.items()},
        "generation": consumer.group_metadata().generation_id,
        "began_s": time.monotonic(),
    }
    try:
        consumer.commit({tp: OffsetAndMetadata(offset) for tp, offset in offsets.items()}, timeout_ms=10_000)
    except TidelogError as error:
        diary.write("not committed", **shown, error=type(error).__name__)
    else:
        diary.write("committed", **shown)


def main(servers: str, group: str, topic: str, strategy: str, path: str) -> None:
    with (
        open(path, "a", encoding="utf-8") as file,
        Consumer(
            bootstrap_servers=servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=1_000,
            partition_assignment_strategy=[strategy],
        ) as consumer,
    ):
        diary = Diary(file)
        diary.write("begins")
        consumer.subscribe([topic], listener=Listener(diary, consumer))
        while True:
            polled = consumer.poll(timeout_ms=200, max_records=_MOST_AT_ONCE)
            if polled:
                work(diary, consumer, polled)


if __name__ == "__main__":
    main(*sys.argv[1:])
