"""Fixtures of the storage tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.files import RealFile


@pytest.fixture(autouse=True)
def descriptors_are_given_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the descriptors of logs that a test leaves open, as a killed process does."""
    files: list[RealFile] = []
    opened = RealFile.__init__

    def opened_and_known(self: RealFile, path: Path, **options: Any) -> None:
        opened(self, path, **options)
        files.append(self)

    monkeypatch.setattr(RealFile, "__init__", opened_and_known)
    yield
    for file in files:
        file.close()
