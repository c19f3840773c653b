"""How a follower replicates: it first truncates its log to match the leader's, then fetches (KIP-101, KIP-279,
KIP-320).

Pure, and one object per partition and leader epoch. While aligning, the follower asks the leader for the end offset of
the follower's last epoch, fenced by the current leader epoch, and truncates what the leader does not have. If the
leader does not know that epoch, the logs diverged earlier, and the follower asks again:

    my epochs      1 [0,10)   3 [10,25)
    the leader's   1 [0,5)    2 [5,20)    4 [20,30)
    I ask for epoch 3; the leader answers that epoch 2 ends at 20. I have no epoch 2, so I truncate to the end of my
    epoch 1, which is 10, and ask for epoch 1. Epoch 1 ends at 5, so I truncate to 5 and am aligned.

No decision uses the high watermark, because a follower's high watermark is too old to truncate by.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from cluster.backoff import Backoff
from tidelog.errors import BrokerError, OffsetOutOfRangeError
from tidelog.frozen_dataclass import frozen

UNKNOWN_EPOCH = -1


class EpochView(Protocol):
    """The facts about the follower's own log that aligning needs."""

    @property
    def log_start_offset(self) -> int: ...

    @property
    def log_end_offset(self) -> int: ...

    @property
    def latest_epoch(self) -> int | None: ...

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """Return (the largest epoch ≤ `epoch`, its end offset), as `Log.end_offset_for_epoch`.

        If all known epochs are larger: (`epoch`, the start offset of the first one). None if unknown.
        """
        ...


class Phase(Enum):
    """The phase of replication. Aligning comes first in every epoch, and again when the leader's log turns out to
    differ.
    """

    ALIGNING = "aligning"
    FETCHING = "fetching"


@frozen
class TruncateTo:
    """Truncate the log to `offset`, or restart the log there if `offset` lies before its start.

    If not `aligned`, the follower asks the leader again.
    """

    offset: int
    aligned: bool


@frozen
class RestartAt:
    """Delete the follower's whole log and restart it at `offset`, the leader's log start.

    The leader has none of the follower's records any more.
    """

    offset: int


def decide_truncation(log: EpochView, answered_epoch: int, answered_end: int) -> TruncateTo | None:
    """Return the truncation that the leader's answer about the asked epoch requires, or None if it tells nothing.

    A. The leader knows no epoch that old. Truncation would be a guess, so the follower asks again later.
    B. All of my epochs are larger than the answered one, so that every record of mine differs from the leader's:
       truncate to the start of my log, or restart the log at the answered end if that lies before its start.
    C. I do not have the answered epoch: truncate to the end of my largest epoch below it, and ask for that one.
    D. Both logs have the epoch: they diverge at the smaller of its two end offsets.
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

    leader_epoch      fences every request; a reply to an earlier epoch is not for this object
    asked_epoch       while aligning: the epoch that the leader is asked about
    delayed_until_ms  after an error, no request is sent before this time
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
        """Begin to align again, with the log's latest epoch. A log without epochs has nothing to align and fetches."""
        self._fetched = False
        latest_epoch = log.latest_epoch
        if latest_epoch is None or latest_epoch == UNKNOWN_EPOCH:
            self.phase = Phase.FETCHING
        else:
            self.phase = Phase.ALIGNING
            self.asked_epoch = latest_epoch

    def is_delayed(self, now_ms: int) -> bool:
        """Return whether no request may have this partition yet, because one has failed."""
        return now_ms < self.delayed_until_ms

    def epoch_answered(self, log: EpochView, answered_epoch: int, answered_end: int, now_ms: int) -> TruncateTo | None:
        """Return the truncation that the leader's answer requires. The caller truncates, then calls `truncated`.

        If the answer tells nothing, return None and delay the next request.
        """
        decision = decide_truncation(log, answered_epoch, answered_end)
        if decision is None:
            self.delay(now_ms)
        return decision

    def truncated(self, decision: TruncateTo, log: EpochView) -> None:
        """Continue after the caller has truncated the log as decided: fetch if aligned, otherwise align again."""
        self._backoff.reset()
        if decision.aligned:
            self.phase = Phase.FETCHING
        else:
            self.realign(log)

    def restart_if_below_leader_start(self, leader_log_start_offset: int, log: EpochView) -> RestartAt | None:
        """Return a restart if, at the first successful fetch, our whole log lies below the leader's log start.

        The leader has no epochs for records that it has deleted, so aligning could not compare them. Our log may be
        another history.
        """
        if self._fetched or not log.log_start_offset < log.log_end_offset <= leader_log_start_offset:
            return None
        return RestartAt(leader_log_start_offset)

    def fetched(self) -> None:
        """Note a successful fetch, after which delays start from the shortest again."""
        self._backoff.reset()
        self._fetched = True

    def failed(self, error: BrokerError, leader_log_start_offset: int, log: EpochView, now_ms: int) -> RestartAt | None:
        """Handle an error of the leader for this partition: delay the next request, or return a restart.

        OFFSET_OUT_OF_RANGE means that the leader deleted records past our end, so that we restart at its log start. Or
        our log is longer than the leader's, so that we align again. An empty log without epochs has nothing to align
        and nothing to lose, so it restarts too.
        """
        if isinstance(error, OffsetOutOfRangeError):
            is_empty = log.log_start_offset == log.log_end_offset and log.latest_epoch is None
            if leader_log_start_offset > log.log_end_offset or (is_empty and leader_log_start_offset >= 0):
                return RestartAt(leader_log_start_offset)
            self.realign(log)
        self.delay(now_ms)
        return None

    def delay(self, now_ms: int) -> None:
        """Send no request for a while, because one failed. The delay doubles with each consecutive failure."""
        self.delayed_until_ms = now_ms + self._backoff.next_ms()
