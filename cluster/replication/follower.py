"""How a follower follows: first it aligns its log with the leader's, then it fetches (KIP-101, KIP-279, KIP-320).

Pure, and one object for one partition in one leader epoch. Aligning asks the leader where the follower's last
epoch ends in the leader's log, fenced by the current leader epoch, and cuts what the leader does not have. It is
repeated while the leader does not know that epoch, for then the two logs parted earlier:

    my epochs      1 [0,10)   3 [10,25)
    the leader's   1 [0,5)    2 [5,20)    4 [20,30)
    I ask for 3; the leader answers: epoch 2 ends at 20. I have no epoch 2, so I cut to the end of my epoch 1,
    which is 10, and ask for 1; it ends at 5, so I cut to 5: aligned.

No decision looks at the high watermark: a follower's is too old to cut by.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from cluster.backoff import Backoff
from tidelog.errors import BrokerError, OffsetOutOfRangeError
from tidelog.frozen_dataclass import frozen

UNKNOWN_EPOCH = -1


class EpochView(Protocol):
    """What aligning must know of the follower's own log."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int | None: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The largest epoch ≤ `epoch` and where it ends."""
        ...


class Phase(Enum):
    """Aligning comes first in every epoch, and comes back when the leader's log turns out to be another."""

    ALIGNING = "aligning"
    FETCHING = "fetching"


@frozen
class TruncateTo:
    """Cut the log at `offset`, or begin there anew where that lies before its start.

    While not `aligned`, another question to the leader follows.
    """

    offset: int
    aligned: bool


@frozen
class RestartAt:
    """Nothing of our log is left in the leader's: drop everything, begin at `offset`, where that begins."""

    offset: int


def decide_truncation(log: EpochView, answered_epoch: int, answered_end: int) -> TruncateTo | None:
    """What the leader's answer to "where does my last epoch end?" asks of the log; None: it tells nothing.

    A. The leader knows no epoch that old, nor where its oldest begins. Cutting would be a guess: ask again later.
    B. All of my epochs are younger than the answered one, so that wherever I have a record the leader has another.
    C. I do not have the answered epoch: cut to the end of my largest epoch below it, and ask for that one.
    D. We share the epoch: the shorter of the two ends is where the logs part.
    """
    if answered_end < 0 or answered_epoch == UNKNOWN_EPOCH:
        return None  # A
    log_end_offset = log.log_end_offset
    mine = log.end_offset_for_epoch(answered_epoch)
    if mine is None or mine[0] == UNKNOWN_EPOCH:
        return TruncateTo(log.log_start_offset, aligned=True)  # B
    my_epoch, my_end = mine
    if my_epoch != answered_epoch:
        return TruncateTo(min(my_end, log_end_offset), aligned=False)  # C
    return TruncateTo(min(my_end, answered_end, log_end_offset), aligned=True)  # D


class Following:
    """The fetch state of one partition under one leader epoch.

    leader_epoch      fences every request; a reply to an earlier one is not for this object
    asked_epoch       while aligning: the epoch that the leader is asked about
    delayed_until_ms  after an error nothing is asked before this time
    """

    __slots__ = ("_backoff", "_fetched", "asked_epoch", "delayed_until_ms", "leader_epoch", "phase")

    def __init__(self, leader_epoch: int, log: EpochView) -> None:
        self.leader_epoch = leader_epoch
        self.delayed_until_ms = 0
        self._backoff = Backoff()
        self._fetched = False
        self.phase = Phase.ALIGNING
        self.asked_epoch = UNKNOWN_EPOCH
        self.realign(log)

    def realign(self, log: EpochView) -> None:
        """Ask again where the logs part. An empty log has nothing to align."""
        self._fetched = False
        latest_epoch = log.latest_epoch
        if latest_epoch is None or latest_epoch == UNKNOWN_EPOCH:
            self.phase = Phase.FETCHING
        else:
            self.phase = Phase.ALIGNING
            self.asked_epoch = latest_epoch

    def is_due(self, phase: Phase, now_ms: int) -> bool:
        """Whether this partition belongs into the next request of that kind."""
        return self.phase is phase and now_ms >= self.delayed_until_ms

    def epoch_answered(self, log: EpochView, answered_epoch: int, answered_end: int, now_ms: int) -> TruncateTo | None:
        """The leader's answer while aligning. The caller truncates, then calls `truncated`."""
        decision = decide_truncation(log, answered_epoch, answered_end)
        if decision is None:
            self.delay(now_ms)
        return decision

    def truncated(self, decision: TruncateTo, log: EpochView) -> None:
        """The log has been cut as decided."""
        self._backoff.reset()
        if decision.aligned:
            self.phase = Phase.FETCHING
        else:
            self.realign(log)

    def begins_anew(self, leader_log_start_offset: int, log: EpochView) -> RestartAt | None:
        """Upon the answer to a fetch. The first one tells whether aligning could compare anything.

        Of what the leader has dropped its epochs tell nothing: where all of our log is that, it may be another history.
        """
        if self._fetched or not log.log_start_offset < log.log_end_offset <= leader_log_start_offset:
            return None
        return RestartAt(leader_log_start_offset)

    def fetched(self) -> None:
        """A fetch succeeded."""
        self._backoff.reset()
        self._fetched = True

    def failed(self, error: BrokerError, leader_log_start_offset: int, log: EpochView, now_ms: int) -> RestartAt | None:
        """The leader refused this partition. What follows, apart from a delay, is in the answer.

        OFFSET_OUT_OF_RANGE means that the leader trimmed its log past our end, so that we begin anew where it
        begins; or that our log is longer than its own, so that we align again. One that is empty, and knows no epoch,
        has nothing to align by and nothing to lose: it begins anew, too.
        """
        if isinstance(error, OffsetOutOfRangeError):
            is_empty = log.log_start_offset == log.log_end_offset and log.latest_epoch is None
            if leader_log_start_offset > log.log_end_offset or (is_empty and leader_log_start_offset >= 0):
                return RestartAt(leader_log_start_offset)
            self.realign(log)
        self.delay(now_ms)
        return None

    def delay(self, now_ms: int) -> None:
        """Something failed: ask nothing for a while."""
        self.delayed_until_ms = now_ms + self._backoff.next_ms()
