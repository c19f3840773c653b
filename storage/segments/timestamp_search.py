"""The steps of a look-up by time inside one batch, and the limit above which a step must not run on the event loop.

A few hundred bytes may hold half a million records, or decompress to 128 MiB. On a broker's loop, a look-up therefore
runs only short steps. At a longer step it ends with LongSearchError. The caller runs that step on a thread and starts
the look-up again, which then knows the step's answer. The log may change meanwhile, because the look-up holds no part
of it. Steps between batches work alike: after a thousand headers, a `Turn` ends the look-up so that other requests run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

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


class Search(Protocol):
    """One step of a look-up."""

    def run(self) -> TimestampOffset | None:
        """Return the answer, however long that takes. Any thread may call this."""
        ...

    def run_if_quick(self) -> TimestampOffset | None:
        """Return as `run`. Raise LongSearchError if that would block the loop for too long."""
        ...

    @property
    def question(self) -> tuple[object, ...]:
        """Return a key; equal keys have equal answers."""
        ...


@frozen
class RecordSearch:
    """Finds the first record with a timestamp ≥ `at_or_after`, or (None) the first one with the largest timestamp.

    start_offset, end_offset   the searched part of the batch, the end exclusive
    batch                      its bytes, checked; they do not change, so that any thread may run the search
    """

    at_or_after: int | None
    start_offset: int
    end_offset: int
    header: BatchHeader
    batch: Buffer

    def run(self, limit: int = MAX_DECOMPRESSED_BYTES) -> TimestampOffset | None:
        """Return the record; None if there is none.

        UnreadableRecordsError, also if more than `limit` bytes are decompressed.
        """
        try:
            return self._run(limit)
        except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError) as error:
            offset = self.header.base_offset
            raise UnreadableRecordsError(
                f"the records of the batch at offset {offset} cannot be read: {error}", offset=offset
            ) from error

    def run_if_quick(self) -> TimestampOffset | None:
        """Return as `run`. Raise LongSearchError if that would block the loop for too long."""
        if self.header.record_count > MAX_QUICK_RECORDS:
            raise LongSearchError(self)
        try:
            return self.run(MAX_QUICK_BYTES)
        except UnreadableRecordsError as error:
            if isinstance(error.__cause__, MessageTooLargeError):
                raise LongSearchError(self) from None
            raise

    @property
    def question(self) -> tuple[object, ...]:
        """Return a key; equal keys have equal answers. The header stands for the batch, because it has the CRC."""
        return self.header, self.at_or_after, self.start_offset, self.end_offset

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


@frozen
class Turn:
    """Ends a look-up after a part of it, so that other requests run. The part is remembered: `came_to` is its key."""

    came_to: tuple[object, ...]

    def run(self) -> None:
        """Do nothing, because no answer is missing."""

    def run_if_quick(self) -> None:
        raise LongSearchError(self)

    @property
    def question(self) -> tuple[object, ...]:
        return self.came_to


#: Returns the answer of a search, by running it or from memory.
Searcher = Callable[[Search], TimestampOffset | None]


def run_whole(search: Search) -> TimestampOffset | None:
    """Run every search at once, for callers that may block."""
    return search.run()


class LongSearchError(Exception):
    """`search` must run on another thread; the look-up then starts again with its answer.

    Not an answer to the client.
    """

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.search = search


class QuickSearcher:
    """Runs short searches, and remembers the answers of the long ones for which earlier look-ups ended."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], TimestampOffset | None] = {}

    def __call__(self, search: Search) -> TimestampOffset | None:
        if self._found and search.question in self._found:
            return self._found[search.question]
        return search.run_if_quick()

    def learn(self, search: Search, found: TimestampOffset | None) -> None:
        self._found[search.question] = found
