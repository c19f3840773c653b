"""Inspects the files of a log directory: reports their contents and their damage, and changes nothing.

Unlike a log's own readers, the readers here continue after damage as far as possible, and need no write access. They
hold at most a few megabytes of a file and one whole batch. Start with `file_types.py`.
"""

from __future__ import annotations

from storage.inspection.file_types import files_below, inspect
from storage.inspection.findings import Damage, Fact, Finding, Value

__all__ = ["Damage", "Fact", "Finding", "Value", "files_below", "inspect"]
