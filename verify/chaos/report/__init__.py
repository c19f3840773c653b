"""What happened in a chaos run, as one HTML page (docs/OPERATIONS.md says how to read it)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from verify.chaos.injections import read_faults
from verify.chaos.report.page import page
from verify.chaos.report.reading import read_about, read_facts, read_verdict

NAME: Final = "report.html"
_TITLE: Final = "Tidelog under faults"


def write_report(directory: Path) -> Path:
    """Writes `DIR/report.html` from what else is in the run's directory (`reading`), and says where it is.

    HistoryError where the faults or the verdict are not what they should be; OSError where a file cannot be written.
    """
    faults = read_faults(directory)
    html = page(_TITLE, read_facts(directory, faults), faults, read_verdict(directory), read_about(directory))
    path = directory / NAME
    path.write_text(html, encoding="utf-8")
    return path


__all__ = ["NAME", "write_report"]
