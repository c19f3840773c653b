"""The handovers of partitions between members of a group, and the rules that these must follow. Pure.

A turn is the time from the assignment of one partition to a member until its revocation or the member's death.
Generations may change within a turn. Times are monotonic.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.frozen_dataclass import frozen
from tidelog.model import TopicPartition
from verify.checker.outcomes import Outcome
from verify.checker.timeline import RunningMax


@frozen
class Processed:
    """Records that were handled: the offsets, in the order of their handling, and when it was done."""

    offsets: range
    at_s: float


@frozen
class Kept:
    """A commit of the turn's owner: the offset to go on from."""

    offset: int
    outcome: Outcome
    done_s: float


@dataclass(slots=True)
class Turn:
    """`until_s` is when it ended at the latest; what was done in it stands in the order of the doing."""

    tp: TopicPartition
    member: str
    since_s: float
    until_s: float
    processed: list[Processed] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)


def by_partition(turns: Sequence[Turn]) -> dict[TopicPartition, list[Turn]]:
    """Return the turns in the order in which they began."""
    found: dict[TopicPartition, list[Turn]] = defaultdict(list)
    for turn in sorted(turns, key=lambda turn: turn.since_s):
        found[turn.tp].append(turn)
    return found


def unowned_s(turns: Sequence[Turn], ended_s: float) -> float:
    """Return the longest time between the first turn and `ended_s` in which no member owned the partition."""
    first, *others = sorted(turns, key=lambda turn: turn.since_s)
    owned_until_s, longest_s = first.until_s, 0.0
    for turn in others:
        longest_s = max(longest_s, min(turn.since_s, ended_s) - owned_until_s)
        owned_until_s = max(owned_until_s, turn.until_s)
    return max(longest_s, ended_s - owned_until_s)


def handover_violations(tp: TopicPartition, turns: Sequence[Turn], end: int) -> Iterator[str]:
    """Return the skipped and the needlessly repeated records of one partition that was read from 0 to `end`.

    Within a turn, records follow each other. A turn begins at or before the first unprocessed record, and not before
    the offset that was committed when the turn began.
    """
    reached = RunningMax((each.at_s, each.offsets.stop) for turn in turns for each in turn.processed)
    kept = RunningMax((k.done_s, k.offset) for turn in turns for k in turn.kept if k.outcome is Outcome.OK)
    for turn in turns:
        if not turn.processed:
            continue
        here = f"{tp}: {turn.member}, from {turn.since_s:.3f} s,"
        first = turn.processed[0]
        begin, processed = first.offsets.start, reached.before(first.at_s) or 0
        committed = kept.before(turn.since_s) or 0
        if begin > processed:
            yield f"{here} began at {begin}, and no member had processed {processed} to {begin - 1}"
        if begin < committed:
            yield f"{here} began at {begin}, and {committed} was committed"
        for one, other in itertools.pairwise(turn.processed):
            if other.offsets.start != one.offsets.stop:
                yield f"{here} processed {other.offsets.start} after {one.offsets.stop - 1}"
    processed = max((each.offsets.stop for turn in turns for each in turn.processed), default=0)
    if processed != end:
        yield f"{tp}: processed to {processed}, and it ends at {end}"
