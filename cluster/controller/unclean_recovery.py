"""Members of an ISR whose machine went down: what they had not synced may be gone, whoever counts on it.

The rule of DESIGN for the unclean restart. While a whole member of the ISR lives, it leads, and the others copy from
it. Where none does, it is waited for those that are away, for one of them may be whole; not for ever. Among those that
are there, the one whose log reaches farthest leads, alone in sync: the others join once they have what it has.

An unclean election takes the one whose log reaches farthest of all that live, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from cluster.state import PartitionState
from tidelog.frozen_dataclass import frozen


@dataclass(frozen=True, slots=True, order=True)
class LogEnd:
    """How far a log reaches, in the order in which one is better than another.

    lacks   it is gone (−1, −1), or ends before what was known to be committed
    epochs  its latest, each with the offset at which it begins
    """

    last_epoch: int
    log_end_offset: int
    lacks: bool = field(default=False, compare=False)
    epochs: tuple[tuple[int, int], ...] = field(default=(), compare=False)

    def extends(self, other: LogEnd) -> bool:
        """Whether it has all that the other log has, as far as the epochs tell that were told."""
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
    """`overdue`: it was waited long enough."""

    overdue: bool = False
    since_ms: int | None = None

    def fall_due(self, now_ms: int, timeout_ms: int) -> bool:
        """Whether it has been waited long enough, as of now and not before; the time runs from the first call on."""
        if self.since_ms is None:
            self.since_ms = now_ms
        due = not self.overdue and now_ms - self.since_ms >= timeout_ms
        self.overdue = self.overdue or due
        return due


@dataclass(slots=True)
class LivenessWait(_Wait):
    """A partition about which nothing is decided until one of its ISR has shown that it lives.

    evict_leaving  those who leave are then to be taken out of the ISR
    overdue        so long that whoever arrives waits no longer with it
    """

    evict_leaving: bool = False


@dataclass(slots=True)
class SuspectReplicas(_Wait):
    """What is doubtful about one partition.

    members   brokers whose log of it may be short, be they alive or not
    covered   a whole one of the ISR is there: nobody is waited for, and the time begins when the last such one goes
    overdue   it was waited long enough for those that are away
    chosen    the state that is to end it
    """

    members: set[int] = field(default_factory=set)
    covered: bool = False
    chosen: PartitionState | None = None

    def cover(self, covered: bool) -> None:
        """Whether a whole member is there as of now."""
        self.covered = covered
        if covered:
            self.since_ms, self.overdue = None, False


@dataclass(slots=True)
class LogEndQuery(_Wait):
    """How far the logs of a partition reach that nobody leads.

    ends      what those that live have told
    asked     who was asked, and at which moment (`cluster.controller.liveness`)
    overdue   it was waited long enough for those that are silent, since somebody was asked last
    """

    ends: dict[int, LogEnd] = field(default_factory=dict)
    asked: dict[int, int] = field(default_factory=dict)

    def lacks(self, broker_id: int) -> bool:
        """Whether it has told that something of what was committed is missing."""
        end = self.ends.get(broker_id)
        return end is not None and end.lacks

    def ask(self, broker_ids: Iterable[int], moment: int) -> None:
        """They are asked now."""
        for broker_id in broker_ids:
            self.asked[broker_id] = moment
            self.since_ms, self.overdue = None, False

    def forget(self, broker_id: int) -> None:
        """The broker died: what it told holds no more."""
        self.ends.pop(broker_id, None)
        self.asked.pop(broker_id, None)

    def outdate(self, moment: int) -> None:
        """Somebody was lost then: who was asked before may have died as well since, and is asked again."""
        for broker_id in [each for each, asked in self.asked.items() if asked < moment]:
            self.forget(broker_id)

    def tell(self, broker_id: int, end: LogEnd, asked: int) -> None:
        """The answer to what was asked at that moment; one to an earlier question is passed over."""
        if asked >= self.asked.get(broker_id, asked + 1):
            self.ends[broker_id] = end

    def unasked(self, broker_ids: Iterable[int]) -> tuple[int, ...]:
        """Those of whom nothing can come yet."""
        return tuple(each for each in broker_ids if each not in self.asked and each not in self.ends)

    def told(self, broker_ids: Iterable[int]) -> tuple[int, ...]:
        """Those who have told."""
        return tuple(each for each in broker_ids if each in self.ends)


@frozen
class RecoveryChoice:
    """Who is to lead, if anybody; else who has to be asked first for the end of its log."""

    leader: int | None = None
    ask: tuple[int, ...] = ()


def choose_recovery_leader(
    isr: Sequence[int], candidates: Sequence[int], poll: LogEndQuery, live: Collection[int], *, overdue: bool
) -> RecoveryChoice:
    """What to do about a partition without a leader, none of whose live ISR members is beyond doubt.

    candidates   the ISR, and who else may have what that has lost: only who has all that is left there, for another may
                 have records of its own in a later epoch than those that were acknowledged when it was gone. Nobody
                 leads where each of the ISR knows of a loss: what is missing then may be missing from all logs
    overdue      it was waited long enough for those that are away; for the silent the poll knows
    """
    present = [replica for replica in candidates if replica in live]
    if len(present) < len(candidates) and not overdue:
        return RecoveryChoice()
    if unasked := poll.unasked(present):
        return RecoveryChoice(ask=unasked)
    told = poll.told(present)
    sound = [replica for replica in told if not poll.lacks(replica)]
    in_sync = [replica for replica in sound if replica in isr]
    if (len(told) < len(present) and not poll.overdue) or not in_sync:
        return RecoveryChoice()
    best = poll.ends[max(in_sync, key=lambda replica: poll.ends[replica])]
    eligible = [replica for replica in sound if replica in isr or poll.ends[replica].extends(best)]
    return RecoveryChoice(leader=max(eligible, key=lambda replica: poll.ends[replica]))
