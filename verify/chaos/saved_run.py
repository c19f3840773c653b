"""Check the histories of a finished run again."""

from __future__ import annotations

from pathlib import Path

from tidelog.history import history_files
from verify.chaos.injections import read_faults
from verify.chaos.report.reading import read_about
from verify.chaos.results.judging import judge
from verify.chaos.results.verdict import count_rows
from verify.chaos.run import Result
from verify.chaos.run_directory import RESULTS
from verify.checker.inputs.run_directory import RunDirectory


def judge_again(directory: Path) -> Result:
    """Check the files of a finished run again, write windows.jsonl and the verdict again, and return the result.

    `directory` is the directory of the results or of the run. The result has the rows that were requested or have a
    recorded step, and no report. Raise HistoryError if a file is invalid or there are no histories, and OSError if a
    file cannot be read or written.
    """
    results = directory
    if not (results / history_files.DIRECTORY).exists() and (directory / RESULTS).is_dir():
        results = directory / RESULTS
    RunDirectory(results).histories()  # raises before anything is written if the directory contains no histories
    about, injections = read_about(results), read_faults(results)
    rows = {*about.rows, *(injection.row for injection in injections)}
    return Result(count_rows([*rows], injections), judge(results, injections), about.troubles, results)
