"""Whole clusters on virtual time: some seeds go well, and each goes the same way whenever it is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checker.judging import verdict_on_all
from tidelog.history.broker_events import HighWatermark, Truncate
from tidelog.model import TopicPartition
from verify.simulation.run import JUDGED, LINEAGE
from verify.simulation.scenario import Scenario
from verify.simulation.seeds import simulate

ROOT = Path(__file__).parents[2]


def test_a_seed_tells_the_same_trace_again_also_in_another_process_with_other_hashes(
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


def test_two_seeds_tell_two_stories() -> None:
    assert simulate(Scenario.of_seed(1, 5)).digest != simulate(Scenario.of_seed(2, 5)).digest


@pytest.mark.parametrize("seed", [11, 18])
def test_nothing_goes_wrong_in_two_seeds(seed: int) -> None:
    outcome = simulate(Scenario.of_seed(seed, seconds=25))
    assert not outcome.wrong
    observed = dict(outcome.rows)
    assert all(observed[key] for key in ("I1", "I2", "I8", "I9", "I12", "I14", "I15", "I18"))


def test_after_an_unclean_election_a_follower_may_go_back_to_where_it_agrees_in_two_steps() -> None:
    tp = TopicPartition("t", 0)
    told = [
        ("2", event)
        for t, end in enumerate((29, 14))
        for event in (Truncate(t, tp, end, "the leader's epochs"), HighWatermark(t, tp, 6, end))
    ]
    assert [row.key for row in verdict_on_all(told, *JUDGED).violated] == ["I11"]
    assert not verdict_on_all(told, *LINEAGE).violated
