"""Processes that run out of file descriptors."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tidelog.model import Endpoint


@contextmanager
def limited_to(pid: int, more: int) -> Iterator[None]:
    """Let the process open at most `more` further descriptors."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (_open_files(pid) + more, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def has_hardly_any_left(pid: int) -> bool:
    """Return whether the process can open at most one more descriptor."""
    return _open_files(pid) >= resource.prlimit(pid, resource.RLIMIT_NOFILE)[0] - 1


def begin_to_connect(endpoint: Endpoint, held: ExitStack) -> None:
    """Begin to connect, and do not wait for it. `held` closes the connection."""
    connection = held.enter_context(socket.socket())
    connection.setblocking(False)
    connection.connect_ex((endpoint.host, endpoint.port))


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
