"""Mutations of replicas that differ from each other, from acknowledgements, or from their checkpoints."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.checker.little_log import Case
from tests.checker.mutations.mutation import mutation
from tests.checker.mutations.spoiling import beheaded, cut, logs, longer, one_of
from tidelog.history.broker_events import Ack
from tidelog.history.operations import ProduceOk, ProduceUnknown
from verify.checker.inputs.logs import READ, EpochStart, FinalLog


@mutation("I13")
def lost_what_a_deposed_leader_acknowledged(case: Case, rng: random.Random) -> Case:
    last = {tp: max(log.leader_epochs) for tp, (log, *_) in case.logs.items()}
    _, _, event = one_of(case, rng, Ack, lambda each: each.epoch < last[each.tp])
    return logs(case, lambda log: cut(log, event.last), event.tp)


@mutation("I13")
def replaced_what_a_deposed_leader_acknowledged(case: Case, rng: random.Random) -> Case:
    last = {tp: max(log.leader_epochs) for tp, (log, *_) in case.logs.items()}
    _, _, event = one_of(case, rng, ProduceOk, lambda each: each.epochs[0] < last[each.tp])
    offset = event.offsets[-1]

    def change(log: FinalLog) -> FinalLog:
        epochs = [*log.leader_epochs[:offset], *[last[log.tp]] * (log.leo - offset)]
        return replace(log, leader_epochs=epochs)

    return logs(case, change, event.tp)


@mutation("I15")
def replica_that_differs(case: Case, rng: random.Random) -> Case:
    tp = rng.choice([tp for tp, (log, *_) in case.logs.items() if log.batches])

    def change(log: FinalLog) -> FinalLog:
        place = rng.randrange(len(log.batches)) if log.broker == "2" else -1
        batches = [each._replace(crc=each.crc ^ 1) if at == place else each for at, each in enumerate(log.batches)]
        return replace(log, batches=batches)

    return logs(case, change, tp)


@mutation("I15")
def replica_that_is_longer(case: Case, rng: random.Random) -> Case:
    _, _, event = one_of(case, rng, ProduceUnknown)
    return logs(case, lambda log: longer(log, event.ids[0]) if log.broker == "3" else log, event.tp)


@mutation("I15")
def log_start_that_nobody_asked_for(case: Case, rng: random.Random) -> Case:
    """Remove the same records from all replicas, so that the replicas stay equal."""
    tp = rng.choice([tp for tp, (log, *_) in case.logs.items() if log.leo > 1])
    start = rng.randrange(1, case.ending.logs[tp][0].leo)
    return logs(case, lambda log: beheaded(log, start), tp)


@mutation("I16")
def epochs_that_fall_in_a_log(case: Case, rng: random.Random) -> Case:
    def change(log: FinalLog) -> FinalLog:
        return replace(log, leader_epochs=[*log.leader_epochs[:-1], 0]) if log.broker in ("1", READ) else log

    return logs(case, change, rng.choice([tp for tp, (log, *_) in case.logs.items() if log.leo > 1]))


@mutation("I16")
def checkpoint_that_its_log_contradicts(case: Case, rng: random.Random) -> Case:
    def change(log: FinalLog) -> FinalLog:
        if log.broker != "2" or not log.epochs:
            return log
        return replace(log, epochs=[EpochStart(0, 0), *log.epochs[1:]])

    return logs(case, change, rng.choice(list(case.logs)))
