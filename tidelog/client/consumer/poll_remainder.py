"""Hold the records that an iteration has polled and not yielded yet.

An iteration and `poll` share one position. The iteration polls many records at a time, so the position is after the
records that are not yielded yet. Therefore every other call of the consumer first gives these records back to their
buffers. Then the position is after the last record that was yielded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidelog.client.consumer.fetching.assigned_partition import AssignedPartition
from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchBuffer


class _Piece(NamedTuple):
    """The remaining records of one partition, with its `buffer` and `moves` when the records were taken."""

    partition: AssignedPartition
    left: Iterator[ConsumerRecord]
    buffer: FetchBuffer | None
    moves: int


class PollRemainder:
    """The polled records that are not yielded yet, in the order in which they are yielded."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._left: Iterator[ConsumerRecord] = iter(())

    def take(self, taken: Mapping[AssignedPartition, list[ConsumerRecord]]) -> None:
        """Hold the records that were just taken from these partitions. All earlier records must be yielded."""
        self._pieces.extend(
            _Piece(partition, iter(records), partition.buffer, partition.moves) for partition, records in taken.items()
        )
        self._left = self._pieces[0].left if self._pieces else iter(())

    def next(self) -> ConsumerRecord | None:
        """Return the next record; None if all are yielded."""
        while True:
            for record in self._left:
                return record
            if not self._pieces:
                return None
            self._pieces.popleft()
            self._left = self._pieces[0].left if self._pieces else iter(())

    def give_back(self) -> int:
        """Give the remaining records back to their partitions, except those whose position was moved meanwhile.

        Returns the number of records that were not yielded.
        """
        not_yielded = 0
        while self._pieces:
            partition, left, buffer, moves = self._pieces.popleft()
            records = list(left)
            if not records:
                continue
            not_yielded += len(records)
            first = records[0].offset
            if buffer is not None and partition.buffer is buffer:
                buffer.take_back(records)
            elif partition.moves == moves and partition.position is not None and first < partition.position:
                partition.rewind(first)  # the buffer has dropped its data: fetch it again
        self._left = iter(())
        return not_yielded
