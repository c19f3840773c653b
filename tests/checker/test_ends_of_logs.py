"""Test what final logs may lack: trims, compaction, replicas, epochs (I1, I9, I13, I15, I16)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.checker.judging import verdict_on_all
from tidelog.history.broker_events import Ack, BecomeLeader
from tidelog.history.events import Event
from tidelog.history.operations import ProduceInvoked, ProduceOk, Read, TrimInvoked, TrimOk, TrimUnknown
from tidelog.model import TopicPartition
from verify.checker.findings import Finding
from verify.checker.inputs.logs import READ, EpochStart, FinalLog, StoredBatch
from verify.checker.invariant import Ending
from verify.checker.verdict import Row, Status

TP = TopicPartition("t", 0)
COMPACTED = frozenset({"t"})


def log(
    *ids: int,
    broker: str = READ,
    start: int = 0,
    epochs: Sequence[int] | None = None,
    checkpoint: Sequence[tuple[int, int]] | None = None,
    offsets: Sequence[int] | None = None,
) -> FinalLog:
    """Return a log with records of these ids, with their ids as timestamps, from `start` on."""
    where = range(start, start + len(ids)) if offsets is None else list(offsets)
    leo = where[-1] + 1 if where else start
    starts = None if checkpoint is None else [EpochStart(*each) for each in checkpoint]
    return FinalLog(broker, TP, start, leo, leo, starts, where, [*ids], [*ids], [*(epochs or [1] * len(ids))])


def produced(*ids: int, epoch: int | None = None) -> list[tuple[str, Event]]:
    """Return acknowledgements at consecutive offsets from 0 on."""
    count = len(ids)
    epochs = None if epoch is None else [epoch] * count
    return [
        ("client", ProduceInvoked(TP, [*ids], [*ids], [1] * count)),
        ("client", ProduceOk(TP, [*ids], list(range(count)), [2] * count, epochs)),
    ]


def found(
    key: str, entries: Sequence[tuple[str, Event]], *logs: FinalLog, compacted: frozenset[str] = frozenset()
) -> Sequence[Finding]:
    return verdict_on_all(entries, key, ending=Ending({TP: list(logs)}, compacted=compacted)).findings


# --- I1 and I9: records exist, or are missing for a reason
# -------------------------------------------------------------

THREE = produced(1, 2, 3)
READ_ALL: list[tuple[str, Event]] = [("client", Read(TP, 1, 9, 5, 6, [0, 1, 2], [1, 2, 3], [1, 2, 3]))]
TRIM: tuple[str, Event] = ("client", TrimOk(TP, 2, 7, 8))


@pytest.mark.parametrize(("key", "entries"), [("I1", THREE), ("I9", [*THREE, *READ_ALL])])
def test_record_below_the_log_start_is_lost_unless_it_was_trimmed(key: str, entries: list[tuple[str, Event]]) -> None:
    assert len(found(key, entries, log(3, start=2))) == 2
    assert not found(key, [*entries, TRIM], log(3, start=2))
    assert not found(key, [*entries, ("client", TrimUnknown(TP, 2, "TIMEOUT", 7, 8))], log(3, start=2))
    less: tuple[str, Event] = ("client", TrimOk(TP, 1, 7, 8))
    assert len(found(key, [*entries, less], log(3, start=2))) == 1, "no more than was asked for"
    assert len(found(key, [*entries, TRIM], log(offsets=[]))) == 3, "a trim moves the log start"


@pytest.mark.parametrize(("key", "entries"), [("I1", THREE), ("I9", [*THREE, *READ_ALL])])
def test_compaction_removes_records_and_replaces_none(key: str, entries: list[tuple[str, Event]]) -> None:
    gap = log(1, 3, offsets=[0, 2])
    assert len(found(key, entries, gap)) == 1
    assert not found(key, entries, gap, compacted=COMPACTED)
    assert len(found(key, entries, log(1, 7, 3), compacted=COMPACTED)) == 1


@pytest.mark.parametrize(("key", "entries"), [("I1", THREE), ("I9", [*THREE, *READ_ALL])])
def test_compaction_moves_neither_log_start_nor_log_end(key: str, entries: list[tuple[str, Event]]) -> None:
    assert len(found(key, entries, log(1), compacted=COMPACTED)) == 2, "what the log ends before"
    assert len(found(key, entries, log(3, start=2), compacted=COMPACTED)) == 2, "what it begins behind"
    assert len(found(key, entries, log(offsets=[]), compacted=COMPACTED)) == 3, "all of it"
    assert not found(key, [*entries, TRIM], log(3, start=2), compacted=COMPACTED)


def test_acknowledged_record_is_in_every_log() -> None:
    assert not found("I1", THREE, log(1, 2, 3, broker="1"), log(1, 2, 3))
    (lost,) = found("I1", THREE, log(1, 2, broker="1"), log(1, 2, 3))
    assert "broker 1's log has nothing there" in lost.says


def test_leader_begins_above_the_acknowledged_offsets() -> None:
    def elected(t: int, leo: int) -> int:
        return len(found("I1", [*THREE, ("1", BecomeLeader(t, TP, 4, leo, 0))], log(1, 2, 3)))

    assert (elected(3, 2), elected(3, 3), elected(2, 2)) == (1, 0, 0)


def test_leader_of_an_old_epoch_may_begin_at_any_offset() -> None:
    successor, sleeper = BecomeLeader(1, TP, 5, 0, 0), BecomeLeader(3, TP, 4, 2, 0)
    assert not found("I1", [("2", successor), *THREE, ("1", sleeper)], log(1, 2, 3))
    assert len(found("I1", [*THREE, ("1", sleeper), ("2", replace(successor, t=9, leo=3))], log(1, 2, 3))) == 1


def test_read_record_keeps_its_timestamp() -> None:
    other: list[tuple[str, Event]] = [("client", Read(TP, 1, 9, 5, 6, [1], [2], [99]))]
    (wrong,) = found("I9", [*THREE, *other], log(1, 2, 3))
    assert "the record with timestamp 2 instead of 99" in wrong.says


# --- I13 -------------------------------------------------------------------------------------------------------------

LATER: tuple[str, Event] = ("1", BecomeLeader(5, TP, 2, 3, 3))


@pytest.mark.parametrize("by_broker", [True, False])
def test_record_acknowledged_in_an_ended_epoch_keeps_that_epoch_or_less(by_broker: bool) -> None:
    ack = Ack(2, TP, 2, 1, [1], [], {1: 3}, [1], 1)
    entries: list[tuple[str, Event]] = [*(produced(1, 2, 3) if by_broker else produced(1, 2, 3, epoch=1)), LATER]
    entries += [("1", ack)] if by_broker else []
    count = 1 if by_broker else 2
    assert not found("I13", entries, log(1, 2, 3))
    assert not found("I13", entries, log(1, 2, 3, epochs=[0, 0, 0]))
    assert len(found("I13", entries, log(1, 2, 3, epochs=[1, 2, 2]))) == count
    assert len(found("I13", entries, log(1))) == count
    trim: tuple[str, Event] = ("client", TrimInvoked(TP, 3, 7))
    assert not found("I13", [*entries, trim], log(3, 4, start=3)), "a trim is no matter of epochs"
    assert len(found("I13", entries, log(3, 4, start=3))) == (1 if by_broker else 3)
    assert not found("I13", entries, log(1, 9, offsets=[0, 7]), compacted=COMPACTED)
    assert len(found("I13", entries, log(1, 9, offsets=[0, 7]))) == count
    assert len(found("I13", entries, log(1), compacted=COMPACTED)) == count, "compaction takes nothing behind the end"


def test_leader_completeness_ignores_acks_of_the_last_epoch() -> None:
    still = [*produced(1, 2, 3, epoch=2), LATER, ("1", Ack(6, TP, 2, 2, [1], [], {1: 3}, [1], 1))]
    assert not found("I13", still, log(1))


# --- I15 -------------------------------------------------------------------------------------------------------------


#: A trim request, so that logs may begin later.
TRIM_ALL: tuple[str, Event] = ("client", TrimUnknown(TP, 9, "TIMEOUT", 7, 8))


def compared(*logs: FinalLog, compacted: bool = False) -> Row:
    ending = Ending({TP: logs}, compacted=COMPACTED if compacted else frozenset())
    return verdict_on_all([TRIM_ALL], "I15", ending=ending).rows[0]


def differences(one: FinalLog, other: FinalLog, compacted: bool = False) -> int:
    return compared(one, other, compacted=compacted).violations


@pytest.mark.parametrize("compacted", [frozenset(), COMPACTED])
def test_log_begins_at_or_below_the_highest_trim_request(compacted: frozenset[str]) -> None:
    logs = log(2, 3, broker="1", start=1), log(1, 2, 3, broker="2"), log(1, 2, 3)
    (late,) = found("I15", [], *logs, compacted=compacted)
    assert late.says == "broker 1's log begins at 1, but the highest trim request was 0"
    for trim in (TrimInvoked(TP, 1, 7), TrimOk(TP, 1, 7, 8), TrimUnknown(TP, 1, "TIMEOUT", 7, 8)):
        assert not found("I15", [("client", trim)], *logs, compacted=compacted)
    assert len(found("I15", [], log(2, 3, broker="1", start=1))) == 1, "though there is no other replica"


def test_records_below_a_log_start_or_in_one_replica_are_not_compared() -> None:
    assert compared(log(1, 2, 3, broker="1"), log(2, 3, broker="2", start=1)).observations == 2
    assert compared(log(1, 2, 3, broker="1"), log(broker="2", start=3)).status is Status.NO_DATA
    gap = log(1, 3, broker="2", offsets=[0, 2])
    assert compared(log(1, 2, 3, broker="1"), gap, compacted=True).observations == 2
    assert compared(log(1, 2, 3, broker="1"), log(1, 2, 3)).status is Status.NO_DATA


def test_replicas_have_their_records_at_the_same_offsets() -> None:
    assert differences(log(1, 3, broker="1", offsets=[0, 2]), log(1, 3, broker="2", offsets=[1, 2])) == 1


def test_replicas_are_compared_from_the_latest_log_start_on() -> None:
    assert differences(log(1, 2, 3, broker="1"), log(2, 3, broker="2", start=1)) == 0
    assert differences(log(1, 2, 3, broker="1"), log(2, 7, broker="2", start=1)) == 1
    assert differences(log(1, 2, 3, broker="1"), log(9, 2, 3, broker="2")) == 1


def test_replicas_end_at_one_offset() -> None:
    assert differences(log(1, 2, 3, broker="1"), log(1, 2, broker="2")) == 1
    assert differences(log(1, 2, broker="1"), log(1, 2, 3, broker="2")) == 1


def test_log_read_by_a_client_is_not_compared_as_a_replica() -> None:
    assert differences(log(1, 2, 3, broker="1"), log(1, 2)) == 0


def test_records_differ_by_id_time_and_epoch() -> None:
    one, other = log(1, 2, 3, broker="1"), log(1, 2, 3, broker="2")
    assert differences(one, replace(other, ts=[1, 9, 3])) == 1
    assert differences(one, replace(other, leader_epochs=[1, 1, 2])) == 1
    assert differences(one, log(1, 3, broker="2", offsets=[0, 2])) == 1


def test_compacted_replicas_agree_at_each_common_offset() -> None:
    one, other = log(1, 2, 3, broker="1"), log(1, 3, broker="2", offsets=[0, 2])
    assert differences(one, other, compacted=True) == 0
    assert differences(other, one, compacted=True) == 0
    assert differences(one, log(1, 9, broker="2", offsets=[0, 2]), compacted=True) == 1


def test_batches_are_compared_if_both_replicas_have_them_completely() -> None:
    def batched(broker: str, *batches: tuple[int, int, int], start: int = 0) -> FinalLog:
        ids = range(start + 1, batches[-1][1] + 2)
        return replace(log(*ids, broker=broker, start=start), batches=[StoredBatch(*each) for each in batches])

    whole = batched("1", (0, 1, 77), (2, 3, 88))
    assert differences(whole, batched("2", (0, 1, 77), (2, 3, 88))) == 0
    assert differences(whole, batched("2", (0, 1, 77), (2, 3, 89))) == 1
    assert differences(whole, batched("2", (0, 1, 77), (2, 2, 88), (3, 3, 99))) == 1
    cut_off = batched("2", (0, 1, 55), (2, 3, 88), start=1)
    assert differences(whole, cut_off) == 0, "a log start in the middle of one"
    assert differences(whole, replace(cut_off, ids=[7, 3, 4])) == 1, "whose records are compared"


# --- I16 -------------------------------------------------------------------------------------------------------------


def epochs_wrong(*logs: FinalLog, compacted: bool = False) -> int:
    return len(found("I16", [], *logs, compacted=COMPACTED if compacted else frozenset()))


def test_epochs_never_decrease_along_a_log() -> None:
    assert epochs_wrong(log(1, 2, 3, epochs=[1, 1, 2])) == 0
    assert epochs_wrong(log(1, 2, 3, epochs=[1, 2, 1])) == 1


@pytest.mark.parametrize(
    ("checkpoint", "wrong"),
    [
        pytest.param([(1, 0), (2, 2)], 0, id="as the log"),
        pytest.param([(1, 0), (2, 2), (3, 3)], 0, id="an epoch that has no record yet"),
        pytest.param([(0, 0), (1, 0), (2, 2)], 0, id="an epoch that never had one"),
        pytest.param([(1, 0), (2, 1)], 1, id="too early"),
        pytest.param([(1, 0)], 1, id="one is missing"),
        pytest.param([(1, 0), (3, 2)], 1, id="another epoch"),
        pytest.param([(1, 1), (2, 2)], 1, id="too late"),
        pytest.param([], 1, id="none"),
        pytest.param([(1, 0), (2, 2), (3, 4)], 1, id="of what was cut"),
    ],
)
def test_checkpoint_has_the_start_offsets_of_the_log_epochs(checkpoint: list[tuple[int, int]], wrong: int) -> None:
    assert epochs_wrong(log(1, 2, 3, epochs=[1, 1, 2], checkpoint=checkpoint)) == wrong


def test_replica_with_records_has_an_epoch_checkpoint() -> None:
    assert epochs_wrong(log(1, broker="1")) == 1
    assert epochs_wrong(log(broker="1")) == 0
    assert epochs_wrong(log(1)) == 0, "who reads it as a client is entries no such thing"


def test_checkpoint_may_begin_below_the_log_start() -> None:
    trimmed = log(3, 4, start=2, epochs=[1, 2], checkpoint=[(0, 0), (1, 1), (2, 3)])
    assert epochs_wrong(trimmed) == 0
    assert epochs_wrong(replace(trimmed, epochs=[EpochStart(0, 0), EpochStart(2, 3)])) == 1


def test_compaction_may_remove_the_first_records_of_an_epoch() -> None:
    without_the_first = log(2, 3, offsets=[1, 5], epochs=[1, 2], checkpoint=[(1, 0), (2, 4)])
    assert epochs_wrong(without_the_first, compacted=True) == 0
    assert epochs_wrong(without_the_first) == 1
    wrong = replace(without_the_first, epochs=[EpochStart(1, 0), EpochStart(2, 1)])
    assert epochs_wrong(wrong, compacted=True) == 1
