"""Mutations of the brokers' events and resources."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import BROKERS, Case
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import all_of, behind, end, one_of, put
from tidelog.history.broker_events import (
    Ack,
    Append,
    BecomeFollower,
    BecomeLeader,
    Controller,
    Error,
    HighWatermark,
    IsrChange,
    Processed,
    Resources,
    Traceback,
)
from tidelog.history.events import Event


def _another(name: str, rng: random.Random) -> str:
    return rng.choice([str(each) for each in BROKERS if str(each) != name])


def _by_another_too(case: Case, rng: random.Random, kind: type[Event]) -> Case:
    """Let another broker repeat the action of one broker under the same epoch."""
    place, name, event = one_of(case, rng, kind)
    return put(case, place, (name, event), (_another(name, rng), event))


@mutation("I11", on_the_way=True)
def falling_high_watermark(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, HighWatermark)
    return put(case, place, (name, event), (name, replace(event, value=event.value - 1)))


@mutation("I12", on_the_way=True)
def two_leaders_in_one_epoch(case: Case, rng: random.Random) -> Case:
    return _by_another_too(case, rng, BecomeLeader)


@mutation("I12", on_the_way=True)
def leader_epoch_that_goes_back(case: Case, rng: random.Random) -> Case:
    _, name, event = one_of(case, rng, BecomeLeader, lambda each: each.epoch > 1)
    return behind(case, name, BecomeFollower(end(case), event.tp, 0, 1))


@mutation("I12", on_the_way=True)
def two_controllers_in_one_epoch(case: Case, rng: random.Random) -> Case:
    return _by_another_too(case, rng, Controller)


@mutation("I12", on_the_way=True)
def isr_change_without_version(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, IsrChange)
    return put(case, place, (name, replace(event, partition_epoch=-1)))


@mutation("I12", on_the_way=True)
def two_isr_changes_of_one_version(case: Case, rng: random.Random) -> Case:
    return _by_another_too(case, rng, IsrChange)


@mutation("I12", on_the_way=True)
def isr_change_by_a_deposed_leader(case: Case, rng: random.Random) -> Case:
    _, name, event = one_of(case, rng, IsrChange, lambda each: each.epoch > 1)
    late = replace(event, t=end(case), epoch=event.epoch - 1, partition_epoch=10_000)
    return behind(case, _another(name, rng), late)


def _without_isr_changes(case: Case) -> Case:
    return replace(case, entries=[each for each in case.entries if not isinstance(each[1], IsrChange)])


@mutation("I12", on_the_way=True)
def isr_change_over_an_election(case: Case, rng: random.Random) -> Case:
    """Let the ISR update of a replaced leader succeed although no other broker changed the ISR."""
    _, name, event = one_of(case, rng, BecomeLeader, lambda each: each.epoch > 1)
    late = IsrChange(end(case), event.tp, BROKERS, event.epoch - 1, event.partition_epoch + 1, True)
    return behind(_without_isr_changes(case), _another(name, rng), late)


@mutation("I12", on_the_way=True)
def two_epochs_of_one_version(case: Case, rng: random.Random) -> Case:
    _, name, event = one_of(case, rng, BecomeLeader)
    last = max(each.epoch for _, _, each in all_of(case, BecomeLeader, lambda each: each.tp == event.tp))
    ((_, _, event),) = all_of(case, BecomeLeader, lambda each: (each.tp, each.epoch) == (event.tp, last))
    return behind(_without_isr_changes(case), _another(name, rng), replace(event, t=end(case), epoch=last + 1))


@mutation("I14", on_the_way=True)
def acknowledged_with_too_small_isr(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, Ack)
    return put(case, place, (name, replace(event, isr=[int(name)])))


@mutation("I14", on_the_way=True)
def acknowledged_before_a_pending_member_had_it(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, Ack)
    return put(case, place, (name, replace(event, leos={**event.leos, event.pending[0]: event.last})))


@mutation("I14")
def acknowledged_before_a_pending_member_told_anything(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, Ack)
    known = {broker: leo for broker, leo in event.leos.items() if broker not in event.pending}
    return put(case, place, (name, replace(event, leos=known)))


@mutation("I14", on_the_way=True)
def acknowledged_by_a_leader_outside_the_isr(case: Case, rng: random.Random) -> Case:
    place, _, event = one_of(case, rng, Ack)
    return put(case, place, (str(event.pending[0]), event))


@mutation("I20", on_the_way=True)
def request_replayed_after_its_deadline(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, Processed)
    return put(case, place, (name, replace(event, deadline=event.t - 1)))


@mutation("I20", on_the_way=True)
def request_of_a_lower_epoch(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, Processed)
    return put(case, place, (name, replace(event, epoch=event.known - 1)))


@mutation("I20", on_the_way=True)
def appended_in_an_epoch_that_is_over(case: Case, rng: random.Random) -> Case:
    _, name, event = one_of(case, rng, Append)
    entries = behind(case, name, BecomeFollower(end(case), event.tp, 1000, 1))
    return behind(entries, name, replace(event, t=end(case) + 1))


@mutation("I21", on_the_way=True)
def unforeseen_failure(case: Case, rng: random.Random) -> Case:
    return behind(case, "1", Traceback(end(case), "Traceback (most recent call last):\nKeyError: 3"))


@mutation("I21", on_the_way=True)
def unknown_server_error(case: Case, rng: random.Random) -> Case:
    return behind(case, "1", Error(end(case), "Produce", -1))


@mutation("I21", on_the_way=True)
def leaked_descriptors(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, Resources, lambda each: each.phase == "healed")
    return put(case, place, (name, replace(event, fds=event.fds + 9)))
