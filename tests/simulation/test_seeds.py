"""Test whole clusters on virtual time: some seeds pass, and each seed always gives the same trace."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.checker.judging import verdict_on_all
from tidelog.history.broker_events import HighWatermark, Truncate
from tidelog.model import TopicPartition
from verify.simulation.run import JUDGED, LINEAGE
from verify.simulation.scenario import Scenario
from verify.simulation.seeds import simulate, simulate_all

ROOT = Path(__file__).parents[2]


def test_seed_gives_the_same_trace_in_another_process(
    capsys: pytest.CaptureFixture[str],
) -> None:
    scenario = Scenario.of_seed(3, seconds=12)
    first: list[str] = []
    outcome = simulate(scenario, first.append)
    assert len(first) > 500
    assert simulate(scenario).digest == outcome.digest, "whether anybody looks makes no difference"
    command = [sys.executable, "-m", "verify.simulation", "--seed", "3", "--seconds", "12", "--trace"]
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT)}
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert "\n".join(first) in again.stdout
    assert outcome.digest in again.stdout


@pytest.mark.parametrize("read", [1, 4])
def test_closed_simulation_leaves_no_process_and_no_thread(read: int) -> None:
    threads = threading.active_count()
    outcomes = simulate_all([Scenario.of_seed(seed, 2) for seed in range(1, 5)], jobs=2)
    for _ in range(read):
        next(outcomes)
    assert multiprocessing.active_children()
    outcomes.close()
    assert not multiprocessing.active_children()
    assert threading.active_count() == threads


def test_two_seeds_give_two_traces() -> None:
    assert simulate(Scenario.of_seed(1, 5)).digest != simulate(Scenario.of_seed(2, 5)).digest


@pytest.mark.parametrize("seed", [11, 18])
def test_two_seeds_pass(seed: int) -> None:
    outcome = simulate(Scenario.of_seed(seed, seconds=25))
    assert not outcome.wrong
    observed = dict(outcome.rows)
    assert all(observed[key] for key in ("I1", "I2", "I8", "I9", "I12", "I14", "I15", "I18"))


def test_follower_may_truncate_in_two_steps_after_unclean_election() -> None:
    tp = TopicPartition("t", 0)
    entries = [
        ("2", event)
        for t, end in enumerate((29, 14))
        for event in (Truncate(t, tp, end, "the leader's epochs"), HighWatermark(t, tp, 6, end))
    ]
    assert [row.key for row in verdict_on_all(entries, *JUDGED).violated] == ["I11"]
    assert not verdict_on_all(entries, *LINEAGE).violated
