"""The planted bugs: patches that fit the tree, and a script that tells which of them the tests notice."""

from __future__ import annotations

from pathlib import Path

import pytest
from plantedbugs.__main__ import run
from plantedbugs.finders import FINDERS, Finder, Seeds, Simulator
from plantedbugs.mutant import PROJECT, SIMULATOR, SUITE, Mutant, all_mutants
from plantedbugs.trial import Trial, copy_tree

#: M1 to M12 of the list of faults, and those that earlier stories asked for.
ROWS = {f"M{number}" for number in range(1, 13)}
ASKED_FOR = {
    "index-floor-off-by-one",
    "bisection-over-times-that-fall",
    "equal-time-entry-skipped",
    "no-crc-on-recovery",
    "epoch-cache-not-truncated",
    "tombstone-dropped-early",
}


@pytest.mark.parametrize("mutant", all_mutants(), ids=lambda mutant: mutant.name)
def test_every_patch_fits_the_tree_and_names_tests_that_exist(mutant: Mutant) -> None:
    assert Trial(PROJECT).fits(mutant)
    assert all((PROJECT / test.partition("::")[0]).is_file() for test in mutant.tests)


def test_the_bugs_that_must_be_found_are_among_them() -> None:
    assert {mutant.name for mutant in all_mutants()} >= ASKED_FOR
    assert {mutant.row for mutant in all_mutants()} - {""} == ROWS


@pytest.fixture
def small_project(tmp_path: Path) -> Trial:
    (tmp_path / "sum.py").write_text("def total(a: int, b: int) -> int:\n    return a + b\n")
    (tmp_path / "test_sum.py").write_text("import sum\n\n\ndef test_sum() -> None:\n    assert sum.total(2, 2) == 4\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\npythonpath = .\n")
    return Trial(tmp_path)


def planted(tree: Path, old: str, new: str, more: str = "") -> Mutant:
    path = tree / "bug.patch"
    hunk = f"--- a/sum.py\n+++ b/sum.py\n@@ -1,2 +1,2 @@\n def total(a: int, b: int) -> int:\n-{old}\n+{new}\n"
    path.write_text(f"Bug: wrong sums\nRed: test_sum.py\n{more}\ndiff --git a/sum.py b/sum.py\n{hunk}")
    return Mutant.read(path)


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ("    return a + b", "    return a - b", 0, "found  test_sum.py::test_sum"),
        ("    return a + b", "    return a * b", 1, "NOT FOUND"),
        ("    return a / b", "    return a - b", 1, "DOES NOT FIT"),
    ],
    ids=["a bug that is noticed", "one that is not", "a patch that does not fit"],
)
def test_a_bug_passes_only_where_a_test_turns_red(
    small_project: Trial, capsys: pytest.CaptureFixture[str], old: str, new: str, status: int, said: str
) -> None:
    before = (small_project.tree / "sum.py").read_text()
    assert run(small_project, [planted(small_project.tree, old, new)], as_json=False) == status
    assert said in capsys.readouterr().out
    assert (small_project.tree / "sum.py").read_text() == before


def test_who_is_not_named_may_look_and_need_not_find(small_project: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FINDERS, SIMULATOR, Simulator("program", 2))
    (small_project.tree / "program.py").write_text(PROGRAM.format(found="False"))
    mutant = planted(small_project.tree, "    return a + b", "    return a - b")
    assert run(small_project, [mutant], [SUITE, SIMULATOR], try_all=True, as_json=False) == 0
    assert run(small_project, [mutant], [SIMULATOR], as_json=False) == 1, "nobody was asked who is named"


def test_tests_that_fail_without_a_bug_prove_nothing(small_project: Trial) -> None:
    (small_project.tree / "sum.py").write_text("def total(a: int, b: int) -> int:\n    return a - b\n")
    mutant = planted(small_project.tree, "    return a - b", "    return a * b + 1")
    assert run(small_project, [mutant], as_json=False) == 1


#: Finds wrong sums with its third seed only, or with each; `{found}` says which. With `--seeds` it is a simulator.
PROGRAM = """
import argparse, sum
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--numbers", type=int)
arguments = parser.parse_args()
for done, seed in enumerate(range(arguments.seed, arguments.seed + arguments.seeds), 1):
    if {found}:
        print("seed", seed, "fails: I1 2 and 2 are lost")
        raise SystemExit(1)
    print(done, "of", arguments.seeds, "seeds, 0 failed", end="\\r")
"""


@pytest.mark.parametrize("finder", [Simulator("program", 4), Seeds("program", most_runs=4)], ids=["simulator", "chaos"])
@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ("seed == 3 and sum.total(2, 2) != 4", 0, "3 runs  found"),
        ("seed == 3", 1, "RED WITHOUT IT"),
        ("False", 1, "4 runs  NOT FOUND"),
    ],
    ids=["a seed that finds it", "a seed that is red in any case", "no seed"],
)
def test_a_bug_is_found_within_so_many_seeds_of_which_the_one_is_quiet_without_it(
    small_project: Trial,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    finder: Finder,
    found: str,
    status: int,
    said: str,
) -> None:
    monkeypatch.setitem(FINDERS, SIMULATOR, finder)
    (small_project.tree / "program.py").write_text(PROGRAM.format(found=found))
    mutant = planted(small_project.tree, "    return a + b", "    return a - b", more="Simulator: --numbers 2\n")
    assert run(small_project, [mutant], [SIMULATOR], as_json=False) == status
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("head", ["Red: x\n", "Bug: x\n", "Bug: x\nRed: y\nSimulater: z\n"])
def test_a_patch_says_what_it_breaks_and_who_notices_and_nothing_that_nobody_reads(tmp_path: Path, head: str) -> None:
    (path := tmp_path / "bug.patch").write_text(f"{head}\ndiff --git a/x b/x\n")
    with pytest.raises(ValueError, match=str(path)):
        Mutant.read(path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tests_find_bugs_that_are_planted_in_a_copy_of_this_tree(tmp_path: Path) -> None:
    copy_tree(tmp_path)
    few = [mutant for mutant in all_mutants() if mutant.name in {"equal-time-entry-skipped", "torn-tail-kept"}]
    assert len(few) == 2
    assert run(Trial(tmp_path), few, as_json=False) == 0
