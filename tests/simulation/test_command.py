"""Test `scripts/simulate` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verify.simulation.__main__ import main
from verify.simulation.scenario import Scenario
from verify.simulation.scenario_generator import DENSE
from verify.simulation.summary import JUDGED

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
COMMAND = [sys.executable, "-P", "-m", "verify.simulation"]


def typed(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=200, check=False)


def test_invariant_without_observations_is_no_success() -> None:
    done = typed("--seeds", "2", "--seconds", "3", "--jobs", "1")
    assert done.returncode == 3
    assert "2 of 2 seeds, 0 failed" in done.stdout
    assert "without an observation: " in done.stdout
    assert all(f"  {key} " in done.stdout for key in JUDGED)
    assert not done.stderr


def test_dense_seed_gives_another_scenario() -> None:
    usual, dense = (typed("--seed", "3", "--seconds", "6", *more) for more in ((), ("--dense",)))
    assert str(Scenario.of_seed(3, 6)) in usual.stdout
    assert str(Scenario.of_seed(3, 6, DENSE)) in dense.stdout


def test_json_output_has_faults_and_observations() -> None:
    done = typed("--seed", "3", "--seconds", "6", "--json")
    result = json.loads(done.stdout)
    assert result["seeds"] == 1 and result["failed"] == [] and result["simulated_seconds"] > 6
    assert result["observations"].keys() == set(JUDGED)
    assert set(result["without_data"]) == {key for key, count in result["observations"].items() if not count}
    assert all(each["bitten"] <= each["drawn"] for each in result["faults"].values())


@pytest.mark.parametrize(
    "arguments", [("--seeds", "-1"), ("--seconds", "0"), ("--story", "/nowhere"), ("--story", __file__)]
)
def test_wrong_arguments_are_refused_in_one_line(arguments: tuple[str, ...]) -> None:
    done = typed(*arguments)
    assert done.returncode == 2
    assert "error: " in done.stderr and "Traceback" not in done.stderr


def test_interrupt_during_generation_stops_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(*_: object) -> Scenario:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scenario, "of_seed", press)
    monkeypatch.setattr("sys.argv", ["scripts/simulate", "--seeds", "10000"])
    assert main() == 130


def test_interrupted_command_prints_its_results() -> None:
    process = subprocess.Popen(
        [*COMMAND, "--seeds", "500", "--seconds", "5", "--jobs", "1"],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Shells make background processes ignore Ctrl-C, and the tests may run in the background.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert " of 500 seeds" in line
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "observations" in output
    assert "Traceback" not in errors
