"""Mutations of the brokers' events and resources."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import BROKERS, Story
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


def _by_another_too(story: Story, rng: random.Random, kind: type[Event]) -> Story:
    """Let another broker repeat the action of one broker under the same epoch."""
    place, name, event = one_of(story, rng, kind)
    return put(story, place, (name, event), (_another(name, rng), event))


@mutation("I11", on_the_way=True)
def falling_high_watermark(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, HighWatermark)
    return put(story, place, (name, event), (name, replace(event, value=event.value - 1)))


@mutation("I12", on_the_way=True)
def two_leaders_in_one_epoch(story: Story, rng: random.Random) -> Story:
    return _by_another_too(story, rng, BecomeLeader)


@mutation("I12", on_the_way=True)
def leader_epoch_that_goes_back(story: Story, rng: random.Random) -> Story:
    _, name, event = one_of(story, rng, BecomeLeader, lambda each: each.epoch > 1)
    return behind(story, name, BecomeFollower(end(story), event.tp, 0, 1))


@mutation("I12", on_the_way=True)
def two_controllers_in_one_epoch(story: Story, rng: random.Random) -> Story:
    return _by_another_too(story, rng, Controller)


@mutation("I12", on_the_way=True)
def isr_change_without_version(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, IsrChange)
    return put(story, place, (name, replace(event, partition_epoch=-1)))


@mutation("I12", on_the_way=True)
def two_isr_changes_of_one_version(story: Story, rng: random.Random) -> Story:
    return _by_another_too(story, rng, IsrChange)


@mutation("I12", on_the_way=True)
def isr_change_by_a_deposed_leader(story: Story, rng: random.Random) -> Story:
    _, name, event = one_of(story, rng, IsrChange, lambda each: each.epoch > 1)
    late = replace(event, t=end(story), epoch=event.epoch - 1, partition_epoch=10_000)
    return behind(story, _another(name, rng), late)


def _without_isr_changes(story: Story) -> Story:
    return replace(story, told=[each for each in story.told if not isinstance(each[1], IsrChange)])


@mutation("I12", on_the_way=True)
def isr_change_over_an_election(story: Story, rng: random.Random) -> Story:
    """Let the ISR update of a replaced leader succeed although no other broker changed the ISR."""
    _, name, event = one_of(story, rng, BecomeLeader, lambda each: each.epoch > 1)
    late = IsrChange(end(story), event.tp, BROKERS, event.epoch - 1, event.partition_epoch + 1, True)
    return behind(_without_isr_changes(story), _another(name, rng), late)


@mutation("I12", on_the_way=True)
def two_epochs_of_one_version(story: Story, rng: random.Random) -> Story:
    _, name, event = one_of(story, rng, BecomeLeader)
    last = max(each.epoch for _, _, each in all_of(story, BecomeLeader, lambda each: each.tp == event.tp))
    ((_, _, event),) = all_of(story, BecomeLeader, lambda each: (each.tp, each.epoch) == (event.tp, last))
    return behind(_without_isr_changes(story), _another(name, rng), replace(event, t=end(story), epoch=last + 1))


@mutation("I14", on_the_way=True)
def acknowledged_with_too_small_isr(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, Ack)
    return put(story, place, (name, replace(event, isr=[int(name)])))


@mutation("I14", on_the_way=True)
def acknowledged_before_a_pending_member_had_it(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, Ack)
    return put(story, place, (name, replace(event, leos={**event.leos, event.pending[0]: event.last})))


@mutation("I14")
def acknowledged_before_a_pending_member_told_anything(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, Ack)
    known = {broker: leo for broker, leo in event.leos.items() if broker not in event.pending}
    return put(story, place, (name, replace(event, leos=known)))


@mutation("I14", on_the_way=True)
def acknowledged_by_a_leader_outside_the_isr(story: Story, rng: random.Random) -> Story:
    place, _, event = one_of(story, rng, Ack)
    return put(story, place, (str(event.pending[0]), event))


@mutation("I20", on_the_way=True)
def request_replayed_after_its_deadline(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, Processed)
    return put(story, place, (name, replace(event, deadline=event.t - 1)))


@mutation("I20", on_the_way=True)
def request_of_a_lower_epoch(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, Processed)
    return put(story, place, (name, replace(event, epoch=event.known - 1)))


@mutation("I20", on_the_way=True)
def appended_in_an_epoch_that_is_over(story: Story, rng: random.Random) -> Story:
    _, name, event = one_of(story, rng, Append)
    told = behind(story, name, BecomeFollower(end(story), event.tp, 1000, 1))
    return behind(told, name, replace(event, t=end(story) + 1))


@mutation("I21", on_the_way=True)
def unforeseen_failure(story: Story, rng: random.Random) -> Story:
    return behind(story, "1", Traceback(end(story), "Traceback (most recent call last):\nKeyError: 3"))


@mutation("I21", on_the_way=True)
def unknown_server_error(story: Story, rng: random.Random) -> Story:
    return behind(story, "1", Error(end(story), "Produce", -1))


@mutation("I21", on_the_way=True)
def leaked_descriptors(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, Resources, lambda each: each.phase == "healed")
    return put(story, place, (name, replace(event, fds=event.fds + 9)))
