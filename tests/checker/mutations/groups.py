"""Mutations of committed offsets and assignments."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import Case
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import all_of, behind, end, one_of, put
from tidelog.history.group_operations import Assigned, CommitOk, CommittedOk
from tidelog.history.operations import Read


def _later(case: Case, event: CommitOk, offset: int) -> Case:
    t = end(case)
    return behind(case, "reader-1", CommittedOk(event.group, event.tp, offset, t + 1, t + 2))


@mutation("I17", on_the_way=True)
def committed_offset_that_goes_back(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, CommitOk)
    return _later(case, event, event.offset - 1)


@mutation("I17", on_the_way=True)
def committed_minus_one(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, CommitOk)
    return _later(case, event, -1)


@mutation("I17")
def committed_by_nobody(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, CommitOk)
    return _later(case, event, 1_000_000)


@mutation("I17", on_the_way=True)
def stale_generation_accepted(case: Case, rng: random.Random) -> Case:
    _, name, event = one_of(case, rng, CommitOk)
    t = end(case)
    stale = replace(event, offset=1_000_000, generation=1, t0=t + 1, t1=t + 2)
    return behind(case, name, stale)


@mutation("I7")
def committed_over_what_was_read(case: Case, rng: random.Random) -> Case:
    """Let a member commit without having received a record."""
    _, name, event = one_of(case, rng, CommitOk)
    (read, *_) = [at for at, who, each in all_of(case, Read) if who == name and each.tp == event.tp]
    return put(case, read)


@mutation("I17", on_the_way=True)
def two_owners(case: Case, rng: random.Random) -> Case:
    place, _, event = one_of(case, rng, Assigned)
    return put(case, place + 1, ("member", replace(event, member="m3")), instead=False)
