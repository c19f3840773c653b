"""Write the HTML report of a chaos run (docs/OPERATIONS.md explains how to read it)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from verify.chaos.injections import read_faults
from verify.chaos.report.page import page
from verify.chaos.report.reading import read_about, read_facts, read_verdict

NAME: Final = "report.html"
_TITLE: Final = "Tidelog under faults"


def write_report(directory: Path) -> Path:
    """Write DIR/report.html from the other files in the directory of the results (see `reading`), and return its path.

    Histories that cannot be read are named in the report. Raise HistoryError if the faults, the verdict or run.json are
    invalid, and OSError if a file cannot be read or written.
    """
    faults = read_faults(directory)
    html = page(_TITLE, read_facts(directory, faults), faults, read_verdict(directory), read_about(directory))
    path = directory / NAME
    path.write_text(html, encoding="utf-8")
    return path


__all__ = ["NAME", "write_report"]
