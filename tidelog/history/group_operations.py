"""What a client did with a group: commits, what it was told of them, and what it was assigned.

`t0` and `t1`: of the call and of its end, on the clock of all histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition


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


GroupOperation: TypeAlias = (
    CommitInvoked | CommitOk | CommitFailed | CommitUnknown | CommittedOk | CommittedFailed | Assigned | Revoked
)
