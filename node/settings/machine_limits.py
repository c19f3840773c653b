"""Defaults that depend on the memory of the machine, and how much of that memory is left."""

from __future__ import annotations

import os
from pathlib import Path

#: The control group of the container (version 2). Its limit of memory is "max" if there is none.
_GROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")
#: A partition needs 14 KB in memory while it is idle. While it is busy, its requests and caches need more.
_BYTES_PER_PARTITION = 64 * 1024
#: One part in so many of the memory is for partitions. Other brokers, ZooKeeper and the page cache need the rest.
_PART_FOR_PARTITIONS = 4
_FEWEST, _MOST = 1_000, 100_000


def partitions_for(memory_bytes: int) -> int:
    """Return how many partitions a broker may hold on a machine with so much memory."""
    return max(_FEWEST, min(_MOST, memory_bytes // _PART_FOR_PARTITIONS // _BYTES_PER_PARTITION))


def memory_of_machine() -> int:
    """Return the bytes of the machine's memory, or the limit of the container if that is smaller (control groups 2)."""
    of_machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(of_machine, int((_GROUP / "memory.max").read_text(encoding="ascii")))
    except (OSError, ValueError):
        return of_machine


def resident_memory(proc: Path = _PROC) -> int:
    """Return the bytes of memory that this process uses; −1 if the system does not tell."""
    try:
        pages = int((proc / "self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return -1
    return pages * os.sysconf("SC_PAGE_SIZE")


def free_memory(proc: Path = _PROC, group: Path = _GROUP) -> int:
    """Return the bytes of memory that processes of this machine or container can still get; −1 if it is not known.

    Caches of files count as free, because the system drops them when a process needs memory.
    """
    try:
        of_machine = _named_number(proc / "meminfo", "MemAvailable:") * 1024
    except (OSError, ValueError):
        return -1
    try:
        limit, used = (int((group / name).read_text(encoding="ascii")) for name in ("memory.max", "memory.current"))
        return min(of_machine, limit - used + _named_number(group / "memory.stat", "inactive_file"))
    except (OSError, ValueError):
        return of_machine


def _named_number(file: Path, name: str) -> int:
    """Return the number after this name, which begins a line of the file. Raises ValueError if no line has it."""
    for line in file.read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[:1] == [name]:
            return int(words[1])
    raise ValueError(f"{file} does not have {name}")
