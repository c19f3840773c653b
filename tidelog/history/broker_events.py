"""What a broker did and learned, as it wrote it down; `t`: on the clock of all histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition


@frozen
class Broker:
    """A broker's first line, and again the first one of each of its further lives; its name is its id."""

    name: str
    t: int = 0

    @property
    def broker_id(self) -> int:
        return int(self.name)


@frozen
class BecomeLeader:
    """leo and hw: what it has as it begins to lead.

    partition_epoch   ZooKeeper's version of the state in which it leads; −1: it has not said
    """

    t: int
    tp: TopicPartition
    epoch: int
    leo: int
    hw: int
    partition_epoch: int = -1


@frozen
class BecomeFollower:
    t: int
    tp: TopicPartition
    epoch: int
    leader: int


@frozen
class Append:
    """Records base..last (both included) went into its log, in the leader epoch that `epoch` says."""

    t: int
    tp: TopicPartition
    base: int
    last: int
    epoch: int
    role: str


@frozen
class HighWatermark:
    """It raised, or was told, its high watermark, in its current leader epoch; written before anybody is told."""

    t: int
    tp: TopicPartition
    epoch: int
    value: int


@frozen
class IsrChange:
    """A leader's compare-and-set of the partition's state.

    partition_epoch   ZooKeeper's version of the state afterwards; where it failed, the one that was expected
    """

    t: int
    tp: TopicPartition
    isr: Sequence[int]
    epoch: int
    partition_epoch: int
    ok: bool


@frozen
class Truncate:
    """It cut its log so that it ends at `to`."""

    t: int
    tp: TopicPartition
    to: int
    why: str


@frozen
class Ack:
    """A leader is about to acknowledge (acks=all) all records up to and with `last`.

    isr       as it was confirmed
    pending   who else would be in the ISR if a compare-and-set in flight succeeded
    leos      each broker's log end offset as the leader knows it, its own too; who has told none yet is missing
    """

    t: int
    tp: TopicPartition
    last: int
    epoch: int
    isr: Sequence[int]
    pending: Sequence[int]
    leos: Mapping[int, int]
    replicas: Sequence[int]
    min_isr: int


@frozen
class Session:
    """Of its ZooKeeper session: "connected", "suspended", "expired"."""

    t: int
    state: str


@frozen
class Registered:
    """It has registered under this broker epoch."""

    t: int
    epoch: int


@frozen
class Controller:
    """It became the controller of this controller epoch."""

    t: int
    epoch: int


@frozen
class Processed:
    """It acted on a request that can be stale.

    deadline   of the request, on the clock of `t`; 0 where it has none
    epoch      that the request names, and `known` the one that the broker had then; −1: none
    """

    t: int
    api: str
    deadline: int = 0
    epoch: int = -1
    known: int = -1


@frozen
class Reject:
    """It refused a stale request."""

    t: int
    api: str
    why: str


@frozen
class Error:
    """It answered UNKNOWN_SERVER_ERROR."""

    t: int
    api: str
    code: int


@frozen
class Traceback:
    t: int
    text: str


@frozen
class Resources:
    """What a broker holds: before the faults ("baseline") and when all is over ("healed"); −1: not counted.

    rss         in bytes
    purgatory   operations that wait
    tasks       of its event loop
    """

    t: int
    phase: str
    fds: int = -1
    threads: int = -1
    rss: int = -1
    purgatory: int = -1
    tasks: int = -1


BrokerEvent: TypeAlias = (
    BecomeLeader
    | BecomeFollower
    | Append
    | HighWatermark
    | IsrChange
    | Truncate
    | Ack
    | Session
    | Registered
    | Controller
    | Processed
    | Reject
    | Error
    | Traceback
    | Resources
)
