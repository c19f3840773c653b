"""Helpers of mutations: find events in a history, and replace them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from tests.checker.little_log import COMPACTED_TP, Case
from tests.checker.mutations.mutation import NothingToSpoil
from tidelog.history.events import Event
from tidelog.history.operations import Read
from tidelog.model import TopicPartition
from verify.checker.inputs.logs import FinalLog

E = TypeVar("E")


def all_of(
    case: Case, kind: type[E], fits: Callable[[E], bool] = lambda _: True, tp: TopicPartition | None = None
) -> list[tuple[int, str, E]]:
    """Return (index, source, event) of this partition, or of all partitions without compaction."""

    def is_there(event: Event) -> bool:
        there = getattr(event, "tp", None)
        return there == tp if tp is not None else there != COMPACTED_TP

    return [
        (place, name, event)
        for place, (name, event) in enumerate(case.entries)
        if isinstance(event, kind) and is_there(event) and fits(event)
    ]


def one_of(
    case: Case, rng: random.Random, kind: type[E], fits: Callable[[E], bool] = lambda _: True
) -> tuple[int, str, E]:
    found = all_of(case, kind, fits)
    if not found:
        raise NothingToSpoil
    return rng.choice(found)


def put(case: Case, place: int, *entries: tuple[str, Event], instead: bool = True) -> Case:
    return replace(case, entries=[*case.entries[:place], *entries, *case.entries[place + instead :]])


def behind(case: Case, name: str, event: Event) -> Case:
    return replace(case, entries=[*case.entries, (name, event)])


def end(case: Case) -> int:
    return max(getattr(event, "t1", 0) for _, event in case.entries)


def logs(case: Case, change: Callable[[FinalLog], FinalLog], tp: TopicPartition) -> Case:
    changed = {**case.ending.logs, tp: [change(log) for log in case.ending.logs[tp]]}
    return replace(case, ending=replace(case.ending, logs=changed))


def cut(log: FinalLog, leo: int) -> FinalLog:
    """Return the log with an earlier end."""
    columns = range(leo), log.ids[:leo], log.ts[:leo], log.leader_epochs[:leo]
    batches = [batch for batch in log.batches if batch.last < leo]
    epochs = None if log.epochs is None else [each for each in log.epochs if each.start_offset < leo]
    return FinalLog(log.broker, log.tp, 0, leo, leo, epochs, *columns, batches)


def beheaded(log: FinalLog, start: int) -> FinalLog:
    """Return the log with a later start."""
    columns = range(start, log.leo), log.ids[start:], log.ts[start:], log.leader_epochs[start:]
    batches = [batch for batch in log.batches if batch.last >= start]
    return FinalLog(log.broker, log.tp, start, log.leo, log.leo, log.epochs, *columns, batches)


def longer(log: FinalLog, record_id: int) -> FinalLog:
    """Return the log with one more record."""
    place = log.leo
    columns = (
        range(place + 1),
        [*log.ids, record_id],
        [*log.ts, log.ts[-1]],
        [*log.leader_epochs, log.leader_epochs[-1]],
    )
    return FinalLog(log.broker, log.tp, 0, place + 1, place + 1, log.epochs, *columns, log.batches)


def spoilt(read: Read, at: int, record_id: int) -> Read:
    return replace(read, ids=[*read.ids[:at], record_id, *read.ids[at + 1 :]])
