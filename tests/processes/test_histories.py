"""The histories that real brokers write survive the brokers, and record the events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.processes.harness.cluster import running_cluster
from tests.processes.harness.waiting import wait_for
from tidelog import Producer, TopicPartition
from tidelog.history import broker_events
from tidelog.history.broker_events import Broker
from tidelog.history.history_files import read_history
from verify.checker.checker import Checker
from verify.checker.findings import Finding

pytestmark = pytest.mark.slow

E = TypeVar("E", broker_events.BecomeLeader, broker_events.Ack, broker_events.Append)


def test_broker_histories_show_a_failed_leader_and_its_successor(tmp_path: Path) -> None:
    histories = tmp_path / "histories"
    with running_cluster(tmp_path, histories=histories) as cluster:
        (tp,) = cluster.create_topic("t")
        victim = cluster.leader(tp)
        with Producer(cluster.bootstrap_servers) as producer:
            before = [producer.send("t", b"x", partition=0).result(30).offset for _ in range(50)][-1]
            cluster.kill(victim)
            after = [producer.send("t", b"y", partition=0).result(30).offset for _ in range(50)][-1]
        cluster.restart(victim)
        cluster.wait_in_sync(tp)
        wait_for("the first leader to follow", lambda: end_of(histories / f"{victim}.jsonl", tp) == after + 1)
    reported = {broker_id: list(read_history(histories / f"{broker_id}.jsonl")) for broker_id in (1, 2, 3)}

    lives = [each for each in reported[victim] if isinstance(each, Broker)]
    assert [each.name for each in lives] == [str(victim)] * 2
    first_life = reported[victim][: reported[victim].index(lives[1])]
    shown = [each.value for each in first_life if isinstance(each, broker_events.HighWatermark) and each.tp == tp]
    assert shown[-1] == before + 1, "what was acknowledged when it was killed is on file"

    leads = sorted(
        (each.epoch, who) for who, all_ in reported.items() for each in of(all_, broker_events.BecomeLeader, tp)
    )
    assert all(one < other for (one, _), (other, _) in pairwise(leads)), "each epoch has one leader"
    (_, first), (epoch, successor), *_ = leads
    assert first == victim != successor
    acknowledged = [each for each in of(reported[successor], broker_events.Ack, tp) if each.epoch == epoch]
    assert acknowledged[-1].last == after
    for ack in acknowledged:
        assert len(ack.isr) >= ack.min_isr == 2
        assert min(ack.leos[member] for member in (*ack.isr, *ack.pending)) > ack.last

    assert violations(reported.values()) == []
    everything = [event for all_ in reported.values() for event in all_]
    assert len({each.epoch for each in everything if isinstance(each, broker_events.Controller)}) >= 1
    assert len({each.epoch for each in everything if isinstance(each, broker_events.Registered)}) == 4
    assert {each.api for each in everything if isinstance(each, broker_events.Processed)} >= {"FETCH", "LEADER_AND_ISR"}
    assert not [each for each in everything if isinstance(each, (broker_events.Traceback, broker_events.Error))]


def violations(histories: Iterable[Iterable[Any]]) -> Sequence[Finding]:
    """Return the violations that the checker finds."""
    checker, events_ = Checker(), []
    for history in histories:
        for each in history:
            if isinstance(each, Broker):
                source = checker.begin(each)
            else:
                events_.append((each.t, source, each))
    for _, source, event in sorted(events_, key=itemgetter(0)):
        checker.take(source, event)
    return checker.new_findings()


def of(history: Iterable[object], kind: type[E], tp: TopicPartition) -> list[E]:
    return [each for each in history if isinstance(each, kind) and each.tp == tp]


def end_of(path: Path, tp: TopicPartition) -> int:
    """Up to where the log is known to be filled."""
    return of(read_history(path), broker_events.Append, tp)[-1].last + 1
