"""What clients saw of a group's committed offsets, and what it may never have been (I17). Pure; times are monotonic.

Each partition's committed offset is a register. Whoever commits must raise it from commit to commit and never use a
value twice for two purposes; then the values alone tell which commit a reader saw, and no search is needed: two sorted
arrays a partition, O(m log m) for m events.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from tidelog.errors import (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from tidelog.frozen import frozen
from tidelog.model import TopicPartition


class Outcome(Enum):
    """What a commit came to, as far as the committer knows."""

    OK = "ok"
    #: It was refused before anything was written.
    FAILED = "failed"
    #: It may count or not, now or later.
    UNKNOWN = "unknown"


#: Refusals that come before the write. NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE are none: they may follow it.
_BEFORE_THE_WRITE = (
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidRequestError,
    OffsetMetadataTooLargeError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)


def outcome_of(error_code: int) -> Outcome:
    """What a coordinator's answer says of the commit."""
    if error_code == 0:
        return Outcome.OK
    return Outcome.FAILED if error_code in {each.code for each in _BEFORE_THE_WRITE} else Outcome.UNKNOWN


@frozen
class Commit:
    """One attempt to commit one partition's offset.

    done_s       when its outcome was known to the committer; of an unknown one it means nothing
    generation   in whose name; −1: of no member
    """

    group: str
    tp: TopicPartition
    offset: int
    outcome: Outcome
    invoked_s: float
    done_s: float
    generation: int = -1


@frozen
class Fetched:
    """What a reader was answered, from whatever broker; −1: nothing is committed. Errors are no answers."""

    group: str
    tp: TopicPartition
    offset: int
    invoked_s: float
    done_s: float


@frozen
class Assigned:
    """A member was told that it owns these in a generation: all of them, also those that it had before."""

    group: str
    member: str
    generation: int
    tps: frozenset[TopicPartition]
    at_s: float


class RunningMax:
    """Values at times; the greatest one before a time."""

    def __init__(self, events: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(events)
        self._times = [at_s for at_s, _ in ordered]
        self._greatest = list(itertools.accumulate((value for _, value in ordered), max))

    def before(self, at_s: float) -> int | None:
        """Strictly before; None where there is none."""
        count = bisect_left(self._times, at_s)
        return self._greatest[count - 1] if count else None


def register_violations(commits: Sequence[Commit], fetches: Sequence[Fetched]) -> Iterator[str]:
    """Where the committed offset was no register.

    A fetch sees at least what was committed, and what any other fetch has seen, before it was asked for, and nothing
    that nobody had asked for, or that was refused, by its end.
    """
    commits_of: dict[tuple[str, TopicPartition], list[Commit]] = defaultdict(list)
    fetches_of: dict[tuple[str, TopicPartition], list[Fetched]] = defaultdict(list)
    for commit in commits:
        commits_of[commit.group, commit.tp].append(commit)
    for fetch in fetches:
        fetches_of[fetch.group, fetch.tp].append(fetch)
    for key, asked in fetches_of.items():
        yield from _violations_of_one(commits_of[key], asked)


def _violations_of_one(commits: Sequence[Commit], fetches: Sequence[Fetched]) -> Iterator[str]:
    promised = RunningMax((each.done_s, each.offset) for each in commits if each.outcome is Outcome.OK)
    shown = RunningMax((each.done_s, each.offset) for each in fetches)
    first_asked: dict[int, float] = {}
    for commit in commits:
        if commit.outcome is not Outcome.FAILED:
            first_asked[commit.offset] = min(commit.invoked_s, first_asked.get(commit.offset, math.inf))
    for fetch in fetches:
        here = f"{fetch.group} {fetch.tp}: {fetch.offset} was read at {fetch.invoked_s:.3f}–{fetch.done_s:.3f} s"
        least, seen = promised.before(fetch.invoked_s), shown.before(fetch.invoked_s)
        if least is not None and fetch.offset < least:
            yield f"{here}, after {least} was committed"
        elif seen is not None and fetch.offset < seen:
            yield f"{here}, after {seen} was read"
        if fetch.offset >= 0 and first_asked.get(fetch.offset, math.inf) > fetch.done_s:
            yield f"{here}, and nobody had committed it"


def fencing_violations(commits: Sequence[Commit], assigned: Sequence[Assigned]) -> Iterator[str]:
    """Commits of a generation that was over before they were begun, and that were accepted.

    A generation is over when a later one has been assigned to anybody: one that was announced and never assigned may
    come again, under the same number, from a coordinator that never heard of it.
    """
    begun: dict[str, RunningMax] = {}
    for group in {each.group for each in assigned}:
        begun[group] = RunningMax((each.at_s, each.generation) for each in assigned if each.group == group)
    for commit in commits:
        if commit.generation < 0 or commit.outcome is not Outcome.OK or commit.group not in begun:
            continue
        current = begun[commit.group].before(commit.invoked_s)
        if current is not None and commit.generation < current:
            yield (
                f"{commit.group} {commit.tp}: {commit.offset} of generation {commit.generation} was accepted at"
                f" {commit.invoked_s:.3f} s, in generation {current}"
            )


def sharing_violations(assigned: Sequence[Assigned]) -> Iterator[str]:
    """Partitions that two members were told to own in one generation."""
    owner: dict[tuple[str, int, TopicPartition], str] = {}
    for each in assigned:
        for tp in sorted(each.tps):
            first = owner.setdefault((each.group, each.generation, tp), each.member)
            if first != each.member:
                yield f"{each.group} {tp}: {first} and {each.member} own it in generation {each.generation}"
