"""The rules of a move: which step brings the future log to the point where it can replace the current log.

The future log is filled like the log of a follower. Both logs lie on one broker, so one call compares them whole. The
rules look only at facts and change nothing. In the order in which they are checked:

A  The logs were not compared since the move began, or since the current log was truncated, or the future log ends
   later: the future log keeps the records that both logs have (`agreed_end`), and loses the others.
B  Retention or a deletion of records has passed the end of the future log: it restarts at the current log start.
C  The current log starts later than the future log: the future log start rises.
D  The future log is behind by more than TAIL_BYTES, or ends in an earlier segment: the next records are copied.
E  The future log has almost all records, and the target directory does not have the values yet that a restart needs,
   or has an earlier log start: the future log is flushed, and the target directory records these values.
F  More of the current log is flushed than of the future log: flushes of the current log wait from here on. Otherwise
   its recovery point would stay ahead of the future log in a topic with `flush.messages=1`.
G  More of the current log is flushed, and its flushes wait already: the flushed records that are left are copied, and
   then the future log is flushed.
H  The future log replaces the current one. The few records that are left are copied in the same step.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

from storage.log.leader_epochs import EpochStart
from storage.log.log import Log

#: The most bytes that are copied in the step in which the future log replaces the current one.
TAIL_BYTES = 64 << 10


class LogFacts(NamedTuple):
    """The facts of one log that the rules compare."""

    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    epochs: Sequence[EpochStart]

    @classmethod
    def of(cls, log: Log) -> LogFacts:
        """Return the facts of the log as they are now."""
        return cls(log.log_start_offset, log.log_end_offset, log.recovery_point, log.epochs)


class Progress(NamedTuple):
    """How far a move has come.

    aligned        the logs were compared, and the current log was not truncated since
    behind_bytes   the bytes of the current log that the future log lacks; None if a segment ends between them
    prepared       step E is done, and the current log start is still the one that it has recorded
    flushes_wait   step F is done
    """

    aligned: bool
    behind_bytes: int | None
    prepared: bool
    flushes_wait: bool


class MoveStep(Enum):
    """The next step of a move."""

    KEEP_AGREED = auto()
    RESTART = auto()
    RAISE_LOG_START = auto()
    COPY = auto()
    PREPARE = auto()
    HOLD_FLUSHES = auto()
    FLUSH = auto()
    REPLACE = auto()


def next_step(current: LogFacts, future: LogFacts, progress: Progress) -> MoveStep:
    """Return the next step of a move."""
    if not progress.aligned or future.log_end_offset > current.log_end_offset:
        return MoveStep.KEEP_AGREED  # A
    if future.log_end_offset < current.log_start_offset:
        return MoveStep.RESTART  # B
    if future.log_start_offset < current.log_start_offset:
        return MoveStep.RAISE_LOG_START  # C
    if progress.behind_bytes is None or progress.behind_bytes > TAIL_BYTES:
        return MoveStep.COPY  # D
    if not progress.prepared:
        return MoveStep.PREPARE  # E
    if future.recovery_point < current.recovery_point:
        if not progress.flushes_wait:
            return MoveStep.HOLD_FLUSHES  # F
        return MoveStep.COPY if future.log_end_offset < current.recovery_point else MoveStep.FLUSH  # G
    return MoveStep.REPLACE  # H


def agreed_end(current: LogFacts, future: LogFacts) -> int | None:
    """Return the offset below which the future log has the records of the current one; None if it has none of them.

    Two logs of a partition have the same records below an offset if the batch before it has the same leader epoch in
    both, because the one leader of an epoch writes each offset once. Without a common epoch nothing is known.
    """
    for epoch, _ in reversed(future.epochs):
        end = _end_of(current, epoch)
        if end is not None:
            agreed = min(end, _end_of(future, epoch) or 0)
            return agreed if agreed > max(current.log_start_offset, future.log_start_offset) else None
    return None


def _end_of(log: LogFacts, epoch: int) -> int | None:
    """Return the offset at which the epoch ends in the log; None if the log has no such epoch."""
    for slot, each in enumerate(log.epochs):
        if each.epoch == epoch:
            later = log.epochs[slot + 1 :]
            return later[0].start_offset if later else log.log_end_offset
    return None
