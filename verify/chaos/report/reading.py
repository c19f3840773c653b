"""Read a run's directory: the files of the chaos run, its clients, its brokers and the checker.

histories/NAME.jsonl   tidelog.history.history_files
faults.jsonl           verify.chaos.injections
verdict.json           the checker's verdict (`verify.checker.verdict.Verdict.to_json`)
run.json               properties of the run such as {"scenario": "all", "seed": 3}, its requested "rows", and its own
                       "troubles"; without this file the run has proved nothing
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tidelog.errors import HistoryError
from tidelog.history.history_files import DIRECTORY, SUFFIX, line_errors, read_history
from verify.chaos.injections import Injection, row_name
from verify.chaos.report.facts import About, RunFacts
from verify.chaos.report.observing import Observer
from verify.checker.verdict import Verdict

VERDICT: Final = "verdict.json"
RUN: Final = "run.json"
_NO_ROWS: Final = "the requested rows are unknown"


def read_facts(directory: Path, faults: Sequence[Injection]) -> RunFacts:
    """Return the data of all histories in the directory. The time axis includes `faults`.

    Histories that cannot be read become complaints, and so does the absence of histories, because a report is most
    useful after a failure.
    """
    observer = Observer()
    complaints = []
    paths = sorted((directory / DIRECTORY).glob(f"*{SUFFIX}"))
    if not paths:
        complaints.append(f"no history found in {directory / DIRECTORY}")
    for path in paths:
        try:
            observer.take(read_history(path))
        except (HistoryError, OSError) as error:
            complaints.append(str(error))
    facts = observer.facts(
        [fault.t_inject for fault in faults if fault.t_inject is not None],
        [fault.t_heal for fault in faults if fault.t_heal is not None],
    )
    facts.complaints = complaints
    return facts


def read_verdict(directory: Path) -> Verdict | None:
    """Return the verdict, or None if verdict.json does not exist. Raise HistoryError for an invalid file."""
    path = directory / VERDICT
    if not path.exists():
        return None
    with line_errors(path, 1):
        return Verdict.of_json(json.loads(path.read_text(encoding="utf-8")))


def read_about(directory: Path) -> About:
    """Return the description of the run from run.json. Raise HistoryError for an invalid file.

    If the file or the requested rows are missing, that is a trouble, because the injected faults do not show which
    others were requested.
    """
    path = directory / RUN
    if not path.exists():
        return About(troubles=[_NO_ROWS])
    with line_errors(path, 1):
        document = json.loads(path.read_text(encoding="utf-8"))
        if type(document) is not dict:
            raise TypeError("the file is not a JSON object")
        values = {name: value for name, value in document.items() if isinstance(value, str | int | float)}
        rows = [row_name(each) for each in document.get("rows", ())]
        troubles = [str(each) for each in document.get("troubles", ())]
        return About(values, rows, troubles if rows else [_NO_ROWS, *troubles])
