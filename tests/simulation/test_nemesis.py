"""Test the faults of a simulated cluster: their times, victims and counts."""

from __future__ import annotations

import asyncio

import pytest

from cluster.replication.partition import Partition
from node.groups import shards
from verify.simulation.cluster.brokers import MachineEventRecorder
from verify.simulation.fault_kinds import (
    CONTROLLER,
    COORDINATOR,
    FOLLOWER,
    IN_SYNC,
    IT,
    LEADER,
    Fault,
    FaultKind,
    Moment,
)
from verify.simulation.run import JUDGED, Outcome
from verify.simulation.scenario import Scenario
from verify.simulation.seeds import simulate
from verify.simulation.summary import Summary


def simulated(
    *faults: Fault, seconds: float = 12, clients: tuple[str, ...] = ("producer",), promises: str = "plain"
) -> Outcome:
    return simulate(Scenario(7, seconds, clients, faults, promises=promises))


def bitten(outcome: Outcome) -> dict[str, int]:
    return {name: count for name, _, count in outcome.fault_counts.rows()}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(1_000, FaultKind.KILL, (LEADER,), 2_000),
        Fault(1_000, FaultKind.TORN, (LEADER,), 2_000, 50),
        Fault(1_000, FaultKind.TORN, (FOLLOWER,), 2_000, 0),
        Fault(1_000, FaultKind.ONE_WAY, (LEADER, FOLLOWER), 3_000),
        Fault(1_000, FaultKind.ISOLATE, (LEADER,), 3_000),
        Fault(1_000, FaultKind.CLIENT_DEAF, ("client-1", LEADER), 8_000),
        Fault(1_000, FaultKind.ZOOKEEPER_SLOW, (LEADER,), 3_000, 500),
        Fault(1_000, FaultKind.EXPIRE, (LEADER,)),
        Fault(1_000, FaultKind.CLOCK_RATE, (LEADER,), 3_000, -50),
        Fault(1_000, FaultKind.DISK_WRITE, (LEADER,), 3_000),
        Fault(1_000, FaultKind.DISK_FULL, (FOLLOWER,), 3_000),
        Fault(1_000, FaultKind.REASSIGN, (), 0, 2),
        Fault(1_000, FaultKind.MOVE, (), 0, 2),
        Fault(1_000, FaultKind.ALTER),
        Fault(1_000, FaultKind.ADD),
        Fault(1_000, FaultKind.CREATE, (), 0, 3),
        Fault(1_000, FaultKind.POWER, (LEADER,), 2_000),
    ],
    ids=lambda fault: "-".join((fault.kind.value, *fault.whom)),
)
def test_fault_bites_and_no_record_is_lost(fault: Fault) -> None:
    outcome = simulated(fault)
    assert not outcome.wrong
    assert bitten(outcome)[fault.kind.value] == 1


def test_recreated_topic_is_not_mixed_up_in_histories() -> None:
    faults = (
        Fault(1_000, FaultKind.CREATE, (), 0, 3),
        Fault(4_000, FaultKind.DELETE),
        Fault(6_000, FaultKind.CREATE, (), 0, 2),
    )
    outcome = simulated(*faults)
    assert not outcome.wrong
    assert (bitten(outcome)["create-topic"], bitten(outcome)["delete-topic"]) == (2, 1)


def test_recovery_waits_for_the_reassignment_of_consumer_offsets() -> None:
    outcome = simulated(Fault(11_900, FaultKind.MOVE_OFFSETS, (), 0, 2), clients=("producer", "committer", "member"))
    assert not outcome.wrong
    assert bitten(outcome)["move-offsets"] == 1


def test_flipped_bit_in_a_closed_segment_bites_its_reader() -> None:
    producers = ("producer",) * 4
    outcome = simulated(Fault(30_000, FaultKind.FLIP, (LEADER,), 3_000), seconds=36, clients=producers)
    assert not outcome.wrong
    assert bitten(outcome)["bit-flip"] == 1


def test_next_coordinator_skips_strange_offset_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[str] = []
    monkeypatch.setattr(shards.log, "warning", lambda message, *about: warnings.append(message % about))
    faults = Fault(8_000, FaultKind.STRANGE), Fault(10_000, FaultKind.KILL, (COORDINATOR,), 6_000)
    outcome = simulated(*faults, seconds=30, clients=("producer", "committer", "member"))
    assert not outcome.wrong
    assert bitten(outcome)["strange-offsets"] == bitten(outcome)["hits the coordinator"] == 1
    assert any("records that cannot be decoded were skipped" in warning for warning in warnings)


def test_session_is_expired_only_if_its_broker_can_learn_of_it() -> None:
    cut = Fault(1_000, FaultKind.ZOOKEEPER_CUT, (LEADER,), 2_000)
    outcome = simulated(cut, Fault(1_500, FaultKind.EXPIRE, (LEADER,)), Fault(5_000, FaultKind.EXPIRE, (LEADER,)))
    assert not outcome.wrong
    assert dict((name, drawn) for name, drawn, _ in outcome.fault_counts.rows())["expire"] == 2
    assert bitten(outcome)["expire"] == 1


@pytest.mark.parametrize("kind", [FaultKind.ZOOKEEPER_CUT, FaultKind.HOLD, FaultKind.ZOOKEEPER_FREEZE])
def test_no_fault_hides_an_expired_session_from_its_broker(kind: FaultKind) -> None:
    outcome = simulated(Fault(5_000, FaultKind.EXPIRE, ("1",)), Fault(5_000, kind, ("1",), 3_000), seconds=8)
    assert not outcome.wrong
    assert (bitten(outcome)["expire"], bitten(outcome)[kind.value]) == (1, 0)
    later = simulated(Fault(5_000, FaultKind.EXPIRE, ("1",)), Fault(5_900, kind, ("1",), 3_000), seconds=9)
    assert (bitten(later)["expire"], bitten(later)[kind.value]) == (1, 1)


def test_fault_without_a_victim_has_not_bitten() -> None:
    outcome = simulated(
        Fault(1_000, FaultKind.KILL, ("9",), 100), Fault(1_000, FaultKind.KILL, (IT,), 100, upon=Moment.CUTS), seconds=3
    )
    assert bitten(outcome) == {"kill": 0, "upon cuts": 0}
    assert outcome.fault_counts.drawn["kill"] == 2


@pytest.mark.parametrize("kind", [FaultKind.ZOOKEEPER_CUT, FaultKind.ZOOKEEPER_SLOW, FaultKind.CLOCK_RATE])
def test_fault_healed_before_a_restart_has_not_bitten(kind: FaultKind) -> None:
    killed = Fault(1_000, FaultKind.KILL, ("1",), 5_000)
    unfelt, felt = Fault(2_000, kind, ("1",), 500, 50), Fault(2_000, kind, ("1",), 4_500, 50)
    assert bitten(simulated(killed, unfelt)) == {"kill": 1, kind.value: 0}
    assert bitten(simulated(killed, felt)) == {"kill": 1, kind.value: 1}


@pytest.mark.parametrize("kind", [FaultKind.ZOOKEEPER_STOP, FaultKind.ZOOKEEPER_FREEZE])
def test_zookeeper_fault_does_not_bite_without_running_brokers(kind: FaultKind) -> None:
    killed = Fault(1_000, FaultKind.KILL, ("1", "2", "3"), 5_000)
    assert bitten(simulated(killed, Fault(2_000, kind, (), 500))) == {"kill": 1, kind.value: 0}
    assert bitten(simulated(killed, Fault(2_000, kind, (), 4_500))) == {"kill": 1, kind.value: 1}


@pytest.mark.parametrize("kind", [FaultKind.SLOW, FaultKind.LOSS])
def test_network_conditions_bite_if_a_message_is_late(kind: FaultKind) -> None:
    mild, bad = Fault(1_000, kind, (), 2_000, 0), Fault(1_000, kind, (), 2_000, 30)
    assert bitten(simulated(mild)) == {kind.value: 0}
    assert bitten(simulated(bad)) == {kind.value: 1}


def test_dead_client_is_not_killed() -> None:
    outcome = simulated(*(Fault(at_ms, FaultKind.CLIENT_KILL, ("client-1", LEADER), 3_000) for at_ms in (1_000, 2_000)))
    assert not outcome.wrong
    assert outcome.fault_counts.drawn["client-kill"] == 2
    assert bitten(outcome)["client-kill"] == 1


@pytest.mark.parametrize("moment", [Moment.APPENDS, Moment.COPIES, Moment.ACKNOWLEDGES])
def test_fault_hits_the_broker_of_its_event(moment: Moment) -> None:
    outcome = simulated(Fault(1_000, FaultKind.HOLD, (IT,), 8_000, upon=moment, after_us=700))
    assert not outcome.wrong
    assert bitten(outcome) == {"hold": 1, f"upon {moment.value}": 1}


def test_isr_changes_and_elections_trigger_faults() -> None:
    outcome = simulated(
        Fault(1_000, FaultKind.KILL, (LEADER,), 1_000),
        Fault(1_000, FaultKind.EXPIRE, (IT,), upon=Moment.LEADS),
        Fault(1_000, FaultKind.ZOOKEEPER_BREAK, (IT,), upon=Moment.PROPOSES),
        Fault(1_000, FaultKind.HOLD, (CONTROLLER,), 1_000, upon=Moment.CHANGES_ISR),
        Fault(1_000, FaultKind.HOLD, (IT,), 500, upon=Moment.FOLLOWS),
        Fault(1_000, FaultKind.HOLD, (IT,), 500, upon=Moment.REGISTERS),
        seconds=15,
    )
    assert not outcome.wrong
    assert [count for name, count in bitten(outcome).items() if name.startswith("upon")] == [1] * 5


def test_flushed_topic_survives_power_loss_of_all_machines() -> None:
    dark = Fault(4_000, FaultKind.POWER, (IN_SYNC,), 1_000, upon=Moment.ACKNOWLEDGES)
    outcome = simulated(dark, promises="durable")
    assert not outcome.wrong
    assert bitten(outcome)["power"] == 1


def test_logs_agree_after_an_unclean_election() -> None:
    outcome = simulated(
        Fault(2_000, FaultKind.ISOLATE, (FOLLOWER,), 11_000),
        Fault(12_900, FaultKind.KILL, (IN_SYNC,), 8_000),
        seconds=25,
        promises="unclean",
    )
    assert not outcome.wrong
    assert bitten(outcome)["unclean election"] == 1


def test_resource_leak_is_found_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    become_leader = MachineEventRecorder.become_leader

    def leak(journal: MachineEventRecorder, partition: Partition, log_end_offset: int) -> None:
        loop = asyncio.get_running_loop()
        if partition.leader_epoch:  # after clients have produced
            leaked.extend(loop.create_task(asyncio.sleep(1e6)) for _ in range(20))
        become_leader(journal, partition, log_end_offset)

    leaked: list[asyncio.Task[None]] = []
    monkeypatch.setattr(MachineEventRecorder, "become_leader", leak)
    outcome = simulated(Fault(1_000, FaultKind.KILL, (LEADER,), 1_000), seconds=4)
    assert any(each.startswith("I21") and "tasks at the end of the run" in each for each in outcome.wrong)


def test_late_recovery_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "expansion_due", lambda partition, now_ms: None)
    monkeypatch.setattr(Partition, "_propose_expansion", lambda partition, replica, now_ms: None)
    outcome = simulated(Fault(1_000, FaultKind.KILL, (FOLLOWER,), 1_000), seconds=4)
    assert [each.split(" ", 1)[0] for each in outcome.wrong][:1] == ["not-whole:"]


def test_summary_passes_only_if_each_invariant_had_data() -> None:
    summary = Summary(1)
    outcome = simulated(seconds=5)
    summary.add(outcome)
    assert summary.status == 3 and "I17" in summary.without_data
    assert any(line.startswith("without an observation: ") for line in summary.lines())
    for key in summary.without_data:
        summary.observations[key] += 1
    assert summary.status == 0


def test_each_kind_of_fault_must_bite_within_a_thousand_seeds() -> None:
    summary = Summary(1_000)
    summary.observations.update(JUDGED)
    summary.fault_counts.draw(["kill"])
    summary.done = 999
    assert summary.status == 0
    summary.done = 1_000
    assert summary.status == 3
    summary.fault_counts.bite(["kill"])
    assert summary.status == 0


def test_faults_after_the_end_are_not_injected() -> None:
    late = Fault(12_100, FaultKind.KILL, (LEADER, FOLLOWER), 60_000)
    waits = Fault(11_900, FaultKind.KILL, (LEADER,), 60_000, upon=Moment.APPENDS, after_us=2_000_000)
    outcome = simulated(late, waits)
    assert not outcome.wrong
    assert not bitten(outcome).get(FaultKind.KILL.value, 0)
