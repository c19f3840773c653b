"""What stands in the files of a log directory, and where one is damaged: told, and nothing changed.

Unlike the readers that a log has for itself, these go on behind what is wrong as far as that can be done, read files
that they may not write, and hold a few megabytes of a file at most (and one batch, where its records are asked for).
"""

from __future__ import annotations

from storage.inspection.file_types import files_below, inspect
from storage.inspection.findings import Damage, Fact, Finding, Value

__all__ = ["Damage", "Fact", "Finding", "Value", "files_below", "inspect"]
