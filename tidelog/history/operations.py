"""Define the operations on partitions that a client records; each class is one kind of line of its history.

Frequent operations are recorded in columns. `t0` and `t1` are the times of the call and of its end, on the common clock
of all histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.history.columns import Column
from tidelog.model import TopicPartition


@frozen
class Client:
    """The header line of a client's history, one for each start of the process.

    name                 the client's name, which is also that of the file
    acks                 the producer's acks: −1, 0 or 1
    idempotent           whether the producer is idempotent
    request_timeout_ms   the timeout of an operation with all its retries
    t                    when the process started; 0 if not known
    commit_copies_ms     the least duration of a commit call in which the client may have sent the commit twice, if a
                         copy may take effect after later commits (Kafka clients); −1: coordinators refuse such a copy
    """

    name: str
    acks: int = -1
    idempotent: bool = True
    request_timeout_ms: int = 30_000
    t: int = 0
    commit_copies_ms: int = -1


@frozen
class ProduceInvoked:
    """Records of one partition that are about to be sent; the line must be written before they are sent.

    ids          each record's id (`tidelog.history.columns`)
    ts           each record's timestamp, in ms
    t            when the producer received each record
    keys         the number of each record's key; None if the records have no keys, or the keys are unknown
    tombstones   1 for each record that has a key and no value, else 0; None if all have values
    """

    tp: TopicPartition
    ids: Column
    ts: Column
    t: Column
    keys: Column | None = None
    tombstones: Column | None = None


@frozen
class ProduceOk:
    """Records that were acknowledged, each with its offset.

    t        when the client learned of each record's acknowledgement
    epochs   the leader epoch of each record; None if the client does not know them
    """

    tp: TopicPartition
    ids: Column
    offsets: Column
    t: Column
    epochs: Column | None = None


@frozen
class ProduceFailed:
    """Records that were rejected before any leader appended them, and so never reach the log.

    errors   the name of each record's error; `verify/checker/outcomes.py` lists those that guarantee this
    t        when the client learned of each record's error
    """

    tp: TopicPartition
    ids: Column
    errors: Sequence[str]
    t: Column


@frozen
class ProduceUnknown:
    """Records with an unknown outcome: each may be in the log, or may reach it later.

    `errors` has the name of each record's error.
    """

    tp: TopicPartition
    ids: Column
    errors: Sequence[str]
    t: Column


@frozen
class Overdue:
    """An operation that should have ended, but for which its client still waits; most operations have no such line.

    what     the operation's name in a sentence
    t0, t1   when the operation began, and when this line was written
    """

    what: str
    tp: TopicPartition
    t0: int
    t1: int


@frozen
class Read:
    """The records that one answer showed to a consumer, in order: each one's offset, id and timestamp (ms).

    session   number of the session; each assignment, seek and reset begins a new one
    hw        the high watermark of the answer; −1 if the client does not know it
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
    """A read that was rejected; `error` is the error's name.

    session   as in `Read`; −1: not known
    offset    the offset at which the read was to start; −1 if the reader named no leader epoch of the records before
              it, or a later one. In that case a replaced leader that does not know its successor may rightly report
              the successor's offset as out of range (KIP-320)
    """

    tp: TopicPartition
    error: str
    t0: int
    t1: int
    session: int = -1
    offset: int = -1


@frozen
class LatestOk:
    """The end offset of a partition (for consumers: the high watermark), as a leader reported it.

    `epoch` is the leader epoch that the answer named; None if it named none.
    """

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
    """The first record at or after `target` (ms), as a leader reported it: its offset, timestamp and leader epoch.

    `offset` −1, without `ts`, means that there is no such record. With an offset, a `ts` or `epoch` of None means that
    the client does not know it: confluent-kafka tells no timestamp.
    """

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
class TrimInvoked:
    """A request to delete the records before `offset` is about to be sent; from `t` on they may be deleted."""

    tp: TopicPartition
    offset: int
    t: int


@frozen
class TrimOk:
    """A leader confirmed that the records before `offset` are deleted."""

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


Operation: TypeAlias = (
    ProduceInvoked
    | ProduceOk
    | ProduceFailed
    | ProduceUnknown
    | Overdue
    | Read
    | ReadFailed
    | LatestOk
    | LatestFailed
    | EarliestOk
    | EarliestFailed
    | LookUpOk
    | LookUpFailed
    | TrimInvoked
    | TrimOk
    | TrimUnknown
)
