"""A run that is over, by what it has left."""

from __future__ import annotations

from pathlib import Path

from tidelog.chaos.injections import read_faults
from tidelog.chaos.judging import judge
from tidelog.chaos.report.reading import read_about
from tidelog.chaos.run import Result
from tidelog.chaos.verdict import count_rows
from tidelog.chaos.workplace import RESULTS
from tidelog.checker import history
from tidelog.checker.run_directory import RunDirectory


def judge_again(directory: Path) -> Result:
    """What it came to, decided anew. `directory` is where its results went, or the run's own, which has them.

    HistoryError where something there is not what it should be; OSError where it cannot be read, or the verdict not be
    written.
    """
    results = directory
    if not (results / history.DIRECTORY).exists() and (directory / RESULTS).is_dir():
        results = directory / RESULTS
    RunDirectory(results).histories()  # what holds none is no run's, and nothing is written into it
    about, injections = read_about(results), read_faults(results)
    rows = {*about.rows, *(injection.row for injection in injections)}
    return Result(count_rows([*rows], injections), judge(results, injections), about.troubles, results)
