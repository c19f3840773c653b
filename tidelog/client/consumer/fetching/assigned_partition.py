"""Hold one assigned partition: its state, its buffer, and the pause after a failure. This module does no I/O.

Every change of the state is an event of the table in `position_state.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord, FetchBuffer, FetchedBatches
from tidelog.client.consumer.fetching.position_state import (
    AwaitingCommit,
    Event,
    Failed,
    Fetching,
    PositionState,
    Resetting,
    Validating,
    next_state,
)
from tidelog.client.consumer.fetching.retry import NO_RETRY, Retry
from tidelog.client.consumer.fetching.standing_error import StandingError
from tidelog.model import TopicPartition
from tidelog.records.aborted import AbortedTransaction
from tidelog.records.compression import MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    import asyncio

    from tidelog.client.metadata import Leader
    from tidelog.errors import TidelogError

T = TypeVar("T")


class AssignedPartition:
    """An assigned partition (Kafka: TopicPartitionState).

    state            see `position_state.py`
    buffer           the fetched data, which begins at the position; None in the states without a position
    validated_epoch  the epoch of the last leader that confirmed the position or answered a fetch; −1: there is none
    topic_id         id of the topic to which the position belongs; empty until the leader is known
    paused           the reader wants no records for now; fetched data is kept while there is space
    withheld         the group is about to revoke the partition, so its records are held back
    standing_error   the error that keeps records from the reader, until data arrives or the position moves
    retry            the failures since the last fetch answer
    resets           how often auto_offset_reset was applied to an offset out of range since the last fetch answer or
                     the last seek
    is_alone         requests name no other partition, because a request for several partitions failed as a whole
    work             the task of the request that is in flight; the partition is busy until the task is done
    generation       counts position changes; an answer to a request of an earlier generation is ignored
    moves            counts position changes except rewinds; records that were read before such a change say nothing
                     about the position after it
    high_watermark   of the last fetch answer; −1 before the first one
    """

    __slots__ = (
        "_max_decompressed_bytes",
        "buffer",
        "generation",
        "high_watermark",
        "is_alone",
        "moves",
        "paused",
        "resets",
        "retry",
        "standing_error",
        "state",
        "topic_id",
        "topic_partition",
        "validated_epoch",
        "withheld",
        "work",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        reset_to: int | None,
        max_decompressed_batch_bytes: int = MAX_DECOMPRESSED_BYTES,
        *,
        awaits_commit: bool = False,
    ) -> None:
        self.topic_partition = topic_partition
        self._max_decompressed_bytes = max_decompressed_batch_bytes
        self.state: PositionState
        if awaits_commit:
            self.state = AwaitingCommit(reset_to)
        else:
            self.state = Failed() if reset_to is None else Resetting(reset_to)
        self.buffer: FetchBuffer | None = None
        self.validated_epoch = self.high_watermark = -1
        self.topic_id = ""
        self.paused = self.withheld = self.is_alone = False
        self.standing_error = StandingError()
        self.retry = NO_RETRY
        self.work: asyncio.Task[Any] | None = None
        self.generation = self.moves = self.resets = 0

    @property
    def position(self) -> int | None:
        """The next offset that the reader gets; None until the start is looked up, or after a reset."""
        buffer = self.buffer  # read once, because any thread may ask for the lag
        return None if buffer is None else buffer.position

    @property
    def fetch_offset(self) -> int:
        """The next offset to request from the leader; −1 without a position."""
        return -1 if self.buffer is None else self.buffer.fetch_offset

    @property
    def fetch_epoch(self) -> int:
        """The leader epoch of the record before `fetch_offset`; −1 if it is not known."""
        return -1 if self.buffer is None else self.buffer.fetch_epoch

    @property
    def epoch_read_from(self) -> int | None:
        """The first offset that was fetched with `fetch_epoch`; None if no record was fetched with that epoch."""
        return None if self.buffer is None else self.buffer.epoch_read_from

    @property
    def lag(self) -> int | None:
        """The number of offsets from the position to the high watermark; None until both are known."""
        position = self.position
        return None if position is None or self.high_watermark < 0 else max(0, self.high_watermark - position)

    # --- events -----------------------------------------------------------------------------------

    def _on(self, event: Event, *details: Any) -> None:
        self.state = next_state(self.topic_partition, self.state, event, *details)

    def _restart(self, buffer: FetchBuffer | None) -> None:
        """Replace the buffer. Answers in flight belong to an earlier generation from now on."""
        self.buffer = buffer
        self.generation += 1
        self.work = None
        self.standing_error.clear()
        self.retry, self.is_alone = NO_RETRY, False

    def _move(self, offset: int, epoch: int) -> None:
        self._restart(FetchBuffer(self.topic_partition, offset, epoch, self._max_decompressed_bytes))
        self.moves += 1

    def seek(self, offset: int, epoch: int = -1, *, topic_id: str = "") -> None:
        """Read from `offset` next, and discard fetched data; the record before has this leader epoch (−1: not known).

        The offset is one of the topic with this id; "": of the topic that exists now, because it may be a recreated
        one.
        """
        self._on(Event.SEEK)
        self._move(offset, epoch)
        self.topic_id = topic_id
        self.resets = 0

    def set_back(self, offset: int) -> None:
        """Read again from `offset`, where the last poll began, because the user did not receive its records.

        Fetched data is discarded. The leader epoch of the record before is not known, so the position is not validated.
        """
        self._on(Event.SEEK)
        self._move(offset, -1)

    def reset(self, to: int) -> None:
        """Discard the position, and read next from the result of a look-up for timestamp `to`.

        `to` is in ms; −1 is the latest offset, −2 the earliest.
        """
        self._on(Event.RESET, to)
        self._restart(None)
        self.moves += 1
        self.topic_id = ""

    def reset_from_out_of_range(self, to: int) -> None:
        """Call `reset`, and count it. From the second time on, `retry` has the failures for the length of a pause."""
        self.reset(to)
        if self.resets:
            self.retry = Retry(attempts=self.resets - 1)
        self.resets += 1

    def on_commit_found(self, offset: int, epoch: int) -> None:
        """Start at the group's committed offset; the record before it has this leader epoch (−1: not known)."""
        self._on(Event.COMMIT_FOUND)
        self._move(offset, epoch)

    def on_no_commit(self) -> None:
        """Start as auto_offset_reset says, because the group has no committed offset.

        With "none" the partition has no position (Failed).
        """
        reset_to = self.state.reset_to if isinstance(self.state, AwaitingCommit) else None
        if reset_to is None:
            self._on(Event.NO_START)
        else:
            self._on(Event.NO_COMMIT, reset_to)

    def on_offset_found(self, offset: int, epoch: int) -> None:
        """Start at the offset that a leader returned; the record before it has this leader epoch (−1: not known)."""
        self._on(Event.OFFSET_FOUND)
        self._move(offset, epoch)

    def on_leader(self, leader: Leader) -> None:
        """Take over the topic's id if none is known, and decide whether this leader must confirm the position.

        The state becomes Validating or Fetching accordingly; other states stay.
        """
        self.topic_id = self.topic_id or leader.topic_id
        if isinstance(self.state, Fetching):
            if not self._is_valid_in(leader.epoch):
                self._on(Event.LEADER_CHANGED)
        elif isinstance(self.state, Validating) and self._is_valid_in(leader.epoch):
            self._on(Event.VALIDATED)

    def _is_valid_in(self, leader_epoch: int) -> bool:
        """Return whether this epoch's leader need not confirm the position.

        That is the case if this leader has confirmed the position, or if the epoch of the record before the position is
        not known (KIP-320).
        """
        return self.validated_epoch == leader_epoch or self.fetch_epoch < 0

    def on_leader_behind(self, now_ms: int) -> None:
        """Note since when a later leader is looked for; the first time stays. Records of a later epoch were read."""
        since_ms = self.state.behind_since_ms if isinstance(self.state, Validating) else None
        self._on(Event.LEADER_BEHIND, now_ms if since_ms is None else since_ms)

    def on_no_answer(self) -> None:
        """Stay in Validating, because the leader returned no end of the epoch, and may have been replaced.

        If records of a later epoch were read, the search for a later leader begins again, with its full time.
        """
        self._on(Event.NO_ANSWER)

    def on_validated(self, leader_epoch: int) -> None:
        """Fetch from this epoch's leader, because its log has the records before the position."""
        self._on(Event.VALIDATED)
        self.validated_epoch = leader_epoch

    def on_diverged(self, offset: int, epoch: int, leader_epoch: int) -> None:
        """Read again from `offset`, up to which the leader's log can be equal; its record before that has `epoch`.

        If records were read since the position was set, the logs may diverge earlier, so the new position is validated.
        """
        self._on(Event.DIVERGED)
        if self.buffer is not None and self.epoch_read_from is not None:
            self._restart(self.buffer.rewound(offset))
        else:
            self._move(offset, epoch)
            self.on_validated(leader_epoch)

    def rewind(self, offset: int) -> None:
        """Read again from `offset`, which is not after `fetch_offset`, and discard the fetched data.

        `moves` stays, because records that an iteration still holds are of the same log.
        """
        self._on(Event.REWOUND)
        assert self.buffer is not None
        self._restart(self.buffer.rewound(offset))

    def refuse(self, offset: int, error: TidelogError) -> None:
        """Go back to the record at `offset`, which the reader got and cannot use, and keep `error` as standing error.

        Nothing is fetched until the position moves, or until batches are taken.
        """
        self.rewind(offset)
        assert self.buffer is not None
        self.buffer.refuse(error)
        self.standing_error.set(error)

    def drop(self) -> None:
        """Discard the data that was fetched ahead, so that it is fetched again; the position stays."""
        self._on(Event.REWOUND)
        assert self.buffer is not None
        self._restart(self.buffer.emptied())

    def on_fetched(
        self,
        records: memoryview,
        leader_epoch: int,
        *,
        high_watermark: int,
        log_start_offset: int,
        check_crcs: bool,
        aborted: Sequence[AbortedTransaction] = (),
    ) -> bool:
        """Store the answer to a fetch, and end the pause after failures; return whether the answer has data.

        Records of the `aborted` transactions are left out.

        The standing error is cleared, unless it is that of an unreadable batch. After a CorruptMessageError nothing has
        changed.
        """
        self._on(Event.FETCHED)
        assert self.buffer is not None
        has_data = self.buffer.put(
            records,
            high_watermark=high_watermark,
            log_start_offset=log_start_offset,
            check_crcs=check_crcs,
            aborted=aborted,
        )
        self.validated_epoch, self.high_watermark = leader_epoch, high_watermark
        self.retry, self.is_alone, self.resets = NO_RETRY, False, 0
        if self.buffer.unreadable is None:
            self.standing_error.clear()
        return has_data

    def on_unassigned(self) -> None:
        """Let the answers to requests in flight be ignored, because the partition is no longer assigned."""
        self.generation += 1

    # --- requests ---------------------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Return whether a request of this partition is in flight."""
        return self.work is not None and not self.work.done()

    # --- the reader -------------------------------------------------------------------------------

    @property
    def is_shown(self) -> bool:
        """Return whether the reader may get records of this partition: it is neither paused nor withheld."""
        return not self.paused and not self.withheld

    @property
    def has_data(self) -> bool:
        """Return whether fetched data waits for the reader."""
        return self.buffer is not None and self.buffer.has_data

    def take_records(self, limit: int) -> list[ConsumerRecord]:
        """Return up to `limit` records in offset order, and move the position past them.

        A batch that cannot be decoded ends the result and sets `standing_error`.
        """
        buffer = self.buffer
        if buffer is None or not buffer.has_data:
            return []
        was_readable = buffer.unreadable is None
        taken = buffer.take_records(limit)
        if was_readable and buffer.unreadable is not None:
            self.standing_error.set(buffer.unreadable)
        return taken

    def decode_ahead(self, limit: int) -> int:
        """Decode until `limit` records wait for `take_records`, and return how many wait; the position stays.

        A batch that cannot be decoded ends the decoding and sets `standing_error`.
        """
        buffer = self.buffer
        if buffer is None or not buffer.has_data:
            return 0
        was_readable = buffer.unreadable is None
        count = buffer.decode_ahead(limit)
        if was_readable and buffer.unreadable is not None:
            self.standing_error.set(buffer.unreadable)
        return count

    def take_decoded(self, decode: Callable[[FetchedBatches], T]) -> T | None:
        """Return the oldest fetch answer, decoded, and move the position past it; None if there is none.

        A batch that cannot be decoded ends the result and sets `standing_error`. Data may be dropped as by
        `take_batches`.
        """
        buffer = self._buffer_of_answers()
        if buffer is None:
            return None
        was_readable = buffer.unreadable is None
        taken = buffer.take_decoded(decode)
        if was_readable and buffer.unreadable is not None:
            self.standing_error.set(buffer.unreadable)
        return taken

    def take_batches(self) -> FetchedBatches | None:
        """Return the oldest fetch answer, and move the position past it; None if there is none.

        An unreadable batch is passed over, and its error is cleared. If records were put back whose batches are gone,
        or if the record at the position was refused, the data is dropped, to be fetched again, and None is returned.
        """
        buffer = self._buffer_of_answers()
        if buffer is None:
            return None
        was_readable = buffer.unreadable is None
        batches = buffer.take_batches()
        if not was_readable and buffer.unreadable is None:
            self.standing_error.clear()
        return batches

    def _buffer_of_answers(self) -> FetchBuffer | None:
        """Return the buffer if its next answer can be taken whole; else drop its data, and return None."""
        buffer = self.buffer
        if buffer is not None and (buffer.has_lost_batches or buffer.is_refused):
            self.drop()
            return None
        return buffer
