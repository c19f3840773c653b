"""Unclean recovery (KIP-966): choose a leader when every ISR member may have lost records.

A suspect replica is an ISR member whose machine went down, so that records that it had not flushed may be gone. While a
trusted ISR member is alive it leads, and suspect members copy from it. If none is alive, the controller waits for the
absent members for a bounded time, because one of them may be trusted. Then it asks the live members for their log ends.
The one whose log reaches farthest leads, alone in the ISR, and the others join once they have caught up.

An unclean election also chooses the live replica whose log reaches farthest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cluster.controller.decision import Ask, Awaited, Question, Wait
from cluster.controller.timer import Timer
from tidelog.frozen_dataclass import frozen


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """The end of a log, ordered by last epoch, then by log end offset: the greater log is better.

    lacks   the log is gone (−1, −1), or ends before an offset that was known to be committed
    epochs  the log's latest leader epochs, each with its start offset
    """

    last_epoch: int
    log_end_offset: int
    lacks: bool = field(default=False, compare=False)
    epochs: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def extends(self, other: LogEnd) -> bool:
        """Return whether this log contains the other log, as far as the reported epochs show."""
        if other.last_epoch < 0 or self == other:
            return other.log_end_offset <= self.log_end_offset
        begun = [epoch for epoch, _ in self.epochs]
        if other.last_epoch not in begun:
            return False
        later = self.epochs[begun.index(other.last_epoch) + 1 :]
        return other.log_end_offset <= (later[0][1] if later else self.log_end_offset)


GONE = LogEnd(-1, -1, lacks=True)


@frozen
class SuspectReplicas:
    """The suspect replicas of one partition.

    members   brokers, alive or not, whose log may be short
    timer     the wait for absent members while no trusted ISR member is online
    """

    members: frozenset[int] = frozenset()
    timer: Timer = Timer()


@frozen
class LogEndQuery:
    """The log ends that brokers have reported of a partition without a leader; replaced whole.

    ends    the log ends that live brokers have reported
    asked   the brokers that were asked, with the liveness epoch of the request (`cluster.controller.liveness`)
    timer   the wait for answers since the last request
    """

    ends: Mapping[int, LogEnd] = field(default_factory=dict)
    asked: Mapping[int, int] = field(default_factory=dict)
    timer: Timer = Timer()

    def reported_loss(self, broker_id: int) -> bool:
        """Return whether this broker has reported that its log is gone or lacks committed records."""
        end = self.ends.get(broker_id)
        return end is not None and end.lacks

    def with_request(self, broker_ids: Iterable[int], liveness_epoch: int) -> LogEndQuery:
        """Return the query when these brokers are asked now; the wait starts again."""
        asked = {**self.asked, **dict.fromkeys(broker_ids, liveness_epoch)}
        return replace(self, asked=asked, timer=Timer())

    def with_answer(self, broker_id: int, end: LogEnd, asked: int) -> LogEndQuery:
        """Return the query with the answer to a request of liveness epoch `asked`.

        An answer to an earlier request, or of a broker that was not asked, is ignored.
        """
        is_current = asked >= self.asked.get(broker_id, asked + 1)
        return replace(self, ends={**self.ends, broker_id: end}) if is_current else self

    def without(self, broker_ids: Collection[int]) -> LogEndQuery:
        """Return the query without requests to these brokers and their answers."""
        ends = {each: end for each, end in self.ends.items() if each not in broker_ids}
        asked = {each: epoch for each, epoch in self.asked.items() if each not in broker_ids}
        return replace(self, ends=ends, asked=asked)

    def without_requests_before(self, liveness_epoch: int) -> LogEndQuery:
        """Return the query without requests of earlier liveness epochs and their answers.

        The brokers that gave them may have died since.
        """
        early = [broker_id for broker_id, asked in self.asked.items() if asked < liveness_epoch]
        return self.without(early) if early else self

    def not_asked(self, broker_ids: Iterable[int]) -> tuple[int, ...]:
        """Return those of these brokers that have neither been asked nor answered, in the given order."""
        return tuple(each for each in broker_ids if each not in self.asked and each not in self.ends)

    def answered(self, broker_ids: Iterable[int]) -> tuple[int, ...]:
        """Return those of these brokers that have answered, in the given order."""
        return tuple(each for each in broker_ids if each in self.ends)


def choose_recovery_leader(
    isr: Sequence[int],
    candidates: Sequence[int],
    query: LogEndQuery,
    live: Collection[int],
    *,
    absent_overdue: bool,
    answers_overdue: bool,
) -> int | Ask | Wait:
    """Choose a leader for a partition without one, when none of its live ISR members is trusted.

    Returns the leader, the question to ask first, or the event to wait for.

    candidates        the ISR, and the eligible leader replicas, which may have what the ISR has lost
    absent_overdue    the controller has waited long enough for absent candidates
    answers_overdue   the controller has waited long enough for those that do not answer

    An eligible replica is electable only if its log contains the best remaining ISR log. An eligible replica whose log
    does not contain it may end in a later epoch, and still lack records that were acknowledged after it left the ISR.
    Without an answer of an ISR member that reports no loss, no replica is electable, because all logs may lack the lost
    records.
    """
    present = [replica for replica in candidates if replica in live]
    if len(present) < len(candidates) and not absent_overdue:
        return Wait(Awaited.ABSENT_CANDIDATES)
    if not_asked := query.not_asked(present):
        return Ask(Question.LOG_ENDS, not_asked)
    answered = query.answered(present)
    if len(answered) < len(present) and not answers_overdue:
        return Wait(Awaited.LOG_ENDS, query.timer.since_ms)
    sound = [replica for replica in answered if not query.reported_loss(replica)]
    in_sync = [replica for replica in sound if replica in isr]
    if not in_sync:
        return Wait(Awaited.SOUND_LOG)
    best = query.ends[max(in_sync, key=lambda replica: query.ends[replica])]
    electable = [replica for replica in sound if replica in isr or query.ends[replica].extends(best)]
    return max(electable, key=lambda replica: query.ends[replica])
