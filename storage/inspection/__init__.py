"""Inspects the files of a log directory: reports their contents and their damage, and changes nothing.

Other than a log's own readers, these continue after damage as far as possible and can read files without write access.
The readers hold a few megabytes of a file at most, plus one batch if its records are requested. Start with
`file_types.py`.
"""

from __future__ import annotations

from storage.inspection.file_types import files_below, inspect
from storage.inspection.findings import Damage, Fact, Finding, Value

__all__ = ["Damage", "Fact", "Finding", "Value", "files_below", "inspect"]
