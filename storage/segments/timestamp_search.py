"""What a look-up asks of the records of one batch, and when that is too much to be done while others wait.

A few hundred bytes may stand for half a million records, or for 128 MiB of them. A look-up on a broker's loop
therefore answers at once only what is short; at a longer search it ends with `LongSearchError`, the search is run on
a thread, and the look-up begins anew, now that the answer is known. The log may have changed meanwhile, and nothing
of it was held. So it is with what stands between batches: after a thousand headers a `Turn` of the others ends it.
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

#: What takes a few ms: so many records, and so many bytes of them where they are compressed.
MAX_QUICK_RECORDS = 1 << 13
MAX_QUICK_BYTES = 1 << 20


class TimestampOffset(NamedTuple):
    """A record's timestamp (ms), its offset and the leader epoch of its batch."""

    timestamp: int
    offset: int
    leader_epoch: int


class Search(Protocol):
    """Something that a look-up must know."""

    def run(self) -> TimestampOffset | None:
        """The answer, however long it takes; on any thread."""
        ...

    def run_if_quick(self) -> TimestampOffset | None:
        """As `run`. LongSearchError where others should not wait for it."""
        ...

    @property
    def question(self) -> tuple[object, ...]:
        """Equal questions have equal answers."""
        ...


@frozen
class RecordSearch:
    """The first record with a timestamp ≥ `at_or_after`, or (None) the earliest with the largest one.

    start_offset, end_offset   what is searched of the batch, the end exclusive
    batch                      its bytes, checked; they stay as they are, so that the search may run on any thread
    """

    at_or_after: int | None
    start_offset: int
    end_offset: int
    header: BatchHeader
    batch: Buffer

    def run(self, limit: int = MAX_DECOMPRESSED_BYTES) -> TimestampOffset | None:
        """UnreadableRecordsError, also where decompression would make more than `limit` bytes."""
        try:
            return self._run(limit)
        except (CorruptMessageError, MessageTooLargeError, UnsupportedCompressionTypeError) as error:
            offset = self.header.base_offset
            raise UnreadableRecordsError(
                f"the records of the batch at offset {offset} cannot be read: {error}", offset=offset
            ) from error

    def run_if_quick(self) -> TimestampOffset | None:
        """As `run`. LongSearchError where others should not wait for it."""
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
        """Equal questions have equal answers; the header stands for the batch, whose CRC it has."""
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
    """Of the others, after a part of a look-up that is remembered, so that it goes on from there (`came_to`)."""

    came_to: tuple[object, ...]

    def run(self) -> None:
        """Nothing is left to be found out."""

    def run_if_quick(self) -> None:
        raise LongSearchError(self)

    @property
    def question(self) -> tuple[object, ...]:
        return self.came_to


#: Runs a search, or knows its answer.
Searcher = Callable[[Search], TimestampOffset | None]


def run_whole(search: Search) -> TimestampOffset | None:
    """The `Searcher` of who keeps nobody waiting."""
    return search.run()


class LongSearchError(Exception):
    """Not an outcome: `search` is to be run elsewhere, and the look-up to begin anew with what it found."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self.search = search


class QuickSearcher:
    """Runs what is short, and knows what was found by the long searches of the look-ups that ended for them."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], TimestampOffset | None] = {}

    def __call__(self, search: Search) -> TimestampOffset | None:
        if self._found and search.question in self._found:
            return self._found[search.question]
        return search.run_if_quick()

    def learn(self, search: Search, found: TimestampOffset | None) -> None:
        self._found[search.question] = found
