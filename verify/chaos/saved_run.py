"""A run that is over, by what it has left."""

from __future__ import annotations

from pathlib import Path

from tidelog.history import history_files
from verify.chaos.injections import read_faults
from verify.chaos.report.reading import read_about
from verify.chaos.results.judging import judge
from verify.chaos.results.verdict import count_rows
from verify.chaos.run import Result
from verify.chaos.run_directory import RESULTS
from verify.checker.run_directory import RunDirectory


def judge_again(directory: Path) -> Result:
    """What it came to, decided anew. `directory` is where its results went, or the run's own, which has them.

    HistoryError where something there is not what it should be; OSError where it cannot be read, or the verdict not be
    written.
    """
    results = directory
    if not (results / history_files.DIRECTORY).exists() and (directory / RESULTS).is_dir():
        results = directory / RESULTS
    RunDirectory(results).histories()  # what holds none is no run's, and nothing is written into it
    about, injections = read_about(results), read_faults(results)
    rows = {*about.rows, *(injection.row for injection in injections)}
    return Result(count_rows([*rows], injections), judge(results, injections), about.troubles, results)
