"""Run the checker on the directory of a run, with the windows of the injected faults."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from verify.chaos.injections import Injection
from verify.chaos.report.reading import VERDICT
from verify.chaos.runner import LEAST_DURING, MOST_HEALING_S
from verify.checker.inputs.run_directory import RunDirectory, write_windows
from verify.checker.invariant import Window
from verify.checker.verdict import Verdict

_MS = 1_000_000


def judge(results: Path, injections: Sequence[Injection]) -> Verdict:
    """Write the windows of the injected faults to windows.jsonl, check the run's files, write verdict.json, and return
    the verdict.

    Raise HistoryError if a file is invalid or there are no histories, and OSError if a file cannot be read or written.
    """
    write_windows(results, [window for injection in injections if (window := window_of(injection)) is not None])
    verdict = RunDirectory(results).check()
    (results / VERDICT).write_text(json.dumps(verdict.to_json(), ensure_ascii=False) + "\n", encoding="utf-8")
    return verdict


def window_of(injection: Injection) -> Window | None:
    """Return the window in which availability (I19) is checked, or None if the fault was never injected.

    The required operations are 0 if the fault leaves no majority or was cut short.
    """
    if injection.t_inject is None or injection.t_heal is None:
        return None
    most_healing_ns = round(MOST_HEALING_S * 1e9)
    return Window(
        injection.row,
        injection.t_inject,
        injection.t_heal,
        # A recovery that exceeded the time limit counts as longer than the limit.
        injection.t_whole or injection.t_heal + most_healing_ns + 1,
        None if injection.most_gap_ms is None else injection.most_gap_ms * _MS,
        LEAST_DURING if injection.leaves_majority and not injection.was_cut_short else 0,
        most_healing_ns,
        injection.broke,
    )
