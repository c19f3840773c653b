"""What a client did with a partition, as it wrote it down; each class is one kind of line of its history.

What happens often stands in columns. `t0` and `t1`: of the call and of its end, on the clock of all histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.history.columns import Column
from tidelog.model import TopicPartition


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
class ProduceInvoked:
    """Records that are about to be sent; it must be written before they are.

    ts           each record's timestamp, in ms
    t            when the producer was given each
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
class Overdue:
    """An operation that should have ended, and for which its client still waits; most are not named before they end.

    what     its name in a sentence
    t0, t1   when it was asked for, and when this was written
    """

    what: str
    tp: TopicPartition
    t0: int
    t1: int


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

    offset   where it was to begin; −1 where the reader did not name the leader epoch of the records before it, or a
             later one: then a leader that was deposed, and cannot know it yet, may rightly call an offset of its
             successor's out of range (KIP-320)
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
class TrimInvoked:
    """Somebody begins to ask that what stands before `offset` be deleted; from then on it may be gone."""

    tp: TopicPartition
    offset: int
    t: int


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
