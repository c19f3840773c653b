"""Sums up what `tidelog produce` wrote: records, bytes, partitions and offsets, as text or as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.quantities import count_of, first_of, format_size

if TYPE_CHECKING:
    from tidelog.client.producer.record_future import RunPart

#: The summary names the offsets of at most this many partitions.
_MOST_PARTITIONS_NAMED = 8


@dataclass(slots=True)
class PartitionSummary:
    """The acknowledged records of one partition; with acks=0, the sent ones.

    size_bytes     the bytes of keys and values
    first_offset   the offset of the first record; None if no broker returned an offset (acks=0)
    last_offset    the offset of the last record; records of other producers may lie between the two
    """

    records: int = 0
    size_bytes: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def add(self, part: RunPart, size_bytes: int) -> None:
        """Add acknowledged records at consecutive offsets, whose keys and values have `size_bytes` bytes."""
        self.records += part.record_count
        self.size_bytes += size_bytes
        if part.base_offset >= 0:
            if self.first_offset is None:
                self.first_offset = part.base_offset
            self.last_offset = part.base_offset + part.record_count - 1

    def offsets_text(self) -> str:
        """Return the offsets as text, such as `offsets 3 to 9`; "" if no broker returned one."""
        if self.first_offset == self.last_offset:
            return "" if self.first_offset is None else f"offset {self.first_offset}"
        return f"offsets {self.first_offset} to {self.last_offset}"


class ProduceSummary:
    """The acknowledged records of a topic's partitions; with acks=0, the sent ones."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._partitions: dict[int, PartitionSummary] = {}

    @property
    def records(self) -> int:
        """The number of records in all partitions."""
        return sum(each.records for each in self._partitions.values())

    @property
    def size_bytes(self) -> int:
        """The bytes of all keys and values."""
        return sum(each.size_bytes for each in self._partitions.values())

    def add(self, partition: int, part: RunPart, size_bytes: int) -> None:
        """Add acknowledged records of one partition at consecutive offsets.

        `size_bytes` are the bytes of their keys and values.
        """
        self._partitions.setdefault(partition, PartitionSummary()).add(part, size_bytes)

    def as_text(self, *, acknowledged: bool = True) -> str:
        """Return the summary as one line. Without `acknowledged` the line says that the records were only sent."""
        if not self._partitions:
            return f"wrote no records to {self._topic}: the input has no lines"
        verb = "wrote" if acknowledged else "sent, without acknowledgement,"
        amount = f"{count_of(self.records, 'record')}, {format_size(self.size_bytes)},"
        where = f"{count_of(len(self._partitions), 'partition')} of {self._topic}"
        return f"{verb} {amount} to {where}{self.offsets_text()}"

    def offsets_text(self) -> str:
        """Return the offsets in each partition, beginning with ": ", for the end of a sentence; "" if none is known.

        At most eight partitions are named.
        """
        named = [
            f"{self._topic}/{number} {text}"
            for number, each in sorted(self._partitions.items())
            if (text := each.offsets_text())
        ]
        return f": {first_of(named, _MOST_PARTITIONS_NAMED)}" if named else ""

    def as_json(self) -> dict[str, object]:
        """Return the summary as a JSON object: totals, and a list of the partitions with records."""
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
