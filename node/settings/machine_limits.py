"""Defaults that depend on the memory of the machine."""

from __future__ import annotations

import os
from pathlib import Path

#: The limit of memory of the container (control groups, version 2), or "max".
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
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
        return min(of_machine, int(_GROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return of_machine
