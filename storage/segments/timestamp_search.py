"""The search for a time inside one batch, and the limit above which it must not run on an event loop.

A few hundred bytes may hold half a million records, or decompress to 128 MiB. Such a search is a long step of its
look-up (`storage.steps`). The search needs only the bytes of its batch, so the log may change meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from storage.steps import Steps
from tidelog.errors import (
    CorruptMessageError,
    MessageTooLargeError,
    UnreadableRecordsError,
    UnsupportedCompressionTypeError,
)
from tidelog.frozen_dataclass import frozen
from tidelog.model import Buffer
from tidelog.records import (
    MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    RecordTime,
    first_in_checked_batch,
    outline_batch,
)

#: The limits of a step of a few ms: the number of records, and their bytes if they are compressed.
MAX_QUICK_RECORDS = 1 << 13
MAX_QUICK_BYTES = 1 << 20


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms), its offset and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


@frozen
class RecordSearch:
    """Finds the first record with a timestamp ≥ `at_or_after`, or (None) the first one with the largest timestamp.

    start_offset, end_offset   the searched part of the batch, the end exclusive
    batch                      the whole batch, checked; its bytes do not change, so that any thread may run the search
    """

    at_or_after: int | None
    start_offset: int
    end_offset: int
    header: BatchHeader
    batch: Buffer

    def run(self, limit: int = MAX_DECOMPRESSED_BYTES) -> TimestampOffset | None:
        """Return the record; None if there is none.

        UnreadableRecordsError if the records cannot be decoded, also because they have more than `limit` bytes when
        decompressed.
        """
        try:
            return self._run(limit)
        except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError) as error:
            offset = self.header.base_offset
            raise UnreadableRecordsError(
                f"the records of the batch at offset {offset} cannot be read: {error}", offset=offset
            ) from error

    def steps(self) -> Steps[TimestampOffset | None]:
        """Return the steps of `run`. The search is one long step if the batch has too many records or bytes."""
        if self.header.record_count <= MAX_QUICK_RECORDS:
            try:
                return self.run(MAX_QUICK_BYTES)
            except UnreadableRecordsError as error:
                if not isinstance(error.__cause__, MessageTooLargeError):
                    raise
        outcome = yield self.run
        found: TimestampOffset | None = outcome.get()
        return found

    def _run(self, limit: int) -> TimestampOffset | None:
        found: RecordTime | None
        if self.at_or_after is not None:
            found = first_in_checked_batch(self.batch, self.header, self.at_or_after, self.start_offset, limit=limit)
        else:
            outline = outline_batch(self.batch, self.header, limit=limit)
            inside = (
                RecordTime(offset, timestamp)
                for offset, timestamp in zip(outline.offsets, outline.timestamps(), strict=True)
                if timestamp >= 0 and self.start_offset <= offset < self.end_offset
            )
            found = max(inside, key=lambda record: (record.timestamp, -record.offset), default=None)
        if found is None or found.offset >= self.end_offset:
            return None
        return TimestampOffset(found.timestamp, found.offset, self.header.partition_leader_epoch)
