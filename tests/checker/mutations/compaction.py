"""Histories in which compaction removes records that it must keep."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from tests.checker.little_log import COMPACTED_TP, Case
from tests.checker.mutations.mutation import NothingToSpoil, mutation
from tests.checker.mutations.spoiling import all_of
from tidelog.history.operations import ProduceInvoked, ProduceOk
from verify.checker.inputs.logs import READ, FinalLog


def _keys(case: Case) -> dict[int, int]:
    """Return the number of each record's key, by id."""
    found: dict[int, int] = {}
    for _, _, event in all_of(case, ProduceInvoked, tp=COMPACTED_TP):
        found.update(zip(event.ids, event.keys or (), strict=True))
    return found


def _tombstones(case: Case) -> set[int]:
    events = all_of(case, ProduceInvoked, tp=COMPACTED_TP)
    return {each for _, _, event in events for each in event.ids if event.tombstones}


def _last_acknowledged(case: Case) -> dict[int, tuple[int, int]]:
    """Return (offset, id) of each key's last record."""
    keys, last = _keys(case), dict[int, tuple[int, int]]()
    for _, _, event in all_of(case, ProduceOk, tp=COMPACTED_TP):
        for offset, record_id in zip(event.offsets, event.ids, strict=True):
            last[keys[record_id]] = max(last.get(keys[record_id], (-1, -1)), (offset, record_id))
    return last


def _without(case: Case, broker: str, gone: Callable[[int, int], bool]) -> Case:
    """Return the history in which a broker's log lacks the records `gone`, given by offset and id."""

    def change(log: FinalLog) -> FinalLog:
        if log.broker != broker:
            return log
        kept = [place for place, pair in enumerate(zip(log.offsets, log.ids, strict=True)) if not gone(*pair)]
        offsets, ids, ts, epochs = (
            [column[place] for place in kept] for column in (log.offsets, log.ids, log.ts, log.leader_epochs)
        )
        return replace(log, offsets=offsets, ids=ids, ts=ts, leader_epochs=epochs)

    logs = {**case.ending.logs, COMPACTED_TP: [change(log) for log in case.ending.logs[COMPACTED_TP]]}
    return replace(case, ending=replace(case.ending, logs=logs))


def _one_key(case: Case, rng: random.Random, *, tombstone: bool) -> tuple[int, int, int]:
    """Return (key, offset, id) of a key's last acknowledged record, which may be a tombstone."""
    keys, tombstones = _keys(case), _tombstones(case)
    may_be_deleted = {keys[each] for each in tombstones}
    stored = {
        (keys[record_id], offset)
        for log in case.ending.logs[COMPACTED_TP]
        for offset, record_id in zip(log.offsets, log.ids, strict=True)
    }
    last = _last_acknowledged(case).items()
    fitting = [each for each in last if (each[1][1] in tombstones if tombstone else each[0] not in may_be_deleted)]
    found = [(key, *at) for key, at in fitting if not any(k == key and o > at[0] for k, o in stored)]
    if not found:
        raise NothingToSpoil
    return rng.choice(found)


@mutation("I23")
def last_value_taken_by_compaction(case: Case, rng: random.Random) -> Case:
    """Keep an earlier record of the key in one replica."""
    _, _, record_id = _one_key(case, rng, tombstone=False)
    return _without(case, rng.choice(["1", "2", "3", READ]), lambda _, each: each == record_id)


@mutation("I23")
def key_replaced_by_what_was_truncated(case: Case, rng: random.Random) -> Case:
    """Truncate the record that replaced all others of its key after compaction up to the log end."""
    keys = _keys(case)
    key, _, _ = _one_key(case, rng, tombstone=False)
    return _without(case, rng.choice(["1", "2", "3"]), lambda _, each: keys[each] == key)


@mutation("I23")
def key_gone_from_all_replicas(case: Case, rng: random.Random) -> Case:
    keys = _keys(case)
    key, _, _ = _one_key(case, rng, tombstone=False)
    for broker in ("1", "2", "3", READ):
        case = _without(case, broker, lambda _, each: keys[each] == key)
    return case


@mutation("I23")
def tombstone_gone_before_what_it_deletes(case: Case, rng: random.Random) -> Case:
    """Bring the deleted key back in one replica."""
    keys = _keys(case)
    key, offset, record_id = _one_key(case, rng, tombstone=True)
    (log,) = [log for log in case.ending.logs[COMPACTED_TP] if log.broker == "3"]
    if not any(keys[each] == key and at < offset for at, each in zip(log.offsets, log.ids, strict=True)):
        raise NothingToSpoil
    return _without(case, "3", lambda _, each: each == record_id)
