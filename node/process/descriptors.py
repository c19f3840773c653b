"""Share the file descriptors of a broker process between files and connections.

Files beyond their share are closed and opened again on their next use. Connections of clients beyond their share are
refused. Connections of brokers are not limited, because ZeroMQ accepts them, so that files have a reserve as well.
"""

from __future__ import annotations

import resource
import sys
from typing import NamedTuple

#: Kept free for files: more than ZeroMQ's backlog of connections (100), but at most an eighth of the limit.
_RESERVED, _PART_RESERVED = 128, 8
#: For connections to brokers and ZooKeeper, listeners, event loops and libraries, but at most an eighth of the limit.
_OTHERS = 128


class DescriptorShares(NamedTuple):
    """How many descriptors are for files that stay open, for the reserve of files, and for connections of clients."""

    files: int
    reserve: int
    connections: int


def share_descriptors(limit: int) -> DescriptorShares:
    """Return the shares of a limit of open files. Files get half of it, because each partition has three."""
    reserve, others = min(_RESERVED, limit // _PART_RESERVED), min(_OTHERS, limit // _PART_RESERVED)
    files = limit // 2
    return DescriptorShares(files, reserve, limit - files - reserve - others)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files of this process to its hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def descriptor_limit() -> int:
    """Return the limit of open files of this process."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if limit == resource.RLIM_INFINITY else limit
