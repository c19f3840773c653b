"""Test `tidelog chaos check`, which checks a saved run again."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.checker.little_log import MS, Case, random_case
from tests.checker.mutations.records import lost_record
from tests.checker.written_run import write_run
from tidelog.cli.program import run
from verify.chaos.injections import FaultsFile, Injection, Outcome, read_faults
from verify.chaos.saved_run import judge_again

STORY = random_case(7)
BIT = Injection("F1", "leader killed", Outcome.BIT, "epoch 1 → 2", "SIGKILL to broker 2", t_inject=1000 * MS)
AGAIN = replace(BIT, outcome=Outcome.AGAIN, why="nothing in the cluster noticed it")


def kept(directory: Path, case: Case = STORY, *injections: Injection, rows: tuple[str, ...] = ("F1",)) -> Path:
    """Write the results of a run with these requested rows."""
    write_run(directory, case)
    faults, healed = FaultsFile(directory), case.ending.windows[0].healed
    for each in injections or (BIT,):
        faults.add(replace(each, t_heal=healed, t_whole=healed + MS, most_gap_ms=3_600_000, leaves_majority=False))
    (directory / "run.json").write_text(json.dumps({"scenario": "leader-kill", "rows": rows, "troubles": []}))
    return directory


def test_injections_survive_a_round_trip(tmp_path: Path) -> None:
    whole = Injection("F7", "zombie", Outcome.VOID, "why", "what", 1, 2, 3, 4, 5, 6.5, 7, False, True, "late")
    FaultsFile(tmp_path).add(whole)
    FaultsFile(tmp_path).add(BIT)
    FaultsFile(tmp_path).add(AGAIN)
    assert read_faults(tmp_path) == [whole, BIT, AGAIN]


def test_correct_run_passes_again_and_counts_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path)
    assert run(["chaos", "check", str(tmp_path)]) == 0
    message = capsys.readouterr().out
    assert ["F1", "leader", "killed", "1", "1", "0", "0", "0"] in [line.split() for line in message.splitlines()]
    assert "I22" in message and message.endswith("KEPT: every fault bit, and every promise was kept\n")


def test_fault_that_bit_at_its_repeat_is_shown_and_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, STORY, AGAIN, BIT)
    assert run(["chaos", "check", str(tmp_path)]) == 0
    message = capsys.readouterr().out
    heads, row = message.splitlines()[:2]
    assert heads.split() == ["ROW", "FAULT", "INJECTED", "BIT", "AGAIN", "VOID", "SKIPPED"]
    assert row.split() == ["F1", "leader", "killed", "2", "1", "1", "0", "0"]
    assert "\ninjected again, because the cluster did not notice an earlier attempt: F1\nKEPT: " in message


def test_fault_that_bit_at_its_repeat_is_counted_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, STORY, AGAIN, BIT)
    assert run(["chaos", "check", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["rows"]
    assert (row["injected"], row["bit"], row["again"], row["void"]) == (2, 1, 1, 0)
    assert (found["repeated"], found["shortcomings"]) == (["F1"], [])


def test_fault_that_never_bit_is_not_proved_by_its_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept(tmp_path, STORY, AGAIN, AGAIN, replace(AGAIN, outcome=Outcome.VOID))
    assert run(["chaos", "check", str(tmp_path)]) == 3
    message = capsys.readouterr().out
    assert "\nvoid, so these faults prove nothing: F1\n" in message
    assert "\ninjected again, because the cluster did not notice an earlier attempt: F1\nNOT PROVED: " in message


def test_violation_during_a_repeated_attempt_breaks_the_run(tmp_path: Path) -> None:
    kept(tmp_path, STORY, replace(AGAIN, broke="broker 2 took 12 s to stop"), BIT)
    result = judge_again(tmp_path)
    assert result.status == 1
    assert result.verdict is not None and [row.key for row in result.verdict.violated] == ["I19"]


def test_violation_is_found_again_from_the_run_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = kept(tmp_path / "results", lost_record.spoil(STORY, random.Random(1)))
    assert run(["chaos", "check", str(tmp_path), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert "I1" in found["verdict"]["violated"]
    assert (found["status"], found["results"]) == (1, str(results))
    assert json.loads((results / "verdict.json").read_text()) == found["verdict"]


def test_second_check_does_not_prove_an_unreached_row(tmp_path: Path) -> None:
    result = judge_again(kept(tmp_path, rows=("F1", "F2")))
    assert result.status == 3
    assert result.shortcomings == ["not reached: F2"]


@pytest.mark.parametrize(
    "about", [None, {"scenario": "all", "seed": 3, "seconds": 600.0}, {"rows": [], "troubles": []}]
)
def test_run_without_its_requested_rows_proves_nothing(about: object, tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "run.json").unlink() if about is None else (tmp_path / "run.json").write_text(json.dumps(about))
    result = judge_again(tmp_path)
    assert result.status == 3
    assert result.shortcomings == ["the requested rows are unknown"]


def test_second_check_derives_the_windows_from_the_faults(tmp_path: Path) -> None:
    kept(tmp_path, STORY, replace(BIT, leaves_majority=True))
    (tmp_path / "windows.jsonl").unlink()
    assert judge_again(tmp_path).status == 0
    assert len((tmp_path / "windows.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "histories").rename(run / "elsewhere"), "contains no histories"),
        (lambda run: (run / "faults.jsonl").write_text("{}\n"), "faults.jsonl:1: row is missing"),
        (lambda run: (run / "run.json").write_text("[]"), "run.json:1: the file is not a JSON object"),
        (lambda run: (run / "histories" / "1.jsonl").write_text("nonsense\n"), "1.jsonl:1: "),
    ],
)
def test_invalid_run_directory_is_refused_in_one_line(
    spoil: object, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert callable(spoil)
    spoil(kept(tmp_path))
    assert run(["chaos", "check", str(tmp_path)]) == 1
    shown = capsys.readouterr()
    assert message in shown.err and len(shown.err.splitlines()) == 1 and shown.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check"], "Missing argument 'DIR'"),
        (["check", "/nowhere/at/all"], "does not exist"),
        (["--seed", "3", "check", "."], "--seed is for a run"),
        (["check", ".", "--findings", "-1"], "-1 is not in the range"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["chaos", *arguments]) == 2
    assert message in capsys.readouterr().err
