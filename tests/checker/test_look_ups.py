"""Test the rules of look-ups by time: possible answers pass, and impossible ones are found."""

from __future__ import annotations

import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.history.broker_events import Broker
from tidelog.history.operations import Client, LookUpOk, ProduceInvoked, ProduceOk, TrimOk
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.inputs.logs import FinalLog
from verify.checker.invariant import Ending
from verify.checker.look_ups import Fault, LookUp, StoredRecord, Trim, Verdict, judge

#: Offset, timestamp, sent, acknowledged, superseded: timestamps go up and down, 2 and 4 are equal, 3 has a successor.
LOG = [
    StoredRecord(0, 100, 0, 1, leader_epoch=0),
    StoredRecord(1, 300, 2, 3, leader_epoch=0),
    StoredRecord(2, 200, 4, 5, leader_epoch=0),
    StoredRecord(3, 500, 6, 7, superseded_at=10, leader_epoch=1),
    StoredRecord(4, 200, 8, 9, leader_epoch=1),
    StoredRecord(5, 500, 10, 11, leader_epoch=1),
]
TRIMS = [Trim(1, 20, 22), Trim(2, 30)]


Found = tuple[int, int | None, int | None]


def verdict(target: int, asked_at: float, answered_at: float, found: Found | None) -> Verdict:
    return judge(LOG, TRIMS, [LookUp(target, asked_at, answered_at, found)])


@pytest.mark.parametrize(
    ("target", "asked_at", "answered_at", "found"),
    [
        pytest.param(100, 1.5, 2, (0, 100, 0), id="the first"),
        pytest.param(150, 5, 6, (1, 300, 0), id="an offset before a closer time"),
        pytest.param(300, 2.5, 3, None, id="nothing: not acknowledged yet"),
        pytest.param(300, 2.5, 3, (1, 300, 0), id="not acknowledged yet and there"),
        pytest.param(600, 50, 51, None, id="nothing: after all"),
        pytest.param(500, 11.5, 12, (3, 500, 1), id="superseded, and compaction has not been"),
        pytest.param(500, 11.5, 12, (5, 500, None), id="superseded, and compaction has been"),
        pytest.param(150, 5, 6, (1, None, 0), id="an offset without its timestamp"),
        pytest.param(100, 20, 21, (0, 100, 0), id="a trim is under way, and has not been"),
        pytest.param(100, 20, 21, (1, 300, 0), id="a trim is under way, and has been"),
        pytest.param(100, 40, 41, (1, 300, 0), id="a trim without an answer has not been"),
        pytest.param(100, 40, 41, (2, 200, 0), id="a trim without an answer has been"),
    ],
)
def test_possible_answers_of_the_log_are_right(
    target: int, asked_at: float, answered_at: float, found: Found | None
) -> None:
    judged = verdict(target, asked_at, answered_at, found)
    assert judged.wrong == []
    assert (judged.found, judged.nothing) == ((1, 0) if found else (0, 1))


@pytest.mark.parametrize(
    ("target", "asked_at", "answered_at", "found", "fault"),
    [
        pytest.param(100, 1.5, 2, None, Fault.NOTHING_FOUND, id="nothing for what was acknowledged"),
        pytest.param(300, 3.5, 4, None, Fault.NOTHING_FOUND, id="nothing: the answer of an older log"),
        pytest.param(150, 5, 6, (2, 200, 0), Fault.TOO_LATE, id="the closest time instead of the first offset"),
        pytest.param(200, 50, 51, (4, 200, 1), Fault.TOO_LATE, id="a later one of equal times"),
        pytest.param(500, 8, 9, (5, 500, 1), Fault.NOT_SENT_YET, id="one that was not sent yet"),
        pytest.param(250, 50, 51, (2, 200, 0), Fault.TOO_OLD, id="one too early by one"),
        pytest.param(600, 50, 51, (6, 600, 1), Fault.NO_RECORD, id="behind the end"),
        pytest.param(150, 5, 6, (1, 150, 0), Fault.OTHER_TIMESTAMP, id="the target instead of the timestamp"),
        pytest.param(500, 8, 9, (3, 500, 0), Fault.OTHER_EPOCH, id="the epoch of an older leader"),
        pytest.param(100, 22, 23, (0, 100, 0), Fault.TRIMMED, id="one that was trimmed before"),
        pytest.param(250, 50, 51, (2, None, 0), Fault.TOO_OLD, id="one too early without its timestamp"),
        pytest.param(150, 5, 6, (2, None, 0), Fault.TOO_LATE, id="one too late without its timestamp"),
        pytest.param(500, 8, 9, (3, None, 0), Fault.OTHER_EPOCH, id="an older epoch without a timestamp"),
        pytest.param(100, 15, 16, (1, 300, 0), Fault.TOO_LATE, id="as if it were trimmed already"),
        pytest.param(500, 8, 9, (5, 500, 1), Fault.NOT_SENT_YET, id="as if it were superseded already"),
    ],
)
def test_impossible_answers_of_the_log_are_found(
    target: int, asked_at: float, answered_at: float, found: Found | None, fault: Fault
) -> None:
    judged = verdict(target, asked_at, answered_at, found)
    assert [each.fault for each in judged.wrong] == [fault]
    assert (judged.found, judged.nothing) == (0, 0)
    assert str(target) in str(judged.wrong[0]) and fault.value in str(judged.wrong[0])


def test_record_before_an_acknowledged_one_exists_without_its_own_ack() -> None:
    records = [StoredRecord(0, 900, 0, inf), StoredRecord(1, 100, 0, 5)]
    assert judge(records, [], [LookUp(900, 4, 6, None)]).nothing == 1
    assert judge(records, [], [LookUp(900, 6, 7, None)]).faults == {Fault.NOTHING_FOUND: 1}
    assert judge(records, [], [LookUp(100, 4, 6, (1, 100, None))]).faults == {Fault.TOO_LATE: 1}


def test_answer_is_forced_if_no_other_answer_would_be_right() -> None:
    asked = [LookUp(500, 8, 9, (3, 500, 1)), LookUp(500, 12, 13, (3, 500, 1)), LookUp(500, 12, 13, (5, 500, 1))]
    judged = judge(LOG, TRIMS, asked)
    assert (judged.found, judged.forced) == (3, 2)


def test_trimmed_records_that_no_reader_saw_are_unknown() -> None:
    asked = [LookUp(100, 25, 26, (0, 150, 0))]
    assert [each.fault for each in judge(LOG[1:], TRIMS, asked).wrong] == [Fault.NO_RECORD]
    assert judge(LOG[1:], TRIMS, asked, all_known_from=1).wrong == []


# --- against an implementation that searches everything -------------------------------------------------------------

_moment = st.integers(0, 30)
_stamp = st.integers(0, 8)
_records = st.lists(st.tuples(_stamp, _moment, st.integers(0, 9), st.none() | _moment), max_size=12)
_trims = st.lists(st.tuples(st.integers(0, 12), _moment, st.integers(0, 9)), max_size=3)
_found = st.none() | st.tuples(st.integers(0, 12), _stamp, st.none())
_look_ups = st.lists(st.tuples(_stamp, _moment, st.integers(0, 9), _found), max_size=12)


def slow_judge(records: list[StoredRecord], trims: list[Trim], asked: LookUp) -> bool:
    """Return whether the answer is right by the definition."""

    def lasts(record: StoredRecord) -> bool:
        trimmed = any(trim.offset > record.offset and trim.asked_at <= asked.answered_at for trim in trims)
        return not trimmed and record.superseded_at > asked.answered_at

    qualified = [each for each in records if each.timestamp >= asked.target and lasts(each)]
    if asked.found is None:
        end = max((each.offset + 1 for each in records if each.acknowledged_at < asked.asked_at), default=0)
        return all(each.offset >= end for each in qualified)
    offset, timestamp, _ = asked.found
    return (
        any(
            (each.offset, each.timestamp) == (offset, timestamp) and each.sent_at <= asked.answered_at
            for each in records
        )
        and timestamp >= asked.target
        and not any(trim.offset > offset and trim.answered_at <= asked.asked_at for trim in trims)
        and all(each.offset >= offset for each in qualified)
    )


@settings(max_examples=400)
@given(_records, _trims, _look_ups)
def test_checker_agrees_with_the_definition(
    stored: list[tuple[int, int, int, int | None]],
    trimmed: list[tuple[int, int, int]],
    asked: list[tuple[int, int, int, tuple[int, int, None] | None]],
) -> None:
    records = [
        StoredRecord(offset, stamp, sent, sent + took, inf if gone is None else gone)
        for offset, (stamp, sent, took, gone) in enumerate(stored)
    ]
    trims = [Trim(offset, at, at + took) for offset, at, took in trimmed]
    look_ups = [LookUp(target, at, at + took, found) for target, at, took, found in asked]
    wrong = [each for each in look_ups if not slow_judge(records, trims, each)]
    judged = judge(records, trims, look_ups)
    assert sorted(map(repr, wrong)) == sorted(repr(each.look_up) for each in judged.wrong)
    assert judged.found + judged.nothing + len(wrong) == len(look_ups)


# --- planted in a long history -------------------------------------------------------------------------------------


def history(seed: int) -> tuple[list[StoredRecord], list[Trim], list[LookUp]]:
    """Return the answers of a correct log: a record per time unit, acknowledged one later, with repeated keys and
    trims.
    """
    rng = random.Random(seed)
    size, keys = 400, [rng.randrange(150) for _ in range(400)]
    stamps = [1000 + number // 3 + rng.randrange(-40, 40) for number in range(size)]
    next_of = {
        number: later for number in range(size) for later in range(size - 1, number, -1) if keys[later] == keys[number]
    }
    records = [
        StoredRecord(number, stamps[number], number, number + 1, next_of.get(number, inf), leader_epoch=number // 100)
        for number in range(size)
    ]
    trims = [Trim(moment // 3, moment, moment + 2) for moment in range(50, size, 70)]
    look_ups = []
    for _ in range(500):
        moment, target = rng.randrange(2, size), 1000 + rng.randrange(-40, size // 3 + 40)
        start = max((trim.offset for trim in trims if trim.answered_at <= moment), default=0)
        compacted = rng.random() < 0.5
        there = [r for r in records[start:moment] if not (compacted and r.superseded_at <= moment)]
        first = next((r for r in there if r.timestamp >= target), None)
        found = None if first is None else (first.offset, first.timestamp, first.leader_epoch)
        look_ups.append(LookUp(target, moment + 0.5, moment + 0.6, found))
    return records, trims, look_ups


@pytest.mark.parametrize("seed", range(3))
def test_correct_log_passes(seed: int) -> None:
    records, trims, look_ups = history(seed)
    judged = judge(records, trims, look_ups)
    assert judged.wrong == []
    assert judged.forced > 200 and judged.nothing > 20


def off_by_one(records: list[StoredRecord], found: tuple[int, int, int | None]) -> tuple[int, int, int | None]:
    beside = records[min(found[0] + 1, len(records) - 1)]
    return beside.offset, beside.timestamp, beside.leader_epoch


@pytest.mark.parametrize("planted", ["off by one", "nothing"])
def test_one_wrong_answer_among_many_right_ones_is_found(planted: str) -> None:
    records, trims, look_ups = history(11)
    found_out = tried = 0
    for slot, asked in enumerate(look_ups):
        record = records[asked.found[0]] if asked.found else None
        if record is None or record.superseded_at < inf or record.offset < max(trim.offset for trim in trims):
            continue  # a record that may be gone anyway proves nothing
        assert asked.found is not None
        tried += 1
        wrong = off_by_one(records, asked.found) if planted == "off by one" else None
        judged = judge(records, trims, [*look_ups[:slot], asked._replace(found=wrong), *look_ups[slot + 1 :]])
        found_out += len(judged.wrong) == 1
    assert tried > 20 and found_out == tried


# --- over a history --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("begins_anew_at", [None, 5, 25], ids=["never", "before the trim", "after it"])
def test_trimmed_record_may_return_after_a_broker_restart(begins_anew_at: int | None) -> None:
    tp, checker = TopicPartition("t", 0), Checker()
    checker.begin(Broker("1"))
    if begins_anew_at is not None:
        checker.begin(Broker("1", begins_anew_at))
    client = checker.begin(Client("client"))
    for event in (
        ProduceInvoked(tp, [7, 8], [100, 200], [1, 1]),
        ProduceOk(tp, [7, 8], [0, 1], [2, 2]),
        TrimOk(tp, 1, 20, 22),
        LookUpOk(tp, 50, 0, 30, 31, 100),
    ):
        checker.take(client, event)
    ending = Ending({tp: [FinalLog("read", tp, 1, 2, 2, None, [1], [8], [200], [0])]})
    findings = checker.conclude(ending).only(["I18"]).findings
    assert [each.says for each in findings] == ([] if begins_anew_at == 25 else [Fault.TRIMMED.value])
