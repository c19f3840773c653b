"""Raises the limit of open files of this process, because each connection of a client is one."""

from __future__ import annotations

import resource

from tools.bench.results import NotMeasured

#: Open files that a process needs beside its connections.
_OTHERS = 1_000


def allow_connections(count: int) -> None:
    """Let this process have so many connections. Raises NotMeasured if its hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count + _OTHERS:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (count + _OTHERS, hard))
        except (OSError, ValueError):
            raise NotMeasured(f"{count} connections need more open files than {hard} (ulimit -n)") from None
