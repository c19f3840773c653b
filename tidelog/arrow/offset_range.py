"""Define a range of offsets of one partition."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.model import TopicPartition


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """The offsets [start, until) of one partition; some of them may have no record."""

    topic_partition: TopicPartition
    start: int
    until: int

    @property
    def size(self) -> int:
        return max(0, self.until - self.start)

    def __str__(self) -> str:
        return f"{self.topic_partition} [{self.start}, {self.until})"
