"""Mutations with pauses, and with operations that end late or never."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import MS, TIMEOUT_MS, Case
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import one_of, put
from tidelog.history.operations import ProduceFailed, ProduceUnknown


@mutation("I19")
def gap_without_produces(case: Case, rng: random.Random) -> Case:
    (window,) = case.ending.windows
    return replace(case, ending=replace(case.ending, windows=[replace(window, most_gap_ns=MS)]))


@mutation("I19")
def fault_that_nothing_works_under(case: Case, rng: random.Random) -> Case:
    (window,) = case.ending.windows
    return replace(case, ending=replace(case.ending, windows=[replace(window, least_operations=10_000)]))


@mutation("I19")
def replicas_that_take_too_long_to_come_back(case: Case, rng: random.Random) -> Case:
    (window,) = case.ending.windows
    late = replace(window, whole=window.healed + 11 * MS, most_healing_ns=10 * MS)
    return replace(case, ending=replace(case.ending, windows=[late]))


@mutation("I19")
def fault_that_broke_a_bound_of_its_own(case: Case, rng: random.Random) -> Case:
    (window,) = case.ending.windows
    late = replace(window, broke="broker 2 ended 12.0 s after SIGTERM; allowed are 10 s")
    return replace(case, ending=replace(case.ending, windows=[late]))


@mutation("I22")
def hanging_operation(case: Case, rng: random.Random) -> Case:
    place, _, _ = one_of(case, rng, ProduceUnknown)
    return put(case, place)


@mutation("I22", on_the_way=True)
def operation_that_ends_too_late(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, ProduceUnknown)
    return put(case, place, (name, replace(event, t=[each + (TIMEOUT_MS + 1000) * MS for each in event.t])))


@mutation("I22", on_the_way=True)
def error_that_nothing_documents(case: Case, rng: random.Random) -> Case:
    place, name, event = one_of(case, rng, ProduceFailed)
    return put(case, place, (name, replace(event, errors=["KEY_ERROR"] * len(event.ids))))
