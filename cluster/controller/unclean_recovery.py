"""Unclean recovery (KIP-966): choose a leader when every ISR member may have lost records.

A suspect replica is an ISR member whose machine went down, so that records that it had not flushed may be gone. While a
trusted ISR member is alive it leads, and suspect members copy from it. If none is alive, the controller waits for the
absent members for a bounded time, because one of them may be trusted. Then it asks the live members for their log ends.
The one whose log reaches farthest leads, alone in the ISR, and the others join once they have caught up.

An unclean election also chooses the live replica whose log reaches farthest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from cluster.state import PartitionState
from tidelog.frozen_dataclass import frozen


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """The end of a log, ordered by which log is better.

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


@dataclass(slots=True, kw_only=True)
class _Wait:
    """A wait with a timeout.

    overdue   the wait has lasted for the timeout
    """

    overdue: bool = False
    since_ms: int | None = None

    def time_out(self, now_ms: int, timeout_ms: int) -> bool:
        """Return whether the timeout has passed since the first call, and was not reported before."""
        if self.since_ms is None:
            self.since_ms = now_ms
        due = not self.overdue and now_ms - self.since_ms >= timeout_ms
        self.overdue = self.overdue or due
        return due


@dataclass(slots=True)
class LivenessWait(_Wait):
    """A partition whose ISR stays until one of its members has proved that it is alive.

    evict_shutting_down  brokers that shut down are then to be removed from the ISR
    overdue              registering brokers wait for this partition no longer
    """

    evict_shutting_down: bool = False


@dataclass(slots=True)
class SuspectReplicas(_Wait):
    """The suspect replicas of one partition.

    members                brokers, alive or not, whose log may be short
    trusted_member_online  a trusted ISR member is online. Nothing is waited for then, and the wait starts when the last
                           trusted member goes
    overdue                the controller has waited long enough for the absent members
    recovery_state         the state in flight that ends the suspicion
    """

    members: set[int] = field(default_factory=set)
    trusted_member_online: bool = False
    recovery_state: PartitionState | None = None

    def set_trusted_member_online(self, online: bool) -> None:
        """Note whether a trusted member is online. If so, reset the wait."""
        self.trusted_member_online = online
        if online:
            self.since_ms, self.overdue = None, False


@dataclass(slots=True)
class LogEndQuery(_Wait):
    """The log ends that brokers have reported of a partition without a leader.

    ends      the log ends that live brokers have reported
    asked     the brokers that were asked, with the liveness epoch of the request (`cluster.controller.liveness`)
    overdue   the controller has waited long enough for brokers that do not answer, since the last request was sent
    """

    ends: dict[int, LogEnd] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)

    def reported_loss(self, broker_id: int) -> bool:
        """Return whether this broker has reported that it lost committed records."""
        end = self.ends.get(broker_id)
        return end is not None and end.lacks

    def ask(self, broker_ids: Iterable[int], liveness_epoch: int) -> None:
        """Note that these brokers are asked now, and restart the wait."""
        for broker_id in broker_ids:
            self.asked[broker_id] = liveness_epoch
            self.since_ms, self.overdue = None, False

    def discard(self, broker_id: int) -> None:
        """Discard the answer of a broker that died."""
        self.ends.pop(broker_id, None)
        self.asked.pop(broker_id, None)

    def discard_before(self, liveness_epoch: int) -> None:
        """Discard all requests of an earlier liveness epoch, because those brokers may have died too and are asked
        again.
        """
        for broker_id in [each for each, asked in self.asked.items() if asked < liveness_epoch]:
            self.discard(broker_id)

    def on_answer(self, broker_id: int, end: LogEnd, asked: int) -> None:
        """Note the answer to a request of liveness epoch `asked`. An answer to an earlier request is ignored."""
        if asked >= self.asked.get(broker_id, asked + 1):
            self.ends[broker_id] = end

    def not_asked(self, broker_ids: Iterable[int]) -> tuple[int, ...]:
        """Return the brokers that have neither been asked nor answered."""
        return tuple(each for each in broker_ids if each not in self.asked and each not in self.ends)

    def answered(self, broker_ids: Iterable[int]) -> tuple[int, ...]:
        """Return the brokers that have answered."""
        return tuple(each for each in broker_ids if each in self.ends)


@frozen
class RecoveryChoice:
    """The replica to elect, or the brokers to ask for their log ends first, or neither: wait."""

    leader: int | None = None
    ask: tuple[int, ...] = ()


def choose_recovery_leader(
    isr: Sequence[int], candidates: Sequence[int], poll: LogEndQuery, live: Collection[int], *, overdue: bool
) -> RecoveryChoice:
    """Choose a leader for a partition without one, when none of its live ISR members is trusted.

    candidates   the ISR, and the eligible leader replicas, which may have what the ISR has lost. An eligible replica is
                 electable only if its log contains the best remaining ISR log: an eligible replica whose log does not
                 contain it may end in a later epoch and still lack records that were acknowledged after it left the
                 ISR. If every ISR member reports a loss, no replica is electable, because all logs may lack what is
                 lost
    overdue      the controller has waited long enough for absent candidates; `poll.overdue` says so of those that do
                 not answer
    """
    present = [replica for replica in candidates if replica in live]
    if len(present) < len(candidates) and not overdue:
        return RecoveryChoice()
    if not_asked := poll.not_asked(present):
        return RecoveryChoice(ask=not_asked)
    answered = poll.answered(present)
    sound = [replica for replica in answered if not poll.reported_loss(replica)]
    in_sync = [replica for replica in sound if replica in isr]
    if (len(answered) < len(present) and not poll.overdue) or not in_sync:
        return RecoveryChoice()
    best = poll.ends[max(in_sync, key=lambda replica: poll.ends[replica])]
    eligible = [replica for replica in sound if replica in isr or poll.ends[replica].extends(best)]
    return RecoveryChoice(leader=max(eligible, key=lambda replica: poll.ends[replica]))
