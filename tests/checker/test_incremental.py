"""Test the incremental checker: each event is evaluated once. Test other tolerances too."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.checker.judging import verdict_on
from tests.checker.little_log import random_case
from tidelog.history.broker_events import BecomeLeader, Broker, HighWatermark
from tidelog.history.group_operations import Assigned, CommitInvoked, CommitOk, CommittedOk
from tidelog.history.operations import Client, ProduceInvoked, ProduceOk, Read
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.inputs.logs import READ, FinalLog
from verify.checker.invariant import Ending
from verify.checker.verdict import Status

TP = TopicPartition("t", 0)


def entries(count: int) -> float:
    """Return the CPU seconds for so many produced and read records, with a check after each event."""
    checker = Checker()
    producer, reader = checker.begin(Client("p")), checker.begin(Client("r"))
    began = time.process_time()
    for number in range(count):
        t = number * 10
        checker.take(producer, ProduceInvoked(TP, [number], [t], [t]))
        checker.new_findings()
        checker.take(producer, ProduceOk(TP, [number], [number], [t + 5]))
        checker.new_findings()
        checker.take(reader, Read(TP, 1, number + 1, t + 6, t + 8, [number], [number], [t]))
        assert not checker.new_findings()
    return time.process_time() - began


def test_checks_after_every_event_take_no_quadratic_time() -> None:
    entries(500)
    small, large = min(entries(1000) for _ in range(3)), min(entries(8000) for _ in range(2))
    assert large < 8 * small * 2.5


def test_columns_and_single_records_give_the_same_verdict() -> None:
    case = random_case(11, 60)
    checker = Checker()
    sources = {name: checker.begin(header) for name, header in case.headers.items()}
    for name, event in case.entries:
        if isinstance(event, (ProduceInvoked, ProduceOk)):
            columns = [key for key in ("ids", "ts", "t", "offsets", "epochs") if getattr(event, key, None) is not None]
            for at in range(len(event.ids)):
                one = {key: [getattr(event, key)[at]] for key in columns}
                checker.take(sources[name], replace(event, **one))
        else:
            checker.take(sources[name], event)
    assert checker.conclude(case.ending).rows == case.verdict().rows


def test_record_acknowledged_with_acks_1_may_be_lost_and_replaced() -> None:
    checker = Checker()
    careless, careful = checker.begin(Client("a", acks=1, idempotent=False)), checker.begin(Client("b"))
    checker.take(careless, ProduceInvoked(TP, [1], [5], [10]))
    checker.take(careless, ProduceOk(TP, [1], [0], [20]))
    checker.take(careful, ProduceInvoked(TP, [1 << 40], [5], [30]))
    checker.take(careful, ProduceOk(TP, [1 << 40], [0], [40]))
    log = FinalLog(READ, TP, 0, 1, 1, None, range(1), [1 << 40], [5], [1])
    assert checker.conclude(Ending({TP: [log]})).violated == []


def test_producer_without_idempotence_may_duplicate_a_record() -> None:
    for idempotent in (False, True):
        checker = Checker()
        client = checker.begin(Client("a", idempotent=idempotent))
        checker.take(client, ProduceInvoked(TP, [1], [5], [10]))
        checker.take(client, ProduceOk(TP, [1], [1], [20]))
        log = FinalLog(READ, TP, 0, 2, 2, None, range(2), [1, 1], [5, 5], [1, 1])
        violated = [row.key for row in checker.conclude(Ending({TP: [log]})).violated]
        assert violated == (["I3"] if idempotent else [])


def test_produce_calls_of_a_killed_client_are_unknown_not_hanging() -> None:
    checker = Checker()
    first = checker.begin(Client("a", request_timeout_ms=100))
    checker.take(first, ProduceInvoked(TP, [1], [5], [10]))
    second = checker.begin(Client("a", request_timeout_ms=100))
    checker.take(second, ProduceInvoked(TP, [2], [5], [10**12]))
    checker.take(second, ProduceOk(TP, [2], [0], [10**12 + 1]))
    honesty = checker.conclude(Ending()).only(["I22"]).rows[0]
    assert honesty.status is Status.PASSED


def test_commit_of_a_killed_committer_may_be_read() -> None:
    for invoked in (False, True):
        checker = Checker()
        client = checker.begin(Client("a"))
        if invoked:
            checker.take(client, CommitInvoked("g", TP, 7, 10))
        checker.take(client, CommittedOk("g", TP, 7, 20, 30))
        assert [row.key for row in checker.conclude(Ending()).violated] == ([] if invoked else ["I17"])


@pytest.mark.parametrize(
    ("leo", "read", "wrong"),
    [
        (8, 6, []),  # the last commit (seeds 730 and 854 of the simulator at bc1faec)
        (8, 7, []),  # the commit in flight
        (8, 5, ["I17"]),  # overwritten
        (8, 8, ["I17"]),  # not committed since
        (20, 6, ["I17"]),  # the log lost nothing, so no committer had to go back
    ],
)
def test_committed_offset_decreases_only_if_the_log_lost_records(leo: int, read: int, wrong: list[str]) -> None:
    checker = Checker()
    client, broker = checker.begin(Client("a")), checker.begin(Broker("1"))
    checker.take(broker, BecomeLeader(1, TP, 1, 0, 0))
    for t, offset in ((10, 8), (20, 20)):
        checker.take(client, CommitInvoked("g", TP, offset, t))
        checker.take(broker, HighWatermark(t + 1, TP, 1, offset))
        checker.take(client, CommitOk("g", TP, offset, t, t + 2))
    checker.take(broker, BecomeLeader(30, TP, 2, leo, min(leo, 8)))
    for t, offset in ((40, 5), (50, 6)):
        checker.take(client, CommitInvoked("g", TP, offset, t))
        checker.take(client, CommitOk("g", TP, offset, t, t + 2))
    checker.take(client, CommitInvoked("g", TP, 7, 55))
    checker.take(client, CommittedOk("g", TP, read, 60, 65))
    assert [each.invariant for each in checker.new_findings() if each.invariant == "I17"] == wrong


def test_register_without_a_lower_commit_must_not_decrease() -> None:
    checker = Checker()
    client, broker = checker.begin(Client("a")), checker.begin(Broker("1"))
    checker.take(broker, HighWatermark(5, TP, 1, 20))
    checker.take(broker, BecomeLeader(30, TP, 2, 0, 0))
    for t, offset in ((10, 8), (40, 9)):
        checker.take(client, CommitInvoked("g", TP, offset, t))
        checker.take(client, CommitOk("g", TP, offset, t, t + 2))
    checker.take(client, CommittedOk("g", TP, 8, 60, 65))
    assert "I17" in [each.invariant for each in checker.new_findings()]


@pytest.mark.parametrize(
    ("read", "idempotent", "observed"),
    [
        pytest.param(None, True, {"I2": 0, "I3": 3, "I6": 2}, id="no read"),
        pytest.param([0, 1], True, {"I2": 2, "I3": 3, "I6": 2}, id="two of three were read"),
        pytest.param([2, 1], True, {"I2": 2, "I3": 3, "I6": 2}, id="in no order"),
        pytest.param([0, 1], False, {"I2": 2, "I3": 0, "I6": 0}, id="of a producer that promises neither"),
    ],
)
def test_only_compared_records_are_observations(
    read: list[int] | None, idempotent: bool, observed: dict[str, int]
) -> None:
    checker = Checker()
    producer = checker.begin(Client("p", idempotent=idempotent))
    checker.take(producer, ProduceInvoked(TP, [0, 1, 2], [5, 5, 5], [1, 1, 1]))
    checker.take(producer, ProduceOk(TP, [0, 1, 2], [0, 1, 2], [2, 2, 2]))
    if read is not None:
        checker.take(checker.begin(Client("r")), Read(TP, 1, 3, 3, 4, read, read, [5, 5]))
    rows = checker.conclude(Ending()).only(list(observed)).rows
    assert {row.key: row.observations for row in rows} == observed


def test_commit_without_a_fetch_is_not_an_observation() -> None:
    def observations(*entries: CommitOk | CommittedOk | Assigned) -> int:
        return verdict_on(entries, "I17").rows[0].observations

    commit, owns = CommitOk("g", TP, 5, 1, 2), Assigned("g", "m", 1, [TP], 1)
    assert observations(owns, commit) == 0
    assert observations(CommittedOk("g", TP, -1, 3, 4)) == 0, "no client had committed anything"
    assert observations(commit, CommittedOk("g", TP, -1, 1, 4)) == 0, "nor when it was asked for"
    assert observations(commit, CommittedOk("g", TP, 5, 1, 4), CommittedOk("g", TP, 5, 3, 4)) == 2


def test_empty_history_passes_no_invariant() -> None:
    checker = Checker()
    checker.begin(Broker("1"))
    verdict = checker.conclude(Ending())
    assert len(verdict.without_data) == 23
    assert verdict.exit_code == 3


@pytest.mark.parametrize(("compacted", "is_a_loss"), [(TP.topic, False), ("another topic", True)])
def test_gap_in_a_compacted_topic_is_no_loss_before_the_end_either(compacted: str, is_a_loss: bool) -> None:
    checker = Checker(frozenset({compacted}))
    reader = checker.begin(Client("r"))
    for number in (0, 2):
        checker.take(reader, Read(TP, 1, number + 1, number, number + 1, [number], [number], [0]))
    assert ("I7" in {each.invariant for each in checker.new_findings()}) == is_a_loss
