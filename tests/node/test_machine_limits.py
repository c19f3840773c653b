"""The memory of the machine, as the system's files tell it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.settings.machine_limits import free_memory, memory_of_machine, resident_memory

MIB = 1 << 20


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    directory = tmp_path / "proc"
    (directory / "self").mkdir(parents=True)
    (directory / "meminfo").write_text("MemTotal: 8000 kB\nMemFree: 100 kB\nMemAvailable:    4096 kB\n")
    (directory / "self/statm").write_text("900 30 5 1 0 100 0\n")
    return directory


def a_group(directory: Path, limit: str) -> Path:
    directory.mkdir()
    (directory / "memory.max").write_text(f"{limit}\n")
    (directory / "memory.current").write_text(f"{3 * MIB}\n")
    (directory / "memory.stat").write_text(f"anon 5\nactive_file 7\ninactive_file {MIB}\n")
    return directory


def test_free_memory_is_that_of_the_machine_without_a_container(proc: Path, tmp_path: Path) -> None:
    assert free_memory(proc, tmp_path / "none") == 4 * MIB


@pytest.mark.parametrize(("limit", "free"), [("max", 4 * MIB), (str(5 * MIB), 3 * MIB), (str(50 * MIB), 4 * MIB)])
def test_free_memory_is_at_most_that_of_the_container(proc: Path, tmp_path: Path, limit: str, free: int) -> None:
    assert free_memory(proc, a_group(tmp_path / "group", limit)) == free


def test_free_memory_is_unknown_if_the_system_does_not_tell(proc: Path, tmp_path: Path) -> None:
    (proc / "meminfo").write_text("MemTotal: 8000 kB\n")
    assert free_memory(proc, tmp_path / "none") == -1
    assert free_memory(tmp_path / "nowhere", tmp_path / "none") == -1


def test_resident_memory_is_counted_in_pages(proc: Path, tmp_path: Path) -> None:
    assert resident_memory(proc) == 30 * os.sysconf("SC_PAGE_SIZE")
    (proc / "self/statm").write_text("900\n")
    assert resident_memory(proc) == -1
    assert resident_memory(tmp_path / "nowhere") == -1


def test_memory_of_this_process_fits_its_machine() -> None:
    assert 0 < resident_memory() < memory_of_machine()
    assert 0 < free_memory() <= memory_of_machine()
