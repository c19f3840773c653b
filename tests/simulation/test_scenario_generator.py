"""Test that a thousand generated scenarios contain every kind of fault often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from verify.simulation.cluster.cluster import SESSION_TIMEOUT_MS
from verify.simulation.fault_kinds import COORDINATOR, COORDINATORS_FOLLOWER, IT, Fault, FaultKind, Moment
from verify.simulation.scenario import Scenario
from verify.simulation.scenario_generator import COMMITTER, DENSE, DURABLE, PLAIN, UNCLEAN

SCENARIOS = [Scenario.of_seed(seed) for seed in range(1_000)]


def faults() -> Iterator[Fault]:
    for scenario in SCENARIOS:
        yield from scenario.faults


def test_each_kind_of_fault_is_generated_often() -> None:
    drawn = Counter(fault.kind for fault in faults())
    # Moves of logs need two log directories, which only the scenarios of test_log_dir_moves.py have.
    assert {kind: drawn[kind] for kind in FaultKind if drawn[kind] < 100} == {FaultKind.MOVE_DIR: 0}


def test_generated_faults_wait_for_each_event() -> None:
    drawn = Counter(fault.upon for fault in faults() if IT in fault.whom)
    assert {moment: drawn[moment] for moment in Moment if drawn[moment] < 100} == {}


def test_generated_faults_hit_coordinators() -> None:
    drawn = Counter(fault.kind for fault in faults() if COORDINATOR in fault.whom)
    assert all(
        drawn[kind] >= 10
        for kind in (
            FaultKind.KILL,
            FaultKind.STOP,
            FaultKind.HOLD,
            FaultKind.POWER,
            FaultKind.EXPIRE,
            FaultKind.ISOLATE,
        )
    )


def test_committers_bring_a_replaced_coordinator_with_a_held_follower() -> None:
    for scenario in SCENARIOS:
        held = [fault for fault in scenario.faults if COORDINATORS_FOLLOWER in fault.whom]
        assert bool(held) == (COMMITTER in scenario.clients)
        for fault in held:
            deposed = [
                each for each in scenario.faults if each.kind is FaultKind.EXPIRE and each.whom == (COORDINATOR,)
            ]
            assert any(fault.at_ms <= each.at_ms < fault.at_ms + fault.for_ms for each in deposed)


def test_topic_is_deleted_while_a_replica_has_no_session() -> None:
    for scenario in SCENARIOS:
        for deletion in (fault for fault in scenario.faults if fault.kind is FaultKind.DELETE):
            away = [each for each in scenario.faults if each.kind in (FaultKind.HOLD, FaultKind.ZOOKEEPER_CUT)]
            expired_ms = [each.at_ms + SESSION_TIMEOUT_MS for each in away if each.at_ms + each.for_ms > deletion.at_ms]
            assert any(each <= deletion.at_ms for each in expired_ms)


def test_dense_scenarios_have_more_sequences_of_faults() -> None:
    dense = [fault for seed in range(200) for fault in Scenario.of_seed(seed, density=DENSE).faults]
    usual = [fault for scenario in SCENARIOS[:200] for fault in scenario.faults]
    assert len(dense) > 2 * len(usual)
    upon = [sum(1 for fault in each if fault.upon) / len(each) for each in (dense, usual)]
    assert upon[0] > 1.5 * upon[1]


def test_topics_have_only_known_guarantees() -> None:
    drawn = Counter(scenario.promises for scenario in SCENARIOS)
    assert drawn[PLAIN] > drawn[DURABLE] > drawn[UNCLEAN] > 50


def test_only_scenarios_with_compaction_have_the_field() -> None:
    compacted = [scenario for scenario in SCENARIOS if scenario.compacted]
    assert 100 <= len(compacted) <= 200
    assert all(("compacted" in scenario.to_json()) == scenario.compacted for scenario in SCENARIOS)


def test_some_scenarios_have_bursts_of_records() -> None:
    assert 50 <= sum("burst" in scenario.clients for scenario in SCENARIOS) <= 150


def test_generated_faults_hit_existing_clients_and_brokers() -> None:
    for scenario in SCENARIOS:
        for fault in scenario.faults:
            for name in fault.whom:
                if name.isdigit():
                    assert 1 <= int(name) <= scenario.brokers
                if name.startswith("client-"):
                    assert 1 <= int(name.removeprefix("client-")) <= len(scenario.clients)


def test_scenario_survives_a_json_round_trip() -> None:
    for scenario in SCENARIOS:
        assert Scenario.from_json(scenario.to_json()) == scenario


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"faults": [{"at_ms": 1, "kind": "flood"}]}', '{"faults": 7}'])
def test_invalid_scenario_is_refused_with_a_message(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        Scenario.from_json(text)
