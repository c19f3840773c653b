"""Folders are small enough to be read as a list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("package", ["tidelog", "storage", "cluster", "node", "verify", "tools"])
def test_a_folder_holds_at_most_twelve_files(package: str) -> None:
    """The `__init__.py` of a folder does not count, because it says what the folder is."""
    files = [file for file in (ROOT / package).rglob("*.py") if file.name != "__init__.py"]
    counts = Counter(str(file.parent.relative_to(ROOT)) for file in files)
    assert counts and {folder: count for folder, count in counts.items() if count > 12} == {}
