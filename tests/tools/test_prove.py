"""`scripts/prove`: its steps are existing commands, and the outcome of each is shown, even if a step cannot start."""

from __future__ import annotations

import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tidelog.cli
import tools.bench.__main__
import tools.fuzz.__main__
import tools.mutants.__main__
import tools.prove.__main__
import verify.simulation.__main__
from tests.processes.harness.waiting import is_gone, wait_for
from tools.mutants.detectors import DETECTORS
from tools.prove.__main__ import PROJECT, main, prove
from tools.prove.output import Progress, listing, status, table
from tools.prove.running import Ending, Result, run
from tools.prove.steps import Step, all_steps

SEED = 123_456_789

#: Arguments with which a command only checks its other arguments, and the exit status that then follows.
UNDERSTOOD: dict[str, tuple[Callable[[], object], tuple[str, ...], int | None]] = {
    "bench": (tools.bench.__main__.main, ("--list",), 0),
    "chaos": (tidelog.cli.main, ("--only", "F999"), 2),
    "fuzz": (tools.fuzz.__main__.main, ("--list",), 0),
    "mutants": (tools.mutants.__main__.main, ("--list",), 0),
    "simulate": (verify.simulation.__main__.main, ("--story", "/nowhere"), 2),
}


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Handle SIGINT as `main` does, because a shell makes its background commands ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Write the scripts of the steps.

    end N   ends with N
    hang    starts two children and prints that it is ready. After SIGINT it waits only for the child that heeds SIGINT
    """
    (path := tmp_path / "scripts").mkdir()
    for name, text in (("end", END), ("hang", HANG.format(python=sys.executable))):
        (path / name).write_text(text)
        (path / name).chmod(0o755)
    return path


END = '#!/usr/bin/env bash\necho begun\necho "ended with $1" >&2\nexit "$1"\n'
HANG = """#!{python}
import signal, subprocess, sys

INTERRUPTED = "import signal; signal.sigwait([signal.SIGINT])"
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # until it waits for SIGINT; its children inherit the block
children = [subprocess.Popen(each) for each in (["sleep", "600"], [sys.executable, "-c", INTERRUPTED])]
with open(sys.argv[1], "w") as file:
    print(*(each.pid for each in children), file=file)
print("ready", flush=True)
signal.sigwait([signal.SIGINT])
children[1].wait()
print("tidied up")
sys.exit(130)
"""


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    (path := tmp_path / "reports").mkdir()
    return path


def ending(name: str, status: int, *, as_root: bool = False) -> Step:
    return Step(name, "ends", ("end", str(status)), 1, unproved=(3,), as_root=as_root)


def ignore_progress(seconds: float, last_line: str) -> None: ...


def interrupt_when_ready(seconds: float, last_line: str) -> None:
    if last_line == "ready":
        raise KeyboardInterrupt


# --- the steps -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", all_steps(Path("/new"), SEED, 2), ids=lambda step: step.name)
def test_each_step_is_a_command_that_takes_its_arguments(
    step: Step, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script, *arguments = step.command
    assert os.access(PROJECT / "scripts" / script, os.X_OK)
    if script == "test":
        assert arguments == ["--slow"]
        return
    command, more, expected = UNDERSTOOD[script]
    monkeypatch.setattr("sys.argv", ["tidelog", *(["chaos"] if script == "chaos" else []), *arguments, *more])
    try:
        ended = command()
    except SystemExit as exit_:
        ended = exit_.code
    assert ended == expected, capsys.readouterr().err
    if script == "chaos":
        assert "--only: scenario" in capsys.readouterr().err, "another argument was refused"
    if script == "simulate":
        assert "/nowhere" in capsys.readouterr().err


def test_steps_cover_everything_that_must_be_proved() -> None:
    commands = [step.command for step in all_steps(Path("/new"), SEED, 2)]
    chaos = [" ".join(command) for command in commands if command[0] == "chaos"]
    everything = [each for each in chaos if "--scenario all --seconds 600" in each]
    assert [re.findall(r"--seed (\d+)", each) for each in everything] == [["1"], ["2"], ["3"], [str(SEED)]]
    for scenario in ("leader-kill", "partition"):
        (one,) = [each for each in chaos if f"--scenario {scenario} " in each]
        assert "--meanwhile elections --meanwhile reassignments --kafka-clients 1" in one
    (mutants,) = [command for command in commands if command[0] == "mutants"]
    assert set(DETECTORS) <= set(mutants)
    assert len({each.rpartition("--report ")[2] for each in chaos}) == len(chaos), (
        "each chaos step has a directory of its own"
    )


def test_list_shows_the_minutes_of_each_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["scripts/prove", "--list", "chaos", "--report", str(tmp_path / "new")])
    assert main() == 0
    printed = capsys.readouterr().out
    assert re.findall(r"^chaos-\S+ +(\d+) min", printed, re.MULTILINE) == ["12"] * 4
    assert "48 min  in all" in printed
    assert not (tmp_path / "new").exists()


def test_guide_states_the_minutes_of_all_steps() -> None:
    minutes = sum(step.minutes for step in all_steps(Path("/new"), SEED, 2))
    (printed,) = re.findall(r"^scripts/prove .*?(\d+) min", (PROJECT / "docs" / "GUIDE.md").read_text(), re.MULTILINE)
    assert int(printed) == minutes
    assert f"{minutes} min" in listing(all_steps(Path("/new"), SEED, 2))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("cahos",), "no step's name begins with cahos: there are slow-tests"),
        (("--seed", "-1"), "--seed must not be negative"),
        (("--report", "{there}"), "--report: "),
    ],
)
def test_wrong_arguments_of_prove_are_refused_in_one_line(
    arguments: tuple[str, ...],
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("sys.argv", ["scripts/prove", *(each.format(there=tmp_path) for each in arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


# --- the outcomes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status_", "expected"), [(0, Ending.PASSED), (1, Ending.FAILED), (3, Ending.UNPROVED), (130, Ending.FAILED)]
)
def test_exit_status_decides_and_all_output_is_kept(
    status_: int, expected: Ending, scripts: Path, reports: Path
) -> None:
    result = run(ending("one", status_), scripts, reports, ignore_progress, root=False)
    assert (result.ending, result.last_line) == (expected, f"ended with {status_}")
    assert result.kept is not None and result.kept.read_text() == f"begun\nended with {status_}\n"


def test_step_that_cannot_start_is_not_proved_and_says_why(scripts: Path, reports: Path) -> None:
    gone = run(Step("gone", "", ("gone",), 1), scripts, reports, ignore_progress, root=True)
    assert gone.ending is Ending.UNPROVED and "No such file" in gone.last_line
    refused = run(ending("one", 0, as_root=True), scripts, reports, ignore_progress, root=False)
    assert refused.ending is Ending.UNPROVED and "need root" in refused.last_line
    assert run(ending("one", 0, as_root=True), scripts, reports, ignore_progress, root=True).ending is Ending.PASSED


def test_ctrl_c_ends_a_step_and_its_processes(scripts: Path, reports: Path, tmp_path: Path) -> None:
    step = Step("one", "", ("hang", str(tmp_path / "children")), 1)
    result = run(step, scripts, reports, interrupt_when_ready, root=False)
    assert (result.ending, result.last_line) == (Ending.STOPPED, "tidied up")
    children = (tmp_path / "children").read_text().split()
    assert len(children) == 2
    wait_for("the end of what was started", lambda: all(is_gone(int(child)) for child in children))


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [((0, 0), 0), ((0, 1), 1), ((3, 0), 3), ((3, 1), 1)],
    ids=["all proved", "one failed", "one not proved", "worst counts"],
)
def test_all_steps_run_and_the_table_shows_each(
    statuses: tuple[int, ...], expected: int, scripts: Path, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [ending(f"step-{number}", each) for number, each in enumerate(statuses)]
    assert prove(steps, scripts, reports, SEED, root=False) == expected
    printed = capsys.readouterr().out
    for step, each in zip(steps, statuses, strict=True):
        assert re.search(rf"^{step.name} .* ended with {each} +{reports / step.name}\.txt$", printed, re.MULTILINE)
    missing = [step.name for step, each in zip(steps, statuses, strict=True) if each]
    assert (f"missing: scripts/prove --seed {SEED} {' '.join(missing)}\n" in printed) == bool(missing)
    seed, _, rest = (reports / "summary.txt").read_text().partition("\n")
    assert seed == f"seed {SEED}" and rest in printed


class InterruptingProgress(Progress):
    """Raises KeyboardInterrupt as soon as the command is ready."""

    def __call__(self, seconds: float, last_line: str) -> None:
        interrupt_when_ready(seconds, last_line)


def test_ctrl_c_ends_the_steps_and_prints_the_missing_ones(
    scripts: Path, reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools.prove.__main__, "Progress", InterruptingProgress)
    steps = [ending("first", 0), Step("second", "", ("hang", str(reports / "child")), 1), ending("third", 0)]
    assert prove(steps, scripts, reports, SEED, root=False) == 130
    printed = capsys.readouterr().out
    assert re.search(r"^second +stopped .* tidied up ", printed, re.MULTILINE)
    assert re.search(r"^third +not started$", printed, re.MULTILINE)
    assert f"scripts/prove --seed {SEED} second third\n" in printed


def test_failure_counts_even_if_later_steps_were_stopped() -> None:
    step = ending("one", 0)
    assert status([Result(step, Ending.FAILED), Result(step, Ending.STOPPED)]) == 1
    assert status([Result(step, Ending.UNPROVED), Result(step, Ending.MISSING)]) == 130


def test_last_line_is_cut_to_keep_the_table_narrow() -> None:
    head, row = table([Result(ending("one", 1), Ending.FAILED, 90.0, "lost " * 100, Path("/reports/one.txt"))]).split(
        "\n"
    )
    assert len(row) < 120 and " 1.5 " in row
    assert head.index("kept in") == row.index("/reports")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_gets_one_changing_line_and_a_file_one_a_minute() -> None:
    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        progress = Progress("2 of 3", ending("one", 0), stream)
        for seconds in range(0, 150, 10):
            progress(float(seconds), f"{seconds} of 150 seeds")
        progress.clear()
    assert file.getvalue().splitlines() == [
        f"2 of 3, one: {minutes} of about 1 min  {60 * minutes} of 150 seeds" for minutes in (0, 1, 2)
    ]
    assert "\n" not in terminal.getvalue()
    assert "140 of 150 seeds" in terminal.getvalue() and terminal.getvalue().endswith("\r")
