"""Chooses the ports of the local processes, which keep them across restarts."""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Collection
from contextlib import ExitStack
from pathlib import Path

from tidelog.errors import LocalError

LOOPBACK = "127.0.0.1"
#: The port of the first broker for clients, if it is free; each further broker has the next one.
CLIENT_PORT = 9_092
_LOWEST = 20_000


def port_is_free(port: int) -> bool:
    """Return whether a process could listen on this port of the loopback address now.

    Raises LocalError if that fails for another reason than a port in use.
    """
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


def hold_port(port: int) -> socket.socket | None:
    """Return a socket that is bound to the port but does not listen; None if the port is not free.

    The caller closes the socket. Until then `choose_port` finds the port taken, but the process that the port is for
    may listen: Linux lets a socket listen if all sockets that are bound there have SO_REUSEADDR and do not listen. The
    option is set after the bind, because with the option set before, two choosers could bind the same port.

    Raises LocalError if the bind fails for another reason than a port in use.
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


def choose_port(held: ExitStack, taken: Collection[int] = (), *, preferred: int = 0) -> int:
    """Return the preferred port (0: none) if it is free and not in `taken`, else a random port that is.

    The random port lies below the kernel's range for outgoing connections. No other caller gets the port until `held`
    is closed; by then the new process should listen there. Raises LocalError if none is found.
    """
    candidates = range(_LOWEST, max(_first_ephemeral_port(), _LOWEST + 1_000))
    for _ in range(1_000):
        port = preferred or random.choice(candidates)
        preferred = 0
        if port not in taken and (hold := hold_port(port)) is not None:
            held.enter_context(hold)
            return port
    raise LocalError(
        f"no free port between {candidates.start} and {candidates.stop}: stop some of the processes that listen there"
    )


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
