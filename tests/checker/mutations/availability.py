"""Mutations with pauses, and with operations that end late or never."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import MS, TIMEOUT_MS, Story
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import one_of, put
from tidelog.history.operations import ProduceFailed, ProduceUnknown


@mutation("I19")
def gap_without_produces(story: Story, rng: random.Random) -> Story:
    (window,) = story.ending.windows
    return replace(story, ending=replace(story.ending, windows=[replace(window, most_gap_ns=MS)]))


@mutation("I19")
def fault_that_nothing_works_under(story: Story, rng: random.Random) -> Story:
    (window,) = story.ending.windows
    return replace(story, ending=replace(story.ending, windows=[replace(window, least_operations=10_000)]))


@mutation("I19")
def replicas_that_take_too_long_to_come_back(story: Story, rng: random.Random) -> Story:
    (window,) = story.ending.windows
    late = replace(window, whole=window.healed + 11 * MS, most_healing_ns=10 * MS)
    return replace(story, ending=replace(story.ending, windows=[late]))


@mutation("I19")
def fault_that_broke_a_bound_of_its_own(story: Story, rng: random.Random) -> Story:
    (window,) = story.ending.windows
    late = replace(window, broke="broker 2 ended 12.0 s after SIGTERM; allowed are 10 s")
    return replace(story, ending=replace(story.ending, windows=[late]))


@mutation("I22")
def hanging_operation(story: Story, rng: random.Random) -> Story:
    place, _, _ = one_of(story, rng, ProduceUnknown)
    return put(story, place)


@mutation("I22", on_the_way=True)
def operation_that_ends_too_late(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, ProduceUnknown)
    return put(story, place, (name, replace(event, t=[each + (TIMEOUT_MS + 1000) * MS for each in event.t])))


@mutation("I22", on_the_way=True)
def error_that_nothing_documents(story: Story, rng: random.Random) -> Story:
    place, name, event = one_of(story, rng, ProduceFailed)
    return put(story, place, (name, replace(event, errors=["KEY_ERROR"] * len(event.ids))))
