"""The one line that is quoted where a process ended while it started."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from tidelog.local.processes.log_tail import last_error_line

Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a\nb\n", "b"),
        ("an ERROR\njava.lang.Exception: taken\nafter it\n", "java.lang.Exception: taken"),
        ("starting\n2026-11-21T", "starting"),
        ("starting\nException: cut o", "Exception: cut o"),
        ("2026-11-21T", "2026-11-21T"),
        ("\n \n", "it printed nothing"),
    ],
)
def test_last_error_line_is_an_error_or_the_last_complete_line(tmp_path: Path, content: str, words: str) -> None:
    log = tmp_path / "zookeeper.log"
    log.write_text(content)
    assert last_error_line(tmp_path / "missing.out", log) == words


def test_full_disk_is_named_with_the_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "zookeeper.log"
    log.write_text("2026-11-21T")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(1 << 30, 1 << 30, 4096))
    assert last_error_line(log).startswith(f"the disk of {tmp_path} is full")
