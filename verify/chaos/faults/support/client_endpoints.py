"""Find the ports to which clients connect, and what waits there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidelog.aio import Admin
from tidelog.model import Endpoint
from verify.chaos.fault import Target

#: The states of a connection whose bytes the process may still read. The end of the peer's bytes counts as one byte.
_ESTABLISHED, _ENDED_BY_PEER = "01", "08"


async def client_endpoints(target: Target) -> Mapping[int, Endpoint]:
    """Return the address of each registered broker's listener for clients."""
    async with Admin(target.bootstrap_servers) as admin:
        return (await admin.describe_cluster()).brokers


def unread_bytes(pid: int, port: int) -> int:
    """Return the bytes that arrived on TCP connections to this port in the process's network namespace, and that no
    process has read; 0 if the process has ended.
    """
    found = 0
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for _, local, _, state, queues, *_ in map(str.split, lines):
            if state in (_ESTABLISHED, _ENDED_BY_PEER) and int(local.rpartition(":")[2], 16) == port:
                found += max(0, int(queues.partition(":")[2], 16) - (state == _ENDED_BY_PEER))
    return found
