"""A run's directory: what the chaos run, its clients, its brokers and the checker left there.

histories/NAME.jsonl   tidelog.history.history_files
faults.jsonl           verify.chaos.injections
verdict.json           the checker's (`verify.checker.verdict.Verdict.to_json`)
run.json               what to know of the run, as {"scenario": "all", "seed": 3}, which "rows" it was asked for,
                           and its own "troubles"; without it the run has not proved anything
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
_NO_ROWS: Final = "which rows it was asked for is not known"


def read_facts(directory: Path, faults: Sequence[Injection]) -> RunFacts:
    """All histories. What cannot be read of them stands in the facts' complaints: a report is wanted most when
    something went wrong."""
    observer = Observer()
    complaints = []
    paths = sorted((directory / DIRECTORY).glob(f"*{SUFFIX}"))
    if not paths:
        complaints.append(f"there is no history in {directory / DIRECTORY}")
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
    """None where there is none. HistoryError where it is not a verdict."""
    path = directory / VERDICT
    if not path.exists():
        return None
    with line_errors(path, 1):
        return Verdict.of_json(json.loads(path.read_text(encoding="utf-8")))


def read_about(directory: Path) -> About:
    """HistoryError where it is something else. Where the rows are missing, whoever asked for them has a trouble: those
    that were injected tell nothing of those that were not.
    """
    path = directory / RUN
    if not path.exists():
        return About(troubles=[_NO_ROWS])
    with line_errors(path, 1):
        document = json.loads(path.read_text(encoding="utf-8"))
        if type(document) is not dict:
            raise TypeError("it is no JSON object")
        values = {name: value for name, value in document.items() if isinstance(value, str | int | float)}
        rows = [row_name(each) for each in document.get("rows", ())]
        troubles = [str(each) for each in document.get("troubles", ())]
        return About(values, rows, troubles if rows else [_NO_ROWS, *troubles])
