"""Ports of the local processes: chosen once, then kept across restarts."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from tidelog.errors import LocalError

LOOPBACK = "127.0.0.1"
_LOWEST = 20_000


def port_is_free(port: int) -> bool:
    """Whether a process could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise LocalError(f"cannot listen on {LOOPBACK}:{port}: {error.strerror}") from None
    return True


def choose_port(taken: Collection[int] = (), held: ExitStack | None = None) -> int:
    """A free port below the range that the kernel lends to outgoing connections, so that it can be kept for ever.

    Nobody else is given it until `held` is closed, by when somebody should listen there.
    """
    candidates = range(_LOWEST, max(_first_ephemeral_port(), _LOWEST + 1_000))
    for _ in range(1_000):
        port = random.choice(candidates)
        if port not in taken and (hold := _hold(port)) is not None:
            if held is None:
                hold.close()
            else:
                held.enter_context(hold)
            return port
    raise LocalError(f"no free port between {candidates.start} and {candidates.stop}: stop what listens there")


def _hold(port: int) -> socket.socket | None:
    """Bound there and not listening: who else chooses finds it taken, who is to listen may. None where it is not free.

    Linux lets a socket listen where all that is bound there says SO_REUSEADDR and listens not. We say it after the
    binding: said before, it would let two of us bind.
    """
    hold = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        hold.bind((LOOPBACK, port))
    except OSError as error:
        hold.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise LocalError(f"cannot listen on {LOOPBACK}:{port}: {error.strerror}") from None
    hold.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return hold


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
