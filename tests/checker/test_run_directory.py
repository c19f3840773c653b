"""Test that a run's directory gives the verdict of its events, and the output of the command."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.checker.little_log import random_case
from tests.checker.mutations import MUTATIONS
from tests.checker.written_run import write_run
from tidelog.history.history_files import history_path
from verify.checker.__main__ import check
from verify.checker.inputs.run_directory import RunDirectory, write_compacted
from verify.checker.verdict import Verdict

MUTATION = {each.name: each.spoil for each in MUTATIONS}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(check, list(arguments))


def sums(verdict: Verdict) -> list[tuple[str, int, int]]:
    return [(row.key, row.observations, row.violations) for row in verdict.rows]


@pytest.mark.parametrize("seed", range(5))
def test_files_and_events_in_any_order_give_the_same_verdict(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    case = rng.choice(MUTATIONS).spoil(random_case(seed), rng) if seed else random_case(seed)
    write_run(tmp_path, case)
    judged = RunDirectory(tmp_path).check()
    assert sums(judged) == sums(case.verdict())


def test_correct_run_exits_with_0_and_prints_its_observations(tmp_path: Path) -> None:
    write_run(tmp_path, random_case(1))
    result = run(str(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.output.count("passed") == 23


def test_violation_exits_with_1_and_is_printed_with_its_evidence(tmp_path: Path) -> None:
    write_run(tmp_path, MUTATION["lost_record"](random_case(1), random.Random(1)))
    result = run(str(tmp_path), "--findings", "1")
    assert result.exit_code == 1
    assert "was acknowledged at offset" in result.output
    assert "acknowledged to producer-" in result.output
    found = json.loads(run(str(tmp_path), "--json").output)
    assert "I1" in found["violated"]
    assert found["findings"][0]["operations"]
    assert run(str(tmp_path), "--only", "I12, I7").exit_code == 0


def test_invariant_without_data_has_not_passed(tmp_path: Path) -> None:
    write_run(tmp_path, random_case(1))
    (tmp_path / "windows.jsonl").unlink()
    result = run(str(tmp_path))
    assert result.exit_code == 3
    assert result.output.count("no data") == 1


@pytest.mark.parametrize("broker", ["*", "3", "[123]"], ids=["all", "one", "those of all replicas"])
def test_run_without_a_final_log_has_not_passed(tmp_path: Path, broker: str) -> None:
    case = random_case(1)
    write_run(tmp_path, case)
    tp = max(case.ending.logs, key=lambda tp: case.ending.logs[tp][0].leo)
    paths = list((tmp_path / "final").glob(f"{broker}/{tp}.jsonl"))
    assert paths
    for path in paths:
        path.unlink()
    result = run(str(tmp_path))
    assert result.exit_code == 3, result.output
    assert f"unknown, because final logs are missing: {tp}" in result.output
    assert json.loads(run(str(tmp_path), "--json").output)["unread"] == [list(tp)]


def test_invalid_files_exit_with_2_and_are_named(tmp_path: Path) -> None:
    result = run(str(tmp_path))
    assert (result.exit_code, "no histories" in result.output) == (2, True)
    write_run(tmp_path, random_case(1))
    with history_path(tmp_path, "1").open("a") as file:
        file.write("nonsense\n")
    result = run(str(tmp_path))
    assert result.exit_code == 2
    assert "1.jsonl:" in result.output
    assert run(str(tmp_path), "--only", "I99").exit_code == 2


def test_gaps_of_a_compacted_topic_are_no_violation(tmp_path: Path) -> None:
    write_run(tmp_path, MUTATION["gap_in_what_is_read"](random_case(1), random.Random(1)))
    assert "I7" in [row.key for row in RunDirectory(tmp_path).check().violated]
    write_compacted(tmp_path, ["latest", "t"])
    assert RunDirectory(tmp_path).check().violated == []
