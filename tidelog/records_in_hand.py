"""Records that a poll took for an iteration, and how far that has come."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.fetch_buffer import ConsumerRecord
from tidelog.model import TopicPartition


class RecordsInHand:
    """Records of a partition whose position is moved elsewhere meanwhile say nothing of where its reader stands.

    moved    partitions that the reader has left or moved meanwhile; it gets no more of theirs
    polled   `PartitionBuffer.moves` of those of the last poll, as they were when it took their records
    """

    def __init__(self) -> None:
        self.moved: set[TopicPartition] = set()
        self.polled: Mapping[TopicPartition, int] = {}
        self._moves: Mapping[TopicPartition, int] = {}
        self._firsts: dict[TopicPartition, int] = {}
        self._last: ConsumerRecord | None = None

    def take(self, polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> Iterator[ConsumerRecord]:
        """Hands them out one by one, in place of what was in hand before."""
        self.moved = moved = set[TopicPartition]()
        self._moves = self.polled
        self._firsts = firsts = {tp: records[0].offset for tp, records in polled.items()}
        self._last = None

        def records() -> Iterator[ConsumerRecord]:
            for tp, each in polled.items():
                for record in each:
                    if tp in moved:
                        break
                    self._last = record
                    yield record
                self._last = None
                del firsts[tp]

        return records()

    def unread(self, moves: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Of partitions with records that were not handed out: the first such offset, and the epoch before it.

        `moves` says how often their positions have been moved by now. One that only went back may lie before that.
        """
        found = {tp: (first, -1) for tp, first in self._firsts.items()}
        if (last := self._last) is not None:
            found[TopicPartition(last.topic, last.partition)] = (last.offset + 1, last.leader_epoch)
        return {tp: at for tp, at in found.items() if tp not in self.moved and self._moves.get(tp) == moves.get(tp)}
