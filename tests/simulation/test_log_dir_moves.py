"""Replicas move between the log directories of simulated brokers, among all other faults."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from storage.moves import log_move, move_rules
from verify.simulation.fault_kinds import Fault, FaultKind
from verify.simulation.scenario import Scenario
from verify.simulation.seeds import simulate

SEEDS = range(3)
OF_DISKS = (FaultKind.DISK_WRITE, FaultKind.DISK_SYNC, FaultKind.DISK_FULL)


def scenario_of(seed: int, seconds: float) -> Scenario:
    """Return the usual scenario of this seed, with a move every half second and two log directories in each broker.

    Faults of disks are left out: a broker with one failed directory of two runs on, so that no restart would heal it.
    """
    usual, rng = Scenario.of_seed(seed, seconds), Random(seed)
    moves = [
        Fault(at_ms, FaultKind.MOVE_DIR, (str(rng.randint(1, usual.brokers)),))
        for at_ms in range(2_000, round(seconds * 1000), 500)
    ]
    kept = [fault for fault in usual.faults if fault.kind not in OF_DISKS]
    faults = sorted((*kept, *moves), key=lambda fault: fault.at_ms)
    return replace(usual, faults=tuple(faults), two_log_dirs=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken_by_moves_of_logs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The logs are small, so that moves with the usual sizes would have few steps.
    monkeypatch.setattr(move_rules, "TAIL_BYTES", 300)
    monkeypatch.setattr(log_move, "READ_BYTES", 2_000)
    outcome = simulate(scenario_of(seed, 20))
    assert not outcome.wrong, outcome.wrong
