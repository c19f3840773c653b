"""What brokers do, promise and leave behind."""

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


def _another(name: str, dice: random.Random) -> str:
    return dice.choice([str(each) for each in BROKERS if str(each) != name])


def _by_another_too(story: Story, dice: random.Random, kind: type[Event]) -> Story:
    """What one broker did, another does in the same name."""
    place, name, event = one_of(story, dice, kind)
    return put(story, place, (name, event), (_another(name, dice), event))


@mutation("I11", on_the_way=True)
def falling_high_watermark(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, HighWatermark)
    return put(story, place, (name, event), (name, replace(event, value=event.value - 1)))


@mutation("I12", on_the_way=True)
def two_leaders_in_one_epoch(story: Story, dice: random.Random) -> Story:
    return _by_another_too(story, dice, BecomeLeader)


@mutation("I12", on_the_way=True)
def leader_epoch_that_goes_back(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, BecomeLeader, lambda each: each.epoch > 1)
    return behind(story, name, BecomeFollower(end(story), event.tp, 0, 1))


@mutation("I12", on_the_way=True)
def two_controllers_in_one_epoch(story: Story, dice: random.Random) -> Story:
    return _by_another_too(story, dice, Controller)


@mutation("I12", on_the_way=True)
def isr_change_without_version(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, IsrChange)
    return put(story, place, (name, replace(event, partition_epoch=-1)))


@mutation("I12", on_the_way=True)
def two_isr_changes_of_one_version(story: Story, dice: random.Random) -> Story:
    return _by_another_too(story, dice, IsrChange)


@mutation("I12", on_the_way=True)
def isr_change_by_a_deposed_leader(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, IsrChange, lambda each: each.epoch > 1)
    late = replace(event, t=end(story), epoch=event.epoch - 1, partition_epoch=10_000)
    return behind(story, _another(name, dice), late)


def _without_isr_changes(story: Story) -> Story:
    return replace(story, told=[each for each in story.told if not isinstance(each[1], IsrChange)])


@mutation("I12", on_the_way=True)
def isr_change_over_an_election(story: Story, dice: random.Random) -> Story:
    """The write of who is deposed goes through, and nobody else has changed the ISR."""
    _, name, event = one_of(story, dice, BecomeLeader, lambda each: each.epoch > 1)
    late = IsrChange(end(story), event.tp, BROKERS, event.epoch - 1, event.partition_epoch + 1, True)
    return behind(_without_isr_changes(story), _another(name, dice), late)


@mutation("I12", on_the_way=True)
def two_epochs_of_one_version(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, BecomeLeader)
    last = max(each.epoch for _, _, each in all_of(story, BecomeLeader, lambda each: each.tp == event.tp))
    ((_, _, event),) = all_of(story, BecomeLeader, lambda each: (each.tp, each.epoch) == (event.tp, last))
    return behind(_without_isr_changes(story), _another(name, dice), replace(event, t=end(story), epoch=last + 1))


@mutation("I14", on_the_way=True)
def acknowledged_with_too_small_isr(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, Ack)
    return put(story, place, (name, replace(event, isr=[int(name)])))


@mutation("I14", on_the_way=True)
def acknowledged_before_a_pending_member_had_it(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, Ack)
    return put(story, place, (name, replace(event, leos={**event.leos, event.pending[0]: event.last})))


@mutation("I14")
def acknowledged_before_a_pending_member_told_anything(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, Ack)
    known = {broker: leo for broker, leo in event.leos.items() if broker not in event.pending}
    return put(story, place, (name, replace(event, leos=known)))


@mutation("I14", on_the_way=True)
def acknowledged_by_a_leader_outside_the_isr(story: Story, dice: random.Random) -> Story:
    place, _, event = one_of(story, dice, Ack)
    return put(story, place, (str(event.pending[0]), event))


@mutation("I20", on_the_way=True)
def request_replayed_after_its_deadline(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, Processed)
    return put(story, place, (name, replace(event, deadline=event.t - 1)))


@mutation("I20", on_the_way=True)
def request_of_a_lower_epoch(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, Processed)
    return put(story, place, (name, replace(event, epoch=event.known - 1)))


@mutation("I20", on_the_way=True)
def appended_in_an_epoch_that_is_over(story: Story, dice: random.Random) -> Story:
    _, name, event = one_of(story, dice, Append)
    told = behind(story, name, BecomeFollower(end(story), event.tp, 1000, 1))
    return behind(told, name, replace(event, t=end(story) + 1))


@mutation("I21", on_the_way=True)
def unforeseen_failure(story: Story, dice: random.Random) -> Story:
    return behind(story, "1", Traceback(end(story), "Traceback (most recent call last):\nKeyError: 3"))


@mutation("I21", on_the_way=True)
def unknown_server_error(story: Story, dice: random.Random) -> Story:
    return behind(story, "1", Error(end(story), "Produce", -1))


@mutation("I21", on_the_way=True)
def leaked_descriptors(story: Story, dice: random.Random) -> Story:
    place, name, event = one_of(story, dice, Resources, lambda each: each.phase == "healed")
    return put(story, place, (name, replace(event, fds=event.fds + 9)))
