"""Define the events that a broker records; `t` is on the common clock of all histories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition


@frozen
class Broker:
    """The header line of a broker's history, one for each start of the process.

    name   the broker's id, as text
    t      when the process started; 0 if not known
    """

    name: str
    t: int = 0

    @property
    def broker_id(self) -> int:
        return int(self.name)


@frozen
class BecomeLeader:
    """The broker became leader of the partition in the leader epoch `epoch`.

    leo, hw           its log end offset and its high watermark at that time
    partition_epoch   ZooKeeper's version of the state in which the broker leads; −1: not recorded
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
    """Records at the offsets base..last (both included) were appended to the broker's log.

    epoch   the leader epoch of the records
    role    the broker's role: "leader" or "follower"
    """

    t: int
    tp: TopicPartition
    base: int
    last: int
    epoch: int
    role: str


@frozen
class HighWatermark:
    """The broker's high watermark rose to `value`, in its current leader epoch `epoch`.

    The line is written before any client sees the new value.
    """

    t: int
    tp: TopicPartition
    epoch: int
    value: int


@frozen
class IsrChange:
    """The result of a leader's compare-and-set of the partition's state in ZooKeeper, with a new ISR.

    isr               the proposed ISR, which is the ISR if `ok`
    epoch             the leader epoch
    partition_epoch   ZooKeeper's version of the state afterwards; after a failure the expected version
    ok                whether the state was written
    """

    t: int
    tp: TopicPartition
    isr: Sequence[int]
    epoch: int
    partition_epoch: int
    ok: bool


@frozen
class Truncate:
    """The broker truncated its log, whose log end offset is `to` since; `why` gives the reason."""

    t: int
    tp: TopicPartition
    to: int
    why: str


@frozen
class Ack:
    """A leader is about to acknowledge (acks=all) all records up to and including `last`.

    epoch     the leader epoch in which the broker leads
    isr       the confirmed ISR
    pending   the further brokers in the ISR if a compare-and-set in flight succeeds
    leos      each replica's log end offset as the leader knows it, including its own; unknown ones are missing
    min_isr   the topic's min.insync.replicas
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
    """The state of the broker's ZooKeeper session changed to "connected", "suspended" or "expired"."""

    t: int
    state: str


@frozen
class Registered:
    """The broker registered in ZooKeeper; `epoch` is its new broker epoch."""

    t: int
    epoch: int


@frozen
class Controller:
    """The broker became the controller; `epoch` is its new controller epoch."""

    t: int
    epoch: int


@frozen
class Processed:
    """The broker acted on a request of a kind that can be stale.

    api        the name of the request's API
    deadline   the request's deadline on the clock of `t`; 0 if it has none
    epoch      the request's epoch, and `known` the epoch that the broker had then; −1: none
    """

    t: int
    api: str
    deadline: int = 0
    epoch: int = -1
    known: int = -1


@frozen
class Reject:
    """The broker rejected a stale request of this API; `why` says in which respect it was stale."""

    t: int
    api: str
    why: str


@frozen
class Error:
    """The broker answered a request as a whole with UNKNOWN_SERVER_ERROR, which shows a fault of the broker."""

    t: int
    api: str
    code: int


@frozen
class Traceback:
    t: int
    text: str


@frozen
class Resources:
    """The resources that a broker holds: before the faults ("baseline") and at the end ("healed"); −1: not measured.

    fds         number of open file descriptors
    rss         resident memory in bytes
    purgatory   number of operations that wait in purgatories
    tasks       number of tasks of the event loop
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
