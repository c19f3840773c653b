"""The checker's verdict on what a run left in its directory, together with the faults that there were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from verify.chaos.injections import Injection
from verify.chaos.report.reading import VERDICT
from verify.chaos.runner import LEAST_DURING, MOST_HEALING_S
from verify.checker.invariant import Window
from verify.checker.run_directory import RunDirectory, write_windows
from verify.checker.verdict import Verdict

_MS = 1_000_000


def judge(results: Path, injections: Sequence[Injection]) -> Verdict:
    """Also writes it down. HistoryError, OSError: there is none."""
    write_windows(results, [window for injection in injections if (window := window_of(injection)) is not None])
    verdict = RunDirectory(results).check()
    (results / VERDICT).write_text(json.dumps(verdict.to_json(), ensure_ascii=False) + "\n", encoding="utf-8")
    return verdict


def window_of(injection: Injection) -> Window | None:
    """What availability is judged by; None for what was never injected."""
    if injection.t_inject is None or injection.t_heal is None:
        return None
    most_healing_ns = round(MOST_HEALING_S * 1e9)
    return Window(
        injection.row,
        injection.t_inject,
        injection.t_heal,
        # One that was not whole in time was not whole for longer than is allowed.
        injection.t_whole or injection.t_heal + most_healing_ns + 1,
        None if injection.most_gap_ms is None else injection.most_gap_ms * _MS,
        LEAST_DURING if injection.leaves_majority and not injection.was_cut_short else 0,
        most_healing_ns,
        injection.broke,
    )
