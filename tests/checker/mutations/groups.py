"""Mutations of committed offsets and assignments."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import Story
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import all_of, behind, end, one_of, put
from tidelog.history.group_operations import Assigned, CommitOk, CommittedOk
from tidelog.history.operations import Read


def _later(story: Story, event: CommitOk, offset: int) -> Story:
    t = end(story)
    return behind(story, "reader-1", CommittedOk(event.group, event.tp, offset, t + 1, t + 2))


@mutation("I17", on_the_way=True)
def committed_offset_that_goes_back(story: Story, rng: random.Random) -> Story:
    _, _, event = one_of(story, rng, CommitOk)
    return _later(story, event, event.offset - 1)


@mutation("I17", on_the_way=True)
def committed_minus_one(story: Story, rng: random.Random) -> Story:
    _, _, event = one_of(story, rng, CommitOk)
    return _later(story, event, -1)


@mutation("I17")
def committed_by_nobody(story: Story, rng: random.Random) -> Story:
    _, _, event = one_of(story, rng, CommitOk)
    return _later(story, event, 1_000_000)


@mutation("I17", on_the_way=True)
def stale_generation_accepted(story: Story, rng: random.Random) -> Story:
    _, name, event = one_of(story, rng, CommitOk)
    t = end(story)
    stale = replace(event, offset=1_000_000, generation=1, t0=t + 1, t1=t + 2)
    return behind(story, name, stale)


@mutation("I7")
def committed_over_what_was_read(story: Story, rng: random.Random) -> Story:
    """Let a member commit without having received a record."""
    _, name, event = one_of(story, rng, CommitOk)
    (read, *_) = [at for at, who, each in all_of(story, Read) if who == name and each.tp == event.tp]
    return put(story, read)


@mutation("I17", on_the_way=True)
def two_owners(story: Story, rng: random.Random) -> Story:
    place, _, event = one_of(story, rng, Assigned)
    return put(story, place + 1, ("member", replace(event, member="m3")), instead=False)
