"""The decisions that the controller can take about one partition. `leader_selection.decide` takes them."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum, auto

from cluster.state import PartitionState
from tidelog.frozen_dataclass import frozen


class Reason(Enum):
    """Why a state is written. The letters are the cases of `leader_selection.decide`."""

    NEW_PARTITION = auto()  # A
    LIVENESS_OVERDUE = auto()  # B
    ELECTION = auto()  # C
    UNCLEAN_ELECTION = auto()  # D or G
    RECOVERY = auto()  # E
    REPLICAS_REMOVED = auto()  # F
    REASSIGNMENT_ANNOUNCED = auto()  # F
    REQUEST = auto()  # G


class Awaited(Enum):
    """The events that a partition can wait for.

    LIVE_REPLICA        a replica comes online
    LIVENESS            an ISR member proves that it is alive
    REGISTRATION        a registering broker with a replica comes online
    ABSENT_CANDIDATES   the absent candidates of an unclean recovery return, or the recovery timeout is over
    LOG_ENDS            the brokers that were asked report their log ends, or the recovery timeout is over
    SOUND_LOG           an ISR member reports a log that lacks no committed record
    OLD_LEADER          the leader that is to be replaced answers
    REMAINING_MEMBERS   an ISR member that a reassignment keeps answers
    """

    LIVE_REPLICA = auto()
    LIVENESS = auto()
    REGISTRATION = auto()
    ABSENT_CANDIDATES = auto()
    LOG_ENDS = auto()
    SOUND_LOG = auto()
    OLD_LEADER = auto()
    REMAINING_MEMBERS = auto()


class Question(Enum):
    """The questions that the controller asks brokers before it decides.

    LOG_ENDS            how far does the replica's log reach?
    OLD_LEADER          is the leader that is to be replaced alive?
    REMAINING_MEMBERS   is one of the ISR members alive that a reassignment keeps?
    """

    LOG_ENDS = auto()
    OLD_LEADER = auto()
    REMAINING_MEMBERS = auto()


@frozen
class Write:
    """Write this state, for this reason."""

    state: PartitionState
    why: Reason


@frozen
class Ask:
    """Ask these brokers, then decide again, because the controller's own broker counts as having answered."""

    question: Question
    brokers: Collection[int]


@frozen
class ConfirmRemoval:
    """Have the removed replicas of a reassignment deleted, then decide again."""


@frozen
class EndRequest:
    """Drop the requested election, because nothing is left to do for it. Then decide again."""


@frozen
class Wait:
    """Write nothing until this event.

    since_ms   when the wait for LIVENESS or LOG_ENDS began (ms of the monotonic clock); None before its timer has
               started, and for other events
    """

    awaited: Awaited
    since_ms: int | None = None


@frozen
class Nothing:
    """Leave the partition as it is, because its state is right."""


Decision = Write | Ask | ConfirmRemoval | EndRequest | Wait | Nothing
