"""Sums up what `tidelog produce` wrote: records, bytes, partitions and offsets, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.quantities import count_of, first_of, format_size

if TYPE_CHECKING:
    from tidelog.record_future import RunPart

#: A line with more of them would not be read.
_MOST_PARTITIONS_NAMED = 8


@dataclass(slots=True)
class PartitionProduced:
    """The records that one partition took.

    size_bytes     of their keys and values
    first_offset   of the first one; None if no broker told an offset (acks=0)
    last_offset    of the last one; records of other producers may stand between the two
    """

    records: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def add(self, part: RunPart, size_bytes: int) -> None:
        """Add records that were stored one behind the other."""
        self.records += part.record_count
        self.size_bytes += size_bytes
        if part.base_offset >= 0:
            if self.first_offset is None:
                self.first_offset = part.base_offset
            self.last_offset = part.base_offset + part.record_count - 1

    def offsets_text(self) -> str:
        """The offsets as people write them, empty if no broker told one."""
        if self.first_offset == self.last_offset:
            return "" if self.first_offset is None else f"offset {self.first_offset}"
        return f"offsets {self.first_offset} to {self.last_offset}"


class Produced:
    """The records that a topic took, by partition."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._partitions: dict[int, PartitionProduced] = {}

    @property
    def records(self) -> int:
        """How many there are in all partitions."""
        return sum(each.records for each in self._partitions.values())

    @property
    def size_bytes(self) -> int:
        """The bytes of their keys and values."""
        return sum(each.size_bytes for each in self._partitions.values())

    def add(self, partition: int, part: RunPart, size_bytes: int) -> None:
        """Add records that the partition stored one behind the other."""
        self._partitions.setdefault(partition, PartitionProduced()).add(part, size_bytes)

    def summary(self, *, acknowledged: bool = True) -> str:
        """One line for people. `acknowledged`: brokers said so, otherwise the records were only sent."""
        if not self._partitions:
            return f"wrote no records to {self._topic}: the input has no lines"
        verb = "wrote" if acknowledged else "sent, without acknowledgement,"
        what = f"{count_of(self.records, 'record')}, {format_size(self.size_bytes)},"
        where = f"{count_of(len(self._partitions), 'partition')} of {self._topic}"
        return f"{verb} {what} to {where}{self.offsets_text()}"

    def offsets_text(self) -> str:
        """The offsets in each partition, to be put behind a sentence; empty if none is known."""
        named = [
            f"{self._topic}/{number} {text}"
            for number, each in sorted(self._partitions.items())
            if (text := each.offsets_text())
        ]
        return f": {first_of(named, _MOST_PARTITIONS_NAMED)}" if named else ""

    def as_json(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "topic": self._topic,
            "records": self.records,
            "bytes": self.size_bytes,
            "partitions": [
                {
                    "partition": number,
                    "records": each.records,
                    "bytes": each.size_bytes,
                    "first_offset": each.first_offset,
                    "last_offset": each.last_offset,
                }
                for number, each in sorted(self._partitions.items())
            ],
        }
