"""Test how histories become the data of a report."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog.history.broker_events import (
    BecomeFollower,
    BecomeLeader,
    Broker,
    Controller,
    HighWatermark,
    IsrChange,
    Registered,
    Resources,
    Session,
)
from tidelog.history.events import Event, Header
from tidelog.history.operations import Client, ProduceInvoked, ProduceOk, ProduceUnknown, Read
from tidelog.model import TopicPartition
from verify.chaos.injections import Injection, Outcome
from verify.chaos.report.availability import Gap, meanwhile, unavailable
from verify.chaos.report.facts import Level, RunFacts, Span
from verify.chaos.report.observing import Observer

TP = TopicPartition("orders", 0)
SECOND = 1_000_000_000


def observed(*histories: Sequence[Header | Event]) -> RunFacts:
    observer = Observer()
    for history in histories:
        observer.take(history)
    return observer.facts()


def test_leader_leads_until_the_next_epoch_begins() -> None:
    first = [Broker("1"), BecomeLeader(10, TP, 3, 0, 0)]
    second = [Broker("2"), BecomeLeader(50, TP, 4, 0, 0), Session(90, "connected")]
    assert observed(second, first).partitions[TP].leaders == [Span(10, 50, "3", 1), Span(50, 90, "4", 2)]


def test_leader_that_resigns_early_leaves_a_gap() -> None:
    first = [Broker("1"), BecomeLeader(10, TP, 3, 0, 0), BecomeFollower(30, TP, 4, -1)]
    second = [Broker("2"), BecomeLeader(50, TP, 5, 0, 0), Session(90, "connected")]
    assert observed(first, second).partitions[TP].leaders == [Span(10, 30, "3", 1), Span(50, 90, "5", 2)]


def test_replaced_leader_is_not_drawn_beside_its_successor() -> None:
    zombie = [Broker("1"), BecomeLeader(10, TP, 3, 0, 0), BecomeFollower(80, TP, 4, 2)]
    successor = [Broker("2"), BecomeLeader(50, TP, 4, 0, 0), Session(90, "connected")]
    assert observed(zombie, successor).partitions[TP].leaders[0] == Span(10, 50, "3", 1)


def test_drawn_isr_is_the_confirmed_one() -> None:
    history = [
        Broker("1"),
        IsrChange(10, TP, (1, 2, 3), 0, 1, True),
        IsrChange(20, TP, (1, 2), 0, 1, False),
        IsrChange(30, TP, (1, 3), 0, 2, True),
        Session(40, "connected"),
    ]
    assert observed(history).partitions[TP].isr == [Level(10, 30, 3, "{1, 2, 3}"), Level(30, 40, 2, "{1, 3}")]


def test_drawn_high_watermark_is_that_of_the_leader() -> None:
    leader = [Broker("1"), BecomeLeader(10, TP, 3, 5, 5), HighWatermark(20, TP, 3, 8)]
    follower = [Broker("2"), HighWatermark(25, TP, 3, 6)]
    drawn = observed(leader, follower).partitions[TP].high_watermarks
    assert list(zip(*drawn, strict=True)) == [(10, 5), (20, 8)]


def test_latency_is_from_call_to_answer_and_reads_count_records() -> None:
    client = [
        Client("c"),
        ProduceInvoked(TP, [1, 2], [0, 0], [10, 12]),
        ProduceOk(TP, [1], [0], [15]),
        ProduceUnknown(TP, [2], ["NetworkError"], [30]),
        Read(TP, 1, 1, 31, 33, [0, 1, 2], [1, 2, 3], [0, 0, 0]),
    ]
    facts = observed(client)
    assert list(zip(*facts.latencies, strict=True)) == [(15, 5)]
    assert list(facts.unfinished) == [30]
    assert list(zip(*facts.records_read, strict=True)) == [(33, 3)]
    assert (facts.begin, facts.end) == (10, 33)


def test_sessions_and_controller_terms_are_spans_of_their_broker() -> None:
    first = [Broker("1", 1), Session(5, "connected"), Session(6, "connected"), Controller(10, 1), Session(50, "lost")]
    second = [Broker("2", 2), Session(5, "connected"), Controller(60, 2), Session(80, "lost")]
    facts = observed(first, second)
    assert facts.controllers == [Span(10, 60, "1", 1), Span(60, 80, "2", 2)]
    assert facts.sessions[1] == [Span(1, 5, "starting", 1), Span(5, 50, "connected", 1), Span(50, 80, "lost", 1)]


def test_registered_broker_has_a_session_without_session_events() -> None:
    facts = observed([Broker("1", 1), Registered(5, 77), Session(50, "suspended"), Session(80, "lost")])
    assert [span.what for span in facts.sessions[1]] == ["starting", "connected", "suspended", "lost"]


def test_resource_counts_do_not_start_a_broker() -> None:
    own = [Broker("1", 1), Registered(5, 77), Session(80, "lost")]
    counted = [Broker("1", 40), Resources(41, "baseline", 3)]
    assert [span.what for span in observed(own, counted).sessions[1]] == ["starting", "connected", "lost"]


def test_partition_without_acknowledgements_is_unavailable() -> None:
    other = TopicPartition("orders", 1)
    steady = [ProduceOk(other, [n], [n], [n * SECOND // 10]) for n in range(100)]
    halting = [ProduceOk(TP, [n], [n], [n * SECOND // 10]) for n in range(100) if not 20 < n < 50 and n < 90]
    facts = observed([Client("c"), *steady, *halting])
    # the half second after the last acknowledgement of all does not count
    assert [(gap.tp, gap.length_s) for gap in unavailable(facts)] == [(TP, 3.0)]


def test_gap_has_the_faults_of_its_time() -> None:
    before = Injection("F1", "leader killed", Outcome.BIT, "", t_inject=0, t_heal=5)
    during = Injection("F7", "leader paused", Outcome.BIT, "", t_inject=12, t_heal=15)
    lasting = Injection("F8", "leader paused", Outcome.BIT, "", t_inject=1)
    skipped = Injection("F9", "follower paused", Outcome.SKIPPED, "needs root")
    assert meanwhile(Gap(TP, 10, 20), [before, during, lasting, skipped]) == [during, lasting]


def test_empty_histories_draw_nothing() -> None:
    facts = observed()
    assert (facts.partitions, facts.controllers, facts.begin, facts.end) == ({}, [], 0, 1)
