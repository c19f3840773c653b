"""Mutations with lost, duplicated, altered or reordered records."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tests.checker.little_log import Case
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import all_of, behind, cut, end, logs, longer, one_of, put, spoilt
from tidelog.history.broker_events import BecomeLeader
from tidelog.history.columns import DAMAGED
from tidelog.history.events import Event
from tidelog.history.operations import ProduceFailed, ProduceInvoked, ProduceOk, Read
from tidelog.model import TopicPartition

#: An id that no client produced.
STRANGER = 99 << 40 | 7


def swapped(values: Sequence[int], one: int, other: int) -> list[int]:
    return [other if each == one else one if each == other else each for each in values]


def acknowledged(case: Case, tp: TopicPartition) -> list[tuple[int, int, int]]:
    """Return (offset, id, time) of each acknowledgement."""
    return [
        (offset, record_id, t)
        for _, _, event in all_of(case, ProduceOk, lambda each: each.tp == tp)
        for offset, record_id, t in zip(event.offsets, event.ids, event.t, strict=True)
    ]


def _lost(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceOk)
    return logs(case, lambda log: cut(log, event.offsets[0]), event.tp)


@mutation("I1")
def lost_record(case: Case, rng: random.Random) -> Case:
    return _lost(case, rng)


@mutation("I1")
def lost_in_one_replica(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceOk)
    return logs(case, lambda log: cut(log, event.offsets[-1]) if log.broker == "2" else log, event.tp)


@mutation("I1")
def lost_at_the_end_of_a_compacted_log(case: Case, rng: random.Random) -> Case:
    entries = _lost(case, rng)
    return replace(entries, ending=replace(entries.ending, compacted=frozenset(tp.topic for tp in entries.ending.logs)))


@mutation("I1", on_the_way=True)
def elected_without_what_was_acknowledged(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceOk)
    t = end(case)
    return behind(case, "3", BecomeLeader(t, event.tp, 1000, event.offsets[-1], 0))


@mutation("I2")
def acknowledged_at_anothers_offset(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, ProduceOk, lambda each: each.offsets[0] > 0)
    return put(case, place, (name, replace(event, offsets=[each - 1 for each in event.offsets])))


@mutation("I3")
def doubled_record(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceOk)
    return logs(case, lambda log: longer(log, event.ids[0]), event.tp)


@mutation("I3", on_the_way=True)
def read_twice_at_two_offsets(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 1)
    return put(case, place, (name, spoilt(read, 1, read.ids[0])))


def _reordered(case: Case, tp: TopicPartition, one: tuple[int, int, int], other: tuple[int, int, int]) -> Case:
    """Swap two records in the log and in all observations."""

    def change(event: Event) -> Event:
        if getattr(event, "tp", None) == tp and isinstance(event, ProduceOk):
            return replace(event, offsets=swapped(event.offsets, one[0], other[0]))
        if getattr(event, "tp", None) == tp and isinstance(event, Read):
            return replace(event, ids=swapped(event.ids, one[1], other[1]))
        return event

    entries = replace(case, entries=[(name, change(event)) for name, event in case.entries])
    return logs(entries, lambda log: replace(log, ids=swapped(log.ids, one[1], other[1])), tp)


@mutation("I5", on_the_way=True)
def reordered_against_time(case: Case, rng: random.Random) -> Case:
    invoked = {each: event.t[0] for _, _, event in all_of(case, ProduceInvoked) for each in event.ids}
    pairs = [
        (tp, one, other)
        for tp in case.logs
        for one in acknowledged(case, tp)
        for other in acknowledged(case, tp)
        if one[2] < invoked[other[1]]
    ]
    return _reordered(case, *rng.choice(pairs))


@mutation("I6", on_the_way=True)
def reordered_records_of_one_producer(case: Case, rng: random.Random) -> Case:
    pairs = [
        (tp, one, other)
        for tp in case.logs
        for one in acknowledged(case, tp)
        for other in acknowledged(case, tp)
        if one[1] >> 40 == other[1] >> 40 and one[1] < other[1]
    ]
    return _reordered(case, *rng.choice(pairs))


@mutation("I4", on_the_way=True)
def phantom_record(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    return put(case, place, (name, spoilt(read, 0, STRANGER)))


@mutation("I4")
def phantom_in_the_log(case: Case, rng: random.Random) -> Case:
    return logs(case, lambda log: longer(log, STRANGER), rng.choice(list(case.logs)))


@mutation("I4", on_the_way=True)
def altered_record(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    return put(case, place, (name, spoilt(read, 0, DAMAGED)))


@mutation("I4", on_the_way=True)
def misplaced_record(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    _, _, other = one_of(case, rng, ProduceInvoked, lambda each: each.tp != read.tp)
    return put(case, place, (name, spoilt(read, 0, other.ids[0])))


@mutation("I4")
def aborted_record_in_the_log(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceFailed)
    return logs(case, lambda log: longer(log, event.ids[0]), event.tp)


@mutation("I4", on_the_way=True)
def aborted_read(case: Case, rng: random.Random) -> Case:
    place, name, read = one_of(case, rng, Read, lambda each: len(each.ids) > 0)
    _, _, event = one_of(case, rng, ProduceFailed, lambda each: each.tp == read.tp)
    return put(case, place, (name, spoilt(read, 0, event.ids[0])))
