"""What clients and brokers write down of a run; each class is one kind of line of a history.

What happens often stands in columns: sequences of ints of one length, one place an operation. `t`, `t0` and `t1` are
CLOCK_MONOTONIC of the host in nanoseconds, the same clock for all who write (in the simulator its virtual one):
of the call and of its end where there are two.

An id names a record for ever: `producer << 40 | sequence`. A record whose payload is damaged has the id −1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from tidelog.frozen import frozen
from tidelog.model import TopicPartition

Column: TypeAlias = Sequence[int]

#: The id of a record whose payload does not decode.
DAMAGED = -1
#: The bits of an id that hold the sequence.
SEQUENCE_BITS = 40


@frozen
class Client:
    """A client's first line, and again the first one of each of its further lives.

    acks                 of its producer: −1, 0 or 1
    idempotent           whether its producer is
    request_timeout_ms   what it grants an operation, all its retries together
    t                    when it began; 0 where that is not known
    """

    name: str
    acks: int = -1
    idempotent: bool = True
    request_timeout_ms: int = 30_000
    t: int = 0


@frozen
class Broker:
    """A broker's first line, and again the first one of each of its further lives; its name is its id."""

    name: str
    t: int = 0

    @property
    def broker_id(self) -> int:
        return int(self.name)


# ---- what a client did


@frozen
class ProduceInvoked:
    """Records that are about to be sent; it must be written before they are.

    ts   each record's timestamp, in ms
    t    when the producer was given each
    """

    tp: TopicPartition
    ids: Column
    ts: Column
    t: Column


@frozen
class ProduceOk:
    """Records that were acknowledged, each with its offset; epochs are the leader's, where the client knows them."""

    tp: TopicPartition
    ids: Column
    offsets: Column
    t: Column
    epochs: Column | None = None


@frozen
class ProduceFailed:
    """Records that were refused before any leader appended them (`outcomes` says which errors promise that).

    errors   one a record, by name
    """

    tp: TopicPartition
    ids: Column
    errors: Sequence[str]
    t: Column


@frozen
class ProduceUnknown:
    """Records that may stand in the log or not, now or later."""

    tp: TopicPartition
    ids: Column
    errors: Sequence[str]
    t: Column


@frozen
class Read:
    """What one answer showed to a consumer, in order.

    session   a new one begins at each assignment, seek and reset
    hw        the high watermark that the answer named; −1 where the client was not told
    """

    tp: TopicPartition
    session: int
    hw: int
    t0: int
    t1: int
    offsets: Column
    ids: Column
    ts: Column


@frozen
class ReadFailed:
    """A read that was refused.

    offset   where it was to begin; −1 where the reader named no leader epoch: then a leader that was deposed, and
             cannot know it yet, may rightly call an offset of its successor's out of range (KIP-320)
    """

    tp: TopicPartition
    error: str
    t0: int
    t1: int
    session: int = -1
    offset: int = -1


@frozen
class LatestOk:
    """A partition's end, as a leader told it to a client."""

    tp: TopicPartition
    offset: int
    t0: int
    t1: int
    epoch: int | None = None


@frozen
class LatestFailed:
    tp: TopicPartition
    error: str
    t0: int
    t1: int


@frozen
class EarliestOk:
    tp: TopicPartition
    offset: int
    t0: int
    t1: int
    epoch: int | None = None


@frozen
class EarliestFailed:
    tp: TopicPartition
    error: str
    t0: int
    t1: int


@frozen
class LookUpOk:
    """The earliest record at or after `target` (ms), as it was told: −1 and no `ts` for "nothing so late"."""

    tp: TopicPartition
    target: int
    offset: int
    t0: int
    t1: int
    ts: int | None = None
    epoch: int | None = None


@frozen
class LookUpFailed:
    tp: TopicPartition
    target: int
    error: str
    t0: int
    t1: int


@frozen
class TrimOk:
    """What stands before `offset` was asked to be deleted, and a leader said that it has gone."""

    tp: TopicPartition
    offset: int
    t0: int
    t1: int


@frozen
class TrimUnknown:
    tp: TopicPartition
    offset: int
    error: str
    t0: int
    t1: int


@frozen
class CommitInvoked:
    """A commit that is about to be sent: written by clients that may be killed before they know how it ended."""

    group: str
    tp: TopicPartition
    offset: int
    t: int
    generation: int = -1
    member: str = ""


@frozen
class CommitOk:
    """One partition's offset, committed for a group; of no member where the generation is −1.

    Committers raise a partition's offset from commit to commit and never use a value for two purposes: then the values
    alone tell which commit a reader saw.
    """

    group: str
    tp: TopicPartition
    offset: int
    t0: int
    t1: int
    generation: int = -1
    member: str = ""


@frozen
class CommitFailed:
    """It was refused before anything was written."""

    group: str
    tp: TopicPartition
    offset: int
    error: str
    t0: int
    t1: int
    generation: int = -1
    member: str = ""


@frozen
class CommitUnknown:
    """It may count or not, now or later."""

    group: str
    tp: TopicPartition
    offset: int
    error: str
    t0: int
    t1: int
    generation: int = -1
    member: str = ""


@frozen
class CommittedOk:
    """What a reader was told of a group's offset; −1: nothing is committed."""

    group: str
    tp: TopicPartition
    offset: int
    t0: int
    t1: int


@frozen
class CommittedFailed:
    group: str
    tp: TopicPartition
    error: str
    t0: int
    t1: int


@frozen
class Assigned:
    """A member was told that it owns these in a generation: all of them, also those that it had before."""

    group: str
    member: str
    generation: int
    tps: Sequence[TopicPartition]
    t: int


@frozen
class Revoked:
    """A member gave these up."""

    group: str
    member: str
    generation: int
    tps: Sequence[TopicPartition]
    t: int


# ---- what a broker did


@frozen
class BecomeLeader:
    """leo and hw: what it has as it begins to lead."""

    t: int
    tp: TopicPartition
    epoch: int
    leo: int
    hw: int


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
    """

    t: int
    phase: str
    fds: int = -1
    threads: int = -1
    rss: int = -1
    purgatory: int = -1


Header: TypeAlias = Client | Broker

ClientEvent: TypeAlias = (
    ProduceInvoked
    | ProduceOk
    | ProduceFailed
    | ProduceUnknown
    | Read
    | ReadFailed
    | LatestOk
    | LatestFailed
    | EarliestOk
    | EarliestFailed
    | LookUpOk
    | LookUpFailed
    | TrimOk
    | TrimUnknown
    | CommitInvoked
    | CommitOk
    | CommitFailed
    | CommitUnknown
    | CommittedOk
    | CommittedFailed
    | Assigned
    | Revoked
)

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

Event: TypeAlias = ClientEvent | BrokerEvent
