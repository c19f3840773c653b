"""The planted bugs: the patches apply to the tree, and the script reports which of them the tests find."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from tests.processes.harness.waiting import is_gone, wait_for
from tools.mutants import __main__, detectors
from tools.mutants import worktree as trial
from tools.mutants.__main__ import main, run
from tools.mutants.detectors import DETECTORS, MOST_RUNS, Bounds, Detector, Finding, Seeds, Simulator
from tools.mutants.mutant import PROJECT, SIMULATOR, SUITE, Mutant, Recorded, all_mutants
from tools.mutants.output import Progress
from tools.mutants.subprocess_runner import Ended, run_python
from tools.mutants.table import PAGE, table
from tools.mutants.worktree import Worktree, copy_tree

#: M1 to M12 of the list of faults, and bugs that earlier issues required.
ROWS = {f"M{number}" for number in range(1, 13)}
ASKED_FOR = {
    "index-floor-off-by-one",
    "bisection-over-times-that-fall",
    "equal-time-entry-skipped",
    "no-crc-on-recovery",
    "epoch-cache-not-truncated",
    "tombstone-dropped-early",
}

#: The beginnings of the lines in a patch that name the changed file.
NAMES = re.compile(r"^(diff --git a/|--- a/|\+\+\+ b/)", re.MULTILINE)


@cache
def mutants() -> tuple[Mutant, ...]:
    """Return all planted bugs. One process reads the patches once."""
    return tuple(all_mutants())


def complaints(tree: Path, chosen: Sequence[Mutant], copies: Path) -> str:
    """Return git's errors for the patches that do not apply to the tree, or "" if each patch applies alone.

    One run of git checks all patches, because hundreds of runs take seconds. Each patch gets its own copy of the files
    that it changes, in the directory with the name of the patch.
    """
    for mutant in chosen:
        for file in filter(Path.is_file, (tree / name for name in mutant.files)):
            copy = copies / mutant.name / file.relative_to(tree)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
    diffs = [
        NAMES.sub(rf"\1{mutant.name}/", "".join(mutant.path.read_text().partition("\ndiff ")[1:])) for mutant in chosen
    ]
    command, environment = ["git", "apply", "--check", "--numstat"], {"GIT_CEILING_DIRECTORIES": str(copies.parent)}
    done = subprocess.run(
        command, input="".join(diffs), cwd=copies, env=os.environ | environment, capture_output=True, text=True
    )
    if done.returncode:
        return done.stderr or f"git apply ended with {done.returncode}"
    # Git skips a diff whose head it cannot read.
    read = {line.split("\t")[2].partition("/")[0] for line in done.stdout.splitlines()}
    return "".join(f"{mutant.path}: git finds no diff\n" for mutant in chosen if mutant.name not in read)


def test_every_patch_applies_and_names_tests_that_exist(tmp_path: Path) -> None:
    assert complaints(PROJECT, mutants(), tmp_path) == ""
    tests = [(mutant.name, test) for mutant in mutants() for test in mutant.tests]
    assert [(name, test) for name, test in tests if not (PROJECT / test.partition("::")[0]).is_file()] == []


def test_required_bugs_are_among_the_patches() -> None:
    assert {mutant.name for mutant in mutants()} >= ASKED_FOR
    assert {mutant.row for mutant in mutants()} - {""} == ROWS


def test_every_bug_was_found_within_100_runs_and_by_a_test() -> None:
    for mutant in mutants():
        named = [each for each in mutant.recorded.values() if each.said]
        assert SUITE in {each.finder for each in named}, mutant.name
        assert {each.finder for each in named} == set(mutant.found_by), mutant.name
        assert all(each.runs <= MOST_RUNS for each in named), mutant.name
        assert (PROJECT / mutant.recorded[SUITE].said.partition("::")[0]).is_file(), mutant.name


def test_page_of_planted_bugs_equals_the_table_of_the_patches() -> None:
    assert PAGE.read_text() == table(mutants()), "scripts/mutants --table > docs/decisions/planted-bugs.md"


def test_ten_bugs_at_least_are_not_on_the_list_of_faults() -> None:
    assert sum(not mutant.row for mutant in mutants()) >= 10


@pytest.fixture
def small_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Worktree:
    # The small project's tests need no plugin, and pytest takes most of its time to load the plugins.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "sum.py").write_text("def total(a: int, b: int) -> int:\n    return a + b\n")
    (tmp_path / "test_sum.py").write_text("import sum\n\n\ndef test_sum() -> None:\n    assert sum.total(2, 2) == 4\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\npythonpath = .\n")
    return Worktree(tmp_path)


def planted(tree: Path, old: str, new: str, more: str = "") -> Mutant:
    path = tree / "bug.patch"
    hunk = f"--- a/sum.py\n+++ b/sum.py\n@@ -1,2 +1,2 @@\n def total(a: int, b: int) -> int:\n-{old}\n+{new}\n"
    path.write_text(f"Bug: wrong sums\nRed: test_sum.py\n{more}\ndiff --git a/sum.py b/sum.py\n{hunk}")
    return Mutant.read(path)


def test_all_patches_are_checked_alone_and_stale_ones_named(small_project: Worktree, tmp_path: Path) -> None:
    tree = small_project.tree
    fits = planted(tree, "    return a + b", "    return a - b")
    fits = replace(fits, name="fits", path=fits.path.rename(tree / "fits.patch"))
    assert complaints(tree, [fits, replace(fits, name="fits-too")], tmp_path / "1") == ""
    stale = planted(tree, "    return a / b", "    return a - b")
    assert "patch failed: bug/sum.py:1" in complaints(tree, [fits, stale], tmp_path / "2")
    stale.path.write_text("Bug: wrong sums\nRed: test_sum.py\n\ndiff --gti a/sum.py b/sum.py\n")
    assert complaints(tree, [fits, stale], tmp_path / "3") == f"{stale.path}: git finds no diff\n"


@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ("    return a + b", "    return a - b", 0, "found  test_sum.py::test_sum"),
        ("    return a + b", "    return a * b", 1, "NOT FOUND"),
        ("    return a / b", "    return a - b", 1, "DOES NOT FIT  error: patch failed: sum.py:1"),
        ("    return a + b", "    return (a", 1, "CANNOT TELL  pytest ended with 2"),
    ],
    ids=["found", "not found", "patch does not apply", "tests cannot run"],
)
def test_bug_is_found_only_if_a_test_fails(
    small_project: Worktree, capsys: pytest.CaptureFixture[str], old: str, new: str, status: int, said: str
) -> None:
    before = (small_project.tree / "sum.py").read_text()
    assert run(small_project, [planted(small_project.tree, old, new)]) == status
    assert said in capsys.readouterr().out
    assert (small_project.tree / "sum.py").read_text() == before


def test_detector_that_the_patch_does_not_name_need_not_find_the_bug(
    small_project: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DETECTORS, SIMULATOR, Simulator("program"))
    (small_project.tree / "program.py").write_text(PROGRAM.format(found="False"))
    mutant = planted(small_project.tree, "    return a + b", "    return a - b")
    assert run(small_project, [mutant], [SUITE, SIMULATOR], Bounds(2), try_all=True) == 0
    assert run(small_project, [mutant], [SIMULATOR]) == 1, "no detector that the patch names was used"


def test_failure_without_the_bug_is_no_finding(small_project: Worktree, capsys: pytest.CaptureFixture[str]) -> None:
    (small_project.tree / "sum.py").write_text("def total(a: int, b: int) -> int:\n    return a - b\n")
    mutant = planted(small_project.tree, "    return a - b", "    return a * b + 1")
    assert run(small_project, [mutant]) == 1
    assert "RED WITHOUT IT  test_sum.py::test_sum: test_sum.py::test_sum" in capsys.readouterr().out


#: Finds wrong sums with its third seed only, or with each seed; `{found}` says which. With `--seeds` it acts as a
#: simulator.
PROGRAM = """
import argparse, sum
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--seeds", type=int, default=1)
parser.add_argument("--numbers", "--seconds", type=int)
arguments = parser.parse_args()
for done, seed in enumerate(range(arguments.seed, arguments.seed + arguments.seeds), 1):
    if {found}:
        print("seed", seed, "failed: I1 2 and 2 are lost")
        print(done, "of", arguments.seeds, "seeds, 1 failed")
        raise SystemExit(1)
    print(done, "of", arguments.seeds, "seeds, 0 failed", end="\\r")
"""


@pytest.mark.parametrize("finder", [Simulator("program"), Seeds("program")], ids=["simulator", "chaos"])
@pytest.mark.parametrize(
    ("found", "status", "said"),
    [
        ("seed == 3 and sum.total(2, 2) != 4", 0, "3 runs  found"),
        ("seed == 3", 1, "RED WITHOUT IT"),
        ("False", 1, "4 runs  NOT FOUND"),
    ],
    ids=["one seed finds it", "seed fails without the bug", "no seed finds it"],
)
def test_seed_counts_only_if_it_finds_nothing_without_the_bug(
    small_project: Worktree,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    finder: Detector,
    found: str,
    status: int,
    said: str,
) -> None:
    monkeypatch.setitem(DETECTORS, SIMULATOR, finder)
    (small_project.tree / "program.py").write_text(PROGRAM.format(found=found))
    mutant = planted(small_project.tree, "    return a + b", "    return a - b", more="Simulator: --numbers 2\n")
    assert run(small_project, [mutant], [SIMULATOR], Bounds(4)) == status
    assert said in capsys.readouterr().out


def test_seeds_that_take_too_long_have_found_nothing(
    small_project: Worktree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*_: object, **__: object) -> Ended:
        return Ended(None, "2 of 100 seeds, 0 failed\r3 of 100 seeds, 0 failed", "", 600.0, 600.0)

    monkeypatch.setattr(detectors, "run_python", too_slow)
    mutant = planted(small_project.tree, "    return a + b", "    return a - b", more="Simulator:\n")
    assert run(small_project, [mutant], [SIMULATOR]) == 1
    assert "3 runs  NOT FOUND" in capsys.readouterr().out, "as many as were done by then"


#: Starts a child process, prints its progress, and never ends.
SLOW = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("child").write_text(str(child.pid))
print("3 of 100 seeds, 0 failed", flush=True)
time.sleep(600)
"""


def test_ctrl_c_ends_a_command_and_its_processes(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)

    def press(line: str) -> None:
        if line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_python(tmp_path, ["slow.py"], longest_s=600, grace_s=20, watch=press)
    child = int((tmp_path / "child").read_text())
    wait_for("the end of what was started", lambda: is_gone(child))


def test_slow_command_is_ended_and_its_output_kept(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    seen: list[str] = []

    def now() -> float:
        """Return a time an hour later once there was output."""
        return 3600.0 if any(seen) else 0.0

    ended = run_python(tmp_path, ["slow.py"], longest_s=600, grace_s=20, watch=seen.append, now=now)
    assert (ended.status, ended.stdout) == (None, "3 of 100 seeds, 0 failed\n")
    child = int((tmp_path / "child").read_text())
    wait_for("the end of what was started", lambda: is_gone(child))


@dataclass
class Scripted:
    """A detector that finds the bug after `runs` runs."""

    runs: int

    def search(self, tree: Path, arguments: Sequence[str], bounds: Bounds, watch: object) -> Finding:
        if self.runs > bounds.runs:
            return Finding("", bounds.runs, 0.5)
        return Finding("I1 2 and 2 are lost", self.runs, 0.5)

    def repeat(self, tree: Path, finding: Finding, bounds: Bounds, watch: object) -> Finding:
        return Finding("", 1, 0.5)


def test_outcome_of_a_search_is_written_into_the_patch(
    small_project: Worktree, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(DETECTORS, SUITE, Scripted(1))
    monkeypatch.setitem(DETECTORS, SIMULATOR, Scripted(3))
    monkeypatch.setattr(__main__, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(__main__, "all_mutants", lambda: [Mutant.read(mutant.path)])
    mutant = planted(small_project.tree, "    return a + b", "    return a - b")
    diff = mutant.path.read_text().partition("\ndiff ")[2]

    run(small_project, [mutant], [SUITE, SIMULATOR], Bounds(2), try_all=True, record=True)
    kept = Mutant.read(mutant.path)
    assert kept.recorded[SUITE] == Recorded(SUITE, 1, 0.5, "I1 2 and 2 are lost")
    assert kept.recorded[SIMULATOR] == Recorded(SIMULATOR, 2, 0.5)
    assert SIMULATOR not in kept.found_by, "a detector that missed the bug need not find it"

    run(small_project, [kept], [SIMULATOR], Bounds(4), try_all=True, record=True)
    kept = Mutant.read(mutant.path)
    assert kept.found_by == {SUITE: ("test_sum.py",), SIMULATOR: ("--seconds", "60")}
    assert kept.recorded[SIMULATOR] == Recorded(SIMULATOR, 3, 0.5, "I1 2 and 2 are lost")
    assert kept.path.read_text().partition("\ndiff ")[2] == diff
    assert (tmp_path / "page.md").read_text() == table([kept])

    assert run(small_project, [kept], [SIMULATOR], Bounds(2), record=True) == 1
    assert Mutant.read(mutant.path) == kept, "a bug that is no longer found is a failure and is not recorded"


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("Red: x\n", "must begin with"),
        ("Bug: x\n", "must begin with"),
        ("Bug: x\nRed: y\nSimulater: z\n", "unknown line 'Simulater: z'"),
        ("Bug: x\nRed: y\nRed: z\n", "unknown line 'Red: z'"),
        ("Bug: x\nRed: y\nFound: suite\n", "is not 'detector, N runs, N.N s, finding'"),
        ("Bug: x\nRed: y\nFound: suite, 1 run, 2.0 s\n", "is not 'detector, N runs, N.N s, finding'"),
        (
            "Bug: x\nRed: y\nFound: simulator, 1 run, 2.0 s, I1\n",
            "the recorded outcome contradicts the named detectors: simulator",
        ),
        (
            "Bug: x\nRed: y\nMissed: suite, 1 run, 2.0 s\n",
            "the recorded outcome contradicts the named detectors: suite",
        ),
    ],
)
def test_patch_with_missing_or_unknown_lines_is_refused(tmp_path: Path, head: str, said: str) -> None:
    (path := tmp_path / "bug.patch").write_text(f"{head}\ndiff --git a/x b/x\n")
    with pytest.raises(ValueError, match=said) as refused:
        Mutant.read(path)
    assert str(path) in str(refused.value)


def test_recorded_outcome_is_one_short_line() -> None:
    recorded = Recorded(SIMULATOR, 7, 61.25, f"I1 {'lost ' * 100}\n    at the end")
    line = str(recorded)
    assert len(line) < 250
    assert "\n" not in line
    assert Recorded.read("Found", line.partition(": ")[2]).runs == 7


# --- the command ---------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["scripts/mutants", *arguments])
        try:
            status = main()
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return call


def test_unknown_bug_is_refused_with_close_names(command: Callable[..., tuple[int, str, str]]) -> None:
    status, _, said = command("torn-tial-kept")
    assert status == 2
    assert "there is no bug torn-tial-kept; is it torn-tail-kept?" in said
    assert "--list shows them" in command("zzz")[2]


def test_tree_with_changes_is_refused_without_dirty(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(__main__, "uncommitted", lambda: [f"node/{name}.py" for name in "abcdefg"])
    status, _, said = command("torn-tail-kept")
    assert status == 2
    assert "uncommitted changes: node/a.py, node/b.py, node/c.py, node/d.py, node/e.py and 2 more; with --dirty" in said


def test_detector_searches_for_the_bugs_that_name_it(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[list[str]] = []

    def note(trial: Worktree, mutants: Sequence[Mutant], *_: object, **how: object) -> int:
        chosen.append([mutant.name for mutant in mutants])
        return 0

    monkeypatch.setattr(__main__, "run", note)
    monkeypatch.setattr(__main__, "copy_tree", lambda tree: None)
    assert command("--dirty", "--by", "simulator")[0] == 0
    assert chosen[0] == [mutant.name for mutant in mutants() if SIMULATOR in mutant.found_by]
    monkeypatch.setattr(__main__, "all_mutants", lambda: [mutant for mutant in mutants() if not mutant.row][:1])
    assert "no patch says that chaos finds it; --try-all" in command("--dirty", "--by", "chaos")[2]
    assert command("--dirty", "--by", "chaos", "--try-all")[0] == 0


def test_uncommitted_files_are_seen_except_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "PROJECT", tmp_path)
    monkeypatch.setattr(trial, "DIRECTORY", tmp_path / "tests" / "mutants")
    with pytest.raises(trial.NoCheckout, match="not a git repository"):
        trial.uncommitted()
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    (tmp_path / "tests" / "mutants").mkdir(parents=True)
    (tmp_path / "tests" / "mutants" / "bug.patch").write_text("")
    assert trial.uncommitted() == []
    (tmp_path / "tests" / "test_ä b.py").write_text("")
    assert trial.uncommitted() == ["tests/test_ä b.py"]


def test_list_and_table_print_what_the_patches_say(command: Callable[..., tuple[int, str, str]]) -> None:
    status, printed, _ = command("--list", "--json", "torn-tail-kept")
    (bug,) = json.loads(printed)
    assert status == 0
    assert (bug["name"], bug["files"]) == ("torn-tail-kept", ["storage/segments/segment.py"])
    assert command("--table")[1] == PAGE.read_text()


def test_json_outcome_is_one_object(small_project: Worktree, capsys: pytest.CaptureFixture[str]) -> None:
    mutant = planted(small_project.tree, "    return a + b", "    return a - b")
    assert run(small_project, [mutant], json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["passed"]
    assert [(each["by"], each["verdict"], each["said"]) for each in printed["mutants"]] == [
        (SUITE, "found", "test_sum.py::test_sum")
    ]


def test_terminal_shows_the_progress(small_project: Worktree) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    progress, mutant = (
        Progress(95, terminal := Terminal()),
        planted(small_project.tree, "    return a + b", "    return 4"),
    )
    progress.follow(mutant, SIMULATOR, "3 of 100 seeds, 0 failed")
    assert "1 of 95, bug, simulator: 0 s  3 of 100 seeds, 0 failed" in terminal.getvalue()
    progress.clear()
    assert terminal.getvalue().rpartition("\r")[2] == ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["equal-time-entry-skipped", pytest.param("torn-tail-kept", marks=pytest.mark.slow)])
def test_suite_finds_a_bug_planted_in_a_copy_of_this_tree(name: str, tmp_path: Path) -> None:
    copy_tree(tmp_path)
    (mutant,) = (mutant for mutant in mutants() if mutant.name == name)
    assert run(Worktree(tmp_path), [mutant]) == 0
