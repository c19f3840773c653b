"""Test that a simulation finds a production function that was replaced by a wrong one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from node.groups import offset_commits
from node.groups.offset_commits import OffsetCommits
from node.replication.delayed_produce import PendingAppend
from node.replication.leader_appends import LeaderAppends
from node.replication.replica import Replica
from storage.log.batch_validation import ValidatedBatch
from tidelog.errors import CoordinatorNotAvailableError, NotEnoughReplicasError
from tidelog.groups.offsets_topic import Commit, partition_for
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import OffsetCommitRequest, OffsetFetchPartition
from verify.simulation.cluster.cluster import OFFSETS_TPS
from verify.simulation.cluster.health_check import GROUPS
from verify.simulation.fault_kinds import Fault, FaultKind
from verify.simulation.run import Outcome
from verify.simulation.scenario import Scenario
from verify.simulation.seeds import simulate


def simulated(
    *faults: Fault, seconds: float = 4, clients: tuple[str, ...] = ("producer", "tail"), promises: str = "plain"
) -> Outcome:
    return simulate(Scenario(7, seconds, clients, faults, promises=promises))


def test_leader_that_refuses_records_is_found_despite_full_isr(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader_or_raise = LeaderAppends.leader_or_raise

    def refuse(appends: LeaderAppends, replica: Replica, acks: int) -> Replica:
        if replica.topic_partition == ("orders", 1):
            raise NotEnoughReplicasError("for good")
        return leader_or_raise(appends, replica, acks)

    monkeypatch.setattr(LeaderAppends, "leader_or_raise", refuse)
    (wrong,) = simulated().wrong
    assert wrong.startswith("not-serving: ") and "orders-1: not acknowledged" in wrong


def test_broker_with_a_clock_hours_behind_serves() -> None:
    outcome = simulated(*(Fault(at_ms, FaultKind.CLOCK, ("1", "2", "3"), 0, -3_600_000) for at_ms in (3_000, 3_100)))
    assert not outcome.wrong


def test_health_check_uses_each_offsets_partition() -> None:
    assert {partition_for(group, len(OFFSETS_TPS)) for group in GROUPS} == {tp.partition for tp in OFFSETS_TPS}


def test_coordinator_that_refuses_commits_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(commits: OffsetCommits, request: OffsetCommitRequest, done: object) -> None:
        raise CoordinatorNotAvailableError("for good")

    monkeypatch.setattr(OffsetCommits, "commit", refuse)
    (wrong,) = simulated().wrong
    assert wrong.startswith("not-serving: ") and "no coordinator answered" in wrong


def test_coordinator_that_returns_no_offset_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(tp: TopicPartition, commit: Commit | None) -> OffsetFetchPartition:
        return fetched(tp, None)

    fetched = offset_commits._fetched
    monkeypatch.setattr(offset_commits, "_fetched", forget)
    (wrong,) = simulated().wrong
    assert wrong.startswith("not-serving: ") and "returned None" in wrong


def test_all_invariants_are_checked_until_an_unclean_election(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    append = LeaderAppends.append

    def lie(appends: LeaderAppends, replica: Replica, batch: ValidatedBatch) -> PendingAppend:
        appended = append(appends, replica, batch)
        offset = appended.response.base_offset + 1
        return appended._replace(response=replace(appended.response, base_offset=offset))

    monkeypatch.setattr(LeaderAppends, "append", lie)
    assert "I2" in simulated(promises="unclean").kinds


def test_compaction_under_load_is_no_violation() -> None:
    outcome = simulate(Scenario(7, 20, ("producer", "producer", "tail"), (), compacted=True))
    assert not outcome.wrong
    assert outcome.fault_counts.bitten["compaction"] == 1
