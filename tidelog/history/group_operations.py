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
    """A commit of one partition's offset that is about to be sent, at the time `t`.

    Only clients that may be killed before they know the outcome record this line.
    """

    group: str
    tp: TopicPartition
    offset: int
    t: int
    generation: int = -1
    member: str = ""


@frozen
class CommitOk:
    """One partition's offset was committed for a group, as its coordinator confirmed.

    generation   −1 means that the committer is not a member; `member` is "" then

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
    """A commit of one partition was rejected, and certainly takes no effect; `error` is the error's name."""

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
    """A commit of one partition with an unknown outcome: it may have taken effect, or may do so later."""

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
    """A reader fetched a group's committed offset of one partition; −1: the group has none."""

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
    """A member gave up these partitions of its assignment, or lost them, at the time `t`."""

    group: str
    member: str
    generation: int
    tps: Sequence[TopicPartition]
    t: int


GroupOperation: TypeAlias = (
    CommitInvoked | CommitOk | CommitFailed | CommitUnknown | CommittedOk | CommittedFailed | Assigned | Revoked
)
