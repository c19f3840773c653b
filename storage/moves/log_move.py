"""Moves one log to another log directory of the broker, while it is read and appended to (KIP-113).

The move fills a future log in the target directory. Once the future log has all records, it replaces the current log
between two appends. The work is a generator of steps (`storage.steps`), so that the logs' owner never waits for a disk:
a call that the generator yields runs on a thread, and all other code on the owner's thread. `move_rules` decides on the
next step.

The replacement is one rename in the target directory (`FutureLog.become_current`). A crash before the rename leaves the
current log and a future log, with which the next start goes on. A crash after the rename leaves two logs of the
partition, until the old one is deleted. The next start then takes the log with the file `moved-from`, which is at least
as durable as the other one, because the replacement waits until the future log is flushed as far as the current one.
If the target directory is offline at that start, the file `moving-to` in the old log shows that a later one may exist.

A copied piece counts only if the current log has lost no segment and no record since the position of the piece was
looked up. Compaction must not change the current log meanwhile, because a tombstone could be removed before it is
copied, although an older record of its key was copied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple, Protocol

from storage.descriptor_reserve import OutOfDescriptorsError
from storage.directory.directory_checkpoints import MovedValues
from storage.directory.log_directory import LogDirectory
from storage.files import Files
from storage.log.log import Log
from storage.moves import move_marker
from storage.moves.future_log import FutureLog
from storage.moves.move_marker import MoveMark
from storage.moves.move_rules import LogFacts, MoveStep, Progress, agreed_end, next_step
from storage.segments.segment import Segment
from storage.steps import PAUSE, StepOutcome, Steps
from tidelog.errors import CorruptMessageError, StorageError
from tidelog.model import TopicPartition
from tidelog.records import HEADER_BYTES, LENGTH_OVERHEAD

_LOG = logging.getLogger(__name__)

#: The most bytes that one step reads, and that one append writes. A larger batch is copied alone.
READ_BYTES, _APPENDED_BYTES = 1 << 20, 64 << 10
_LENGTH = Struct(">8xi")


class MoveEndedError(Exception):
    """The move was cancelled, or its partition or one of its log directories is gone."""


class MovingLogs(Protocol):
    """The part of `storage.log_manager.LogManager` that a move uses."""

    def directory_of(self, tp: TopicPartition) -> LogDirectory | None: ...
    def report(self, tp: TopicPartition, error: StorageError) -> None: ...
    def replace_log(self, future: FutureLog) -> tuple[LogDirectory, Log]: ...
    def old_log_deleted(self, tp: TopicPartition) -> None: ...
    def waits_for_deletion(self, tp: TopicPartition) -> bool: ...


class _Position(NamedTuple):
    """The place of the next batch to copy, valid while the current log has this version."""

    version: tuple[object, ...]
    offset: int
    segment: Segment
    position: int


class LogMove:
    """One move. `steps` is the whole work.

    The work raises StorageError if the target directory fails, and CorruptMessageError if records are damaged.

    current          returns the partition's log, or None while the move must wait
    high_watermark   returns the partition's high watermark
    replaced         is called on the owner's thread when the future log has become the partition's log
    pace             is called on the move's thread with the number of bytes just written, and sleeps as needed
    copied_bytes     the bytes written so far
    """

    def __init__(
        self,
        logs: MovingLogs,
        future: FutureLog,
        files: Files,
        *,
        current: Callable[[], Log | None],
        high_watermark: Callable[[], int],
        replaced: Callable[[Log], object],
        pace: Callable[[int], object] = lambda written_bytes: None,
    ) -> None:
        self.future = future
        self.copied_bytes = 0
        self._logs = logs
        self._files = files
        self._current = current
        self._high_watermark = high_watermark
        self._replaced = replaced
        self._pace = pace
        #: The current log and its `truncation_count` when the future log was last compared with it.
        self._aligned: tuple[Log, int] | None = None
        self._prepared_log_start: int | None = None
        #: The log whose flushes wait.
        self._held: Log | None = None
        self._position: _Position | None = None

    def steps(self) -> Steps[None]:
        """Return the steps of the move, up to the deletion of the old log. MoveEndedError if the move is cancelled."""
        try:
            current = yield from self._available()
            directory = self._source()
            cleaned_to = directory.checkpoints.cleaner_offset(self.future.topic_partition)
            yield from self._made(lambda: self.future.open(current.config, current.topic_id, cleaned_to))
            while not self.future.is_current:
                current = yield from self._available()
                self.future.log.configure(current.config)
                yield from self._step(current)
        finally:
            self.release_flushes()

    def _step(self, current: Log) -> Steps[None]:
        mine, theirs = LogFacts.of(self.future.log), LogFacts.of(current)
        try:
            place = self._located(current)
        except StorageError as error:
            yield from self._source_failed(error)
            return
        progress = Progress(
            aligned=self._aligned == (current, current.truncation_count),
            behind_bytes=self._behind_bytes(current, place),
            prepared=self._prepared_log_start == theirs.log_start_offset,
            flushes_wait=self._held is current,
        )
        future = self.future.log
        match next_step(theirs, mine, progress):
            case MoveStep.KEEP_AGREED:
                count = current.truncation_count
                yield from self._made(lambda: self._keep(agreed_end(theirs, mine), theirs.log_start_offset))
                self._aligned, self._prepared_log_start = (current, count), None
            case MoveStep.RESTART:
                yield from self._made(lambda: future.truncate_fully_and_start_at(theirs.log_start_offset))
                self._prepared_log_start = None
            case MoveStep.RAISE_LOG_START:
                yield from self._made(lambda: self._raise_log_start(theirs.log_start_offset))
            case MoveStep.COPY:
                yield from self._copy(current, place)
            case MoveStep.PREPARE:
                yield from self._prepare(current, theirs)
            case MoveStep.HOLD_FLUSHES:
                yield from self._made(lambda: self._hold_flushes(current))
            case MoveStep.FLUSH:
                yield from self._made(future.flush)
            case MoveStep.REPLACE:
                yield from self._replace(current)

    # --- waiting and errors --------------------------------------------------------------------------

    def _available(self) -> Steps[Log]:
        """Return the current log. Wait while there is none, and let its flushes run meanwhile.

        Also wait for the end of the previous move, which removes the mark of the current log.
        """
        while True:
            self._raise_if_cancelled()
            current = self._current()
            waits = self._logs.waits_for_deletion(self.future.topic_partition)
            if current is not None and not current.closed and not waits:
                return current
            yield from self._wait()

    def _made(self, call: Callable[[], object]) -> Steps[None]:
        """Make a call on a thread; repeat it later if no file descriptor is left."""
        while True:
            outcome: StepOutcome = yield call
            self._raise_if_cancelled()
            if not isinstance(outcome.error, OutOfDescriptorsError):
                outcome.get()
                return
            yield from self._wait()

    def _source_failed(self, error: StorageError) -> Steps[None]:
        """Report an error of the current log, and wait.

        The move is cancelled if the directory fails because of the error. It goes on if only a descriptor lacked.
        """
        self._logs.report(self.future.topic_partition, error)
        yield from self._wait()

    def _wait(self) -> Steps[None]:
        """Let the flushes of the current log run, and pause."""
        self.release_flushes()
        yield PAUSE

    def _raise_if_cancelled(self) -> None:
        if self.future.cancelled:
            raise MoveEndedError

    @property
    def holds_flushes(self) -> bool:
        """Return whether flushes of the current log wait, so that the move must not wait for long."""
        return self._held is not None

    def _hold_flushes(self, current: Log) -> None:
        current.hold_flushes()
        self._held = current

    def release_flushes(self) -> None:
        """Let the flushes of the current log run, if they wait for this move."""
        held, self._held = self._held, None
        if held is not None:
            held.release_flushes()

    def _source(self) -> LogDirectory:
        directory = self._logs.directory_of(self.future.topic_partition)
        if directory is None or directory is self.future.target:
            raise MoveEndedError
        return directory

    # --- filling -------------------------------------------------------------------------------------

    def _keep(self, end: int | None, log_start: int) -> None:
        if end is None:
            self.future.log.truncate_fully_and_start_at(log_start)
        else:
            self.future.log.truncate_to(end)

    def _raise_log_start(self, offset: int) -> None:
        """Raise the log start, and remove the segments below it at once, because no reader uses this log."""
        future = self.future.log
        future.raise_log_start(offset)
        for segment in future.delete_old_segments(0, offset):
            segment.delete()

    def _behind_bytes(self, current: Log, place: _Position | None) -> int | None:
        """Return how many bytes of the current log are missing; None if a segment ends between the two ends."""
        if self.future.log.log_end_offset >= current.log_end_offset:
            return 0
        if place is None or place.segment is not current.segments[-1]:
            return None
        return place.segment.size - place.position

    def _located(self, current: Log) -> _Position | None:
        """Return the place of the next batch in the current log; None if there is none any more. StorageError."""
        offset, version, known = self.future.log.log_end_offset, current.version(), self._position
        if offset >= current.log_end_offset:
            return None
        if known is None or (known.version, known.offset) != (version, offset) or known.position >= known.segment.size:
            located = current.locate(max(offset, current.log_start_offset))
            known = self._position = None if located is None else _Position(version, offset, *located)
        return known

    def _copy(self, current: Log, place: _Position | None) -> Steps[None]:
        """Copy the next records, at most READ_BYTES of one segment. Nothing is copied if their place has changed."""
        log_start = current.log_start_offset
        if place is None:
            end = current.log_end_offset  # compaction has removed all records from here to the active segment
            yield from self._made(lambda: self.future.log.raise_end(end))
            return
        size = place.segment.size
        outcome: StepOutcome = yield lambda: self._read(place, size)
        self._raise_if_cancelled()
        if current.version() != place.version:
            return  # the bytes may be of another segment, or mixed from before and after a truncation
        if isinstance(outcome.error, StorageError):
            yield from self._source_failed(outcome.error)
            return
        pieces = _pieces(outcome.get())
        if not pieces:
            raise CorruptMessageError(f"{place.segment.log.path}: no whole batch begins at position {place.position}")
        yield from self._made(lambda: self._append(pieces, log_start))
        written = sum(map(len, pieces))
        self._position = place._replace(offset=self.future.log.log_end_offset, position=place.position + written)

    def _read(self, place: _Position, size: int) -> bytes:
        """Read whole batches from `place` on, from a file of its own: at least one, and at most READ_BYTES."""
        file = self._files.open(place.segment.log.path, create=False)
        try:
            data = file.read(place.position, min(READ_BYTES, size - place.position))
            if len(data) >= HEADER_BYTES and len(data) < (first := _length_at(data, 0)):
                data = file.read(place.position, min(first, size - place.position))
            return data
        finally:
            file.close()

    def _append(self, pieces: Sequence[memoryview], log_start: int) -> None:
        for piece in pieces:
            self.future.log.append_as_follower(piece, leader_log_start=log_start)
            self.copied_bytes += len(piece)
            self._pace(len(piece))

    # --- replacing -----------------------------------------------------------------------------------

    def _prepare(self, current: Log, facts: LogFacts) -> Steps[None]:
        """Flush the future log, and record in both directories what a restart after the replacement needs."""
        tp, target, source = self.future.topic_partition, self.future.target, self._source()
        outcome: StepOutcome = yield lambda: self._flushed_mark(current)
        self._raise_if_cancelled()
        if isinstance(outcome.error, StorageError):
            yield from self._source_failed(outcome.error)
            return
        mark: MoveMark = outcome.get()
        high_watermark = min(self._high_watermark(), self.future.log.log_end_offset)

        def record() -> None:
            self.future.log.flush()
            values = MovedValues(
                recovery_point=self.future.log.recovery_point,
                high_watermark=high_watermark,
                log_start=facts.log_start_offset,
                cleaner_offset=source.checkpoints.cleaner_offset(tp),
                leadership=source.checkpoints.leadership(tp),
            )
            target.checkpoints.write_incoming(tp, values)
            self.future.mark(source, mark)

        yield from self._made(record)
        outcome = yield lambda: self.future.mark_source(source)
        self._raise_if_cancelled()
        if isinstance(outcome.error, StorageError):
            yield from self._source_failed(outcome.error)
            return
        self._prepared_log_start = facts.log_start_offset

    def _flushed_mark(self, current: Log) -> MoveMark:
        """Return the mark of the current log. If it was removed, no power failure restores it from here on."""
        self._files.fsync_directory(current.directory)
        return move_marker.read(self._files, current.directory)

    def _replace(self, current: Log) -> Steps[None]:
        """Copy the last records, let the future log replace the current one, and delete the old log.

        Everything except the deletion happens between two appends.
        """
        future, behind = self.future.log, self.future.log.log_end_offset < current.log_end_offset
        try:
            tail = current.read(max(future.log_end_offset, current.log_start_offset), READ_BYTES) if behind else b""
        except StorageError as error:
            yield from self._source_failed(error)
            return
        try:
            if tail:
                future.append_as_follower(tail, leader_log_start=current.log_start_offset)
                self.copied_bytes += len(tail)
            elif behind:
                future.raise_end(current.log_end_offset)
            if (future.log_start_offset, future.log_end_offset) != (current.log_start_offset, current.log_end_offset):
                # The first batch began before the log start, or compaction has removed the last ones. An earlier rule
                # brings the two offsets together.
                yield PAUSE
                return
            future.take_state_of(current)
            source, old = self._logs.replace_log(self.future)
        except OutOfDescriptorsError:
            yield from self._wait()
            return
        self._replaced(future)
        self.release_flushes()
        outcome: StepOutcome = yield lambda: self._delete_old(source)
        while isinstance(outcome.error, OutOfDescriptorsError):
            yield PAUSE
            outcome = yield lambda: self._delete_old(source)
        old.abandon()
        _LOG.info("%s: the log was moved from %s to %s", self.future.topic_partition, source.path, future.directory)

    def _delete_old(self, source: LogDirectory) -> None:
        """Delete the old log, in an order in which each crash leaves one log, or two logs of which one is marked.

        The new name is flushed before the old name is removed, and the mark is removed last. An error fails the
        directory in which it happens. StorageError; OutOfDescriptorsError means that the call must be repeated.
        """
        tp, target = self.future.topic_partition, self.future.target
        with target.directory_failure_scope(reraise=True):
            self._files.fsync_directory(target.path)
            target.checkpoints.forget_incoming(tp)
        with source.directory_failure_scope(reraise=True):
            source.delete_replaced(tp)
        with target.directory_failure_scope():
            self.future.unmark()
        self._logs.old_log_deleted(tp)


def _length_at(data: bytes, position: int) -> int:
    return int(_LENGTH.unpack_from(data, position)[0]) + LENGTH_OVERHEAD


def _pieces(data: bytes) -> list[memoryview]:
    """Return the whole batches in `data`, in pieces of at most _APPENDED_BYTES or of one batch.

    A damaged length ends the last piece; the append of the piece names the damage.
    """
    view, pieces = memoryview(data), []
    begin = end = 0
    while end + HEADER_BYTES <= len(data):
        following = end + _length_at(data, end)
        if following > len(data) or following <= end:
            break
        if following - begin > _APPENDED_BYTES and end > begin:
            pieces.append(view[begin:end])
            begin = end
        end = following
    if end > begin:
        pieces.append(view[begin:end])
    return pieces
