"""Test what brokers may and may not do, event by event (I11, I12, I14, I20, I21)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checker.judging import verdict_on_all
from tidelog.history.broker_events import (
    Ack,
    Append,
    BecomeFollower,
    BecomeLeader,
    Broker,
    Controller,
    HighWatermark,
    IsrChange,
    Processed,
    Registered,
    Reject,
    Resources,
)
from tidelog.history.events import Event
from tidelog.model import TopicPartition
from verify.checker.checker import Checker
from verify.checker.invariant import Ending
from verify.checker.verdict import Row

TP = TopicPartition("t", 0)
ACK = Ack(9, TP, 4, 2, [1, 2], [3], {1: 5, 2: 5, 3: 5}, [1, 2, 3], 2)


def row(key: str, *entries: tuple[int, Event]) -> Row:
    """Return the violations of one invariant after these events of brokers."""
    return verdict_on_all(((str(broker), event) for broker, event in entries), key).rows[0]


def violations(key: str, *entries: tuple[int, Event]) -> int:
    return row(key, *entries).violations


def cas(epoch: int, version: int, ok: bool = True) -> IsrChange:
    return IsrChange(1, TP, [1, 2], epoch, version, ok)


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([(1, BecomeLeader(1, TP, 5, 0, 0)), (1, BecomeLeader(2, TP, 4, 0, 0))], id="leads an older epoch"),
        pytest.param([(1, BecomeFollower(1, TP, 5, 2)), (1, BecomeLeader(2, TP, 4, 0, 0))], id="leads what is over"),
        pytest.param([(1, Controller(1, 7)), (1, Controller(2, 7))], id="controls in one epoch twice"),
        pytest.param([(1, Controller(1, 7)), (1, Controller(2, 6))], id="controls in an older epoch"),
        pytest.param([(1, cas(2, 9)), (1, cas(2, 8))], id="an older version of its own"),
        pytest.param([(1, cas(2, 9)), (1, cas(2, 9))], id="one version twice"),
        pytest.param([(1, cas(2, 0))], id="no version"),
        pytest.param([(1, cas(3, 8)), (2, cas(2, 9))], id="a deposed leader behind its successor"),
        pytest.param([(1, cas(2, 9)), (2, cas(3, 8))], id="the same, entries the other way round"),
    ],
)
def test_epochs_and_versions_increase(entries: list[tuple[int, Event]]) -> None:
    assert violations("I12", *entries) == 1


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param([(1, BecomeLeader(1, TP, 5, 0, 0)), (1, BecomeLeader(2, TP, 5, 0, 0))], id="entries again"),
        pytest.param([(1, BecomeLeader(1, TP, 5, 0, 0)), (2, BecomeFollower(2, TP, 4, 1))], id="who learns it late"),
        pytest.param([(1, cas(2, 9)), (2, cas(3, 9, ok=False)), (2, cas(1, 0, ok=False))], id="refused changes"),
        pytest.param([(2, cas(3, 9)), (1, cas(2, 8))], id="a change that is entries late"),
        pytest.param([(1, Controller(1, 7)), (2, Controller(2, 8)), (1, Controller(3, 9))], id="controllers in turn"),
    ],
)
def test_permitted_histories_have_no_violation(entries: list[tuple[int, Event]]) -> None:
    assert violations("I12", *entries) == 0


def test_restarted_broker_leads_in_another_epoch() -> None:
    checker = Checker()
    for epoch in (5, 5, 6):
        checker.take(checker.begin(Broker("1")), BecomeLeader(epoch, TP, epoch, 0, 0))
    (twice,) = checker.conclude(Ending()).only(["I12"]).findings
    assert twice.says == "broker 1 led in epoch 5 in two of its processes"
    assert len(twice.operations) == 2


def test_refused_isr_change_is_not_an_observation() -> None:
    assert row("I12", (1, cas(2, 9, ok=False))).observations == 0


def test_high_watermark_below_that_of_a_new_leader_is_a_violation() -> None:
    assert violations("I11", (1, BecomeLeader(1, TP, 5, 9, 8)), (1, HighWatermark(2, TP, 5, 7))) == 1
    assert violations("I11", (1, HighWatermark(1, TP, 5, 8)), (1, HighWatermark(2, TP, 5, 7))) == 1


def test_high_watermark_may_be_lower_in_another_epoch_or_replica() -> None:
    entries = [HighWatermark(1, TP, 5, 8), HighWatermark(2, TP, 5, 8), HighWatermark(3, TP, 6, 2)]
    assert violations("I11", *((1, each) for each in entries), (2, HighWatermark(4, TP, 5, 1))) == 0


def test_high_watermark_may_be_lower_after_a_restart() -> None:
    checker = Checker()
    for value in (8, 2):
        checker.take(checker.begin(Broker("1")), HighWatermark(value, TP, 5, value))
    assert not checker.conclude(Ending()).violated


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"isr": [1], "pending": []}, id="an isr below min.insync.replicas"),
        pytest.param({"leos": {1: 5, 2: 4, 3: 5}}, id="a member of the ISR lacks the last record"),
        pytest.param({"leos": {1: 5, 2: 5, 3: 4}}, id="a pending member lacks it"),
        pytest.param({"leos": {1: 4, 2: 5, 3: 5}}, id="the leader lacks it"),
        pytest.param({"isr": [2, 3], "pending": []}, id="a leader outside the isr"),
        pytest.param({"replicas": [1, 2]}, id="a pending member that is no replica"),
        pytest.param({"isr": [1, 4], "leos": {1: 5, 4: 5, 3: 5}}, id="a member that is no replica"),
        pytest.param({"leos": {1: 5, 2: 5}}, id="a pending member that has entries no log end"),
    ],
)
def test_acknowledged_records_are_on_enough_replicas(wrong: dict[str, object]) -> None:
    assert violations("I14", (1, ACK)) == 0
    assert violations("I14", (1, replace(ACK, **wrong))) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("entries", "wrong"),
    [
        pytest.param([(1, BecomeLeader(6, TP, 2, 5, 5))], 0, id="committed when the epoch began"),
        pytest.param([(1, BecomeLeader(6, TP, 2, 5, 4))], 1, id="not yet committed then"),
        pytest.param([(1, BecomeLeader(6, TP, 1, 5, 5))], 1, id="the same in another epoch"),
        pytest.param([(2, BecomeLeader(6, TP, 2, 5, 5))], 1, id="the same of another broker"),
        pytest.param([(1, BecomeLeader(6, TP, 2, 4, 4)), (3, Registered(7, 88))], 0, id="registered since"),
        pytest.param([(1, BecomeLeader(6, TP, 2, 4, 4)), (3, Registered(10, 88))], 0, id="entries of it later"),
        pytest.param([(1, BecomeLeader(6, TP, 2, 4, 4)), (3, Registered(5, 88))], 1, id="registered before"),
        pytest.param([(1, BecomeLeader(6, TP, 2, 4, 4)), (2, Registered(7, 88))], 1, id="another registered"),
    ],
)
@pytest.mark.parametrize("at_the_end", [False, True])
def test_isr_member_with_unknown_log_end_had_the_record_before(
    entries: list[tuple[int, Event]], wrong: int, at_the_end: bool
) -> None:
    ack = (1, replace(ACK, leos={1: 5, 2: 5}))
    last = [each for each in entries if at_the_end and each[0] != 1]
    assert violations("I14", *(each for each in entries if each not in last), ack, *last) == wrong


def test_restarted_broker_may_die_before_it_records_its_registration() -> None:
    for begun, wrong in ((7, 0), (5, 1)):
        checker = Checker()
        leader, _ = checker.begin(Broker("1", 1)), checker.begin(Broker("3", 1))
        checker.take(leader, BecomeLeader(6, TP, 2, 4, 4))
        checker.take(leader, replace(ACK, leos={1: 5, 2: 5}))
        checker.begin(Broker("3", begun))
        assert len(checker.conclude(Ending()).only(["I14"]).findings) == wrong


def test_no_broker_acts_in_an_old_epoch() -> None:
    follows = BecomeFollower(1, TP, 5, 2)
    assert violations("I20", (1, follows), (1, Append(2, TP, 0, 3, 4, "leader"))) == 1
    assert violations("I20", (1, follows), (1, HighWatermark(2, TP, 4, 3))) == 1
    leads = BecomeLeader(1, TP, 5, 0, 0)
    assert violations("I20", (1, leads), (1, Append(2, TP, 0, 3, 4, "leader"))) == 1


def test_follower_may_append_batches_of_earlier_epochs() -> None:
    assert violations("I20", (1, BecomeFollower(1, TP, 5, 2)), (1, Append(2, TP, 0, 3, 4, "follower"))) == 0
    assert violations("I20", (1, BecomeFollower(1, TP, 5, 2)), (2, Append(2, TP, 0, 3, 4, "leader"))) == 0


def test_request_is_stale_after_its_deadline_or_below_the_known_epoch() -> None:
    assert violations("I20", (1, Processed(10, "Fetch", 9))) == 1
    assert violations("I20", (1, Processed(10, "Fetch", 10))) == 0
    assert violations("I20", (1, Processed(10, "Fetch", 0))) == 0
    assert violations("I20", (1, Processed(10, "Fetch", epoch=3, known=4))) == 1
    assert violations("I20", (1, Processed(10, "Fetch", epoch=4, known=4))) == 0
    assert violations("I20", (1, Processed(10, "Fetch", epoch=-1, known=4))) == 0
    assert violations("I20", (1, Reject(10, "Fetch", "late"))) == 0


def test_resource_counted_only_once_is_not_an_observation() -> None:
    before, after = Resources(1, "baseline", fds=5), Resources(2, "healed", fds=5)
    assert row("I21", (1, before), (2, after)).observations == 0
    assert row("I21", (1, before), (1, Resources(2, "healed", threads=5))).observations == 0
    assert row("I21", (1, before), (1, after), (2, before)).observations == 1


@pytest.mark.parametrize("what", ["fds", "threads", "rss", "purgatory", "tasks"])
def test_resources_return_to_their_level_within_a_tolerance(what: str) -> None:
    def held(before: int, after: int, phase: str = "healed") -> int:
        return violations(
            "I21", (1, Resources(1, "baseline", **{what: before})), (1, Resources(2, phase, **{what: after}))
        )

    much = 1 << 40
    assert held(much, much + much // 20) == 0
    assert held(much, much + much // 19) == 1
    assert held(much, much * 2, "elsewhere") == 0
    assert held(-1, much) == 0, "what was not counted before cannot be compared"
    few = {"fds": 8, "threads": 20, "rss": 16 << 20, "purgatory": 4, "tasks": 8}[what]
    assert held(0, few) == 0
    assert held(0, few + 1) == 1
