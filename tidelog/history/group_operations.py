"""Define the group operations that a client records: commits, committed offsets that were read, assignments.

`t0` and `t1` are the times of the call and of its end, on the common clock of all histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition


@frozen
class CommitInvoked:
    """A commit that is about to be sent; recorded by clients that may be killed before they know the outcome."""

    group: str
    tp: TopicPartition
    offset: int
    t: int
    generation: int = -1
    member: str = ""


@frozen
class CommitOk:
    """One partition's offset was committed for a group; a generation of −1 means that the committer is not a member.

    Each commit of a partition raises its offset, and no value is used for two purposes. Therefore the value alone
    identifies the commit that a reader saw.
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
    """A commit was rejected before anything was written."""

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
    """A commit with an unknown outcome: it may take effect, now or later."""

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
    """A reader received a group's committed offset; −1: no commit."""

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
    """A member received its assignment of a generation: all partitions, including those that it had before."""

    group: str
    member: str
    generation: int
    tps: Sequence[TopicPartition]
    t: int


@frozen
class Revoked:
    """A member gave up these partitions."""

    group: str
    member: str
    generation: int
    tps: Sequence[TopicPartition]
    t: int


GroupOperation: TypeAlias = (
    CommitInvoked | CommitOk | CommitFailed | CommitUnknown | CommittedOk | CommittedFailed | Assigned | Revoked
)
