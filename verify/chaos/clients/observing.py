"""Record what a reader received: records as offsets, ids and timestamps, by session."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import TypeVar

from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchedBatches
from tidelog.errors import OffsetOutOfRangeError, TidelogError
from tidelog.history.operations import Read, ReadFailed
from tidelog.model import Buffer, TopicPartition
from tidelog.records.decode import decode_columns
from tidelog.records.header import iter_headers
from verify.chaos.clients.client_context import ClientContext, History
from verify.chaos.payload import read_id
from verify.checker.outcomes import error_name

T = TypeVar("T")


def columns_of(records: Buffer, first: int) -> tuple[list[int], list[int], list[int]]:
    """Return the offsets, ids and timestamps of the records from offset `first` on, without control batches.

    The id of a value without a valid one is DAMAGED. Raise CorruptMessageError for damaged batches.
    """
    offsets: list[int] = []
    ids: list[int] = []
    ts: list[int] = []
    for at, header in iter_headers(records):
        if header.is_control or header.last_offset < first:
            continue
        columns = decode_columns(records, at)
        skipped = sum(offset < first for offset in columns.offsets)
        offsets += columns.offsets[skipped:]
        ids += map(read_id, columns.values[skipped:])
        ts += columns.timestamps[skipped:]
    return offsets, ids, ts


class Sessions:
    """The sessions of one reader, each of one partition, and their records in the reader's history. Session numbers are
    the reader's own, from 0.

    moves   whether `auto_offset_reset` may move the consumer without raising an error
    """

    def __init__(self, history: History, context: ClientContext, *, moves: bool = False) -> None:
        self._history = history
        self._context = context
        self._moves = moves
        self._now_ns = context.now_ns
        self._next = 0
        self._session: dict[TopicPartition, int] = {}
        self._position: dict[TopicPartition, int] = {}
        self._polled = context.now_ns()

    def begin(self, tp: TopicPartition) -> None:
        """Begin a session of the partition with the next number, after an assignment, a seek or a reset. Nothing is
        written yet.
        """
        self._session[tp], self._next = self._next, self._next + 1
        self._position.pop(tp, None)

    def polling(self) -> None:
        """Take the current time as the begin of the call whose results are recorded next."""
        self._polled = self._now_ns()

    async def polled(self, poll: Awaitable[T]) -> T:
        """Await this poll, which begins now, and return its result. If the poll hangs, Overdue events are written."""
        self.polling()
        with self._context.noticed(self._history, "read", self._session):
            return await poll

    def position(self, tp: TopicPartition) -> int:
        """Return the next offset of the partition's session, or −1 if nothing was read in it yet."""
        return self._position.get(tp, -1)

    def read(self, tp: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """Write the records of the partition that a poll returned, at least one, without a high watermark. Begin a
        session if the partition has none.
        """
        ids = [read_id(record.value) for record in records]
        offsets, ts = [record.offset for record in records], [record.timestamp for record in records]
        self._write(tp, -1, offsets, ids, ts)
        self._position[tp] = offsets[-1] + 1

    def read_batches(self, tp: TopicPartition, fetched: FetchedBatches) -> None:
        """Write the records of batches that a poll returned, from its fetch offset on, with the high watermark.

        Raise CorruptMessageError for damaged batches. If the reader has `moves` and its consumer has moved by itself,
        an OffsetOutOfRangeError is written first, and a new session begins.
        """
        expected = self.position(tp)
        if self._moves and fetched.fetch_offset != expected >= 0:
            self.failed(tp, OffsetOutOfRangeError())
            self.begin(tp)
        offsets, ids, ts = columns_of(fetched.records, fetched.fetch_offset)
        self._write(tp, fetched.high_watermark, offsets, ids, ts)
        self._position[tp] = fetched.next_offset

    def failed(self, tp: TopicPartition, error: TidelogError) -> None:
        """Write an error that a poll raised, with the partition's session and position. Begin a session if the
        partition has none.
        """
        if tp not in self._session:
            self.begin(tp)
        session, position = self._session[tp], self.position(tp)
        self._history.write(ReadFailed(tp, error_name(error), self._polled, self._now_ns(), session, position))

    def _write(self, tp: TopicPartition, hw: int, offsets: list[int], ids: list[int], ts: list[int]) -> None:
        if tp not in self._session:
            self.begin(tp)
        self._history.write(Read(tp, self._session[tp], hw, self._polled, self._now_ns(), offsets, ids, ts))
