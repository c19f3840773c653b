"""Clients in processes of their own, which can be killed and stopped."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def client(script: str, servers: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a script that is given the servers and says on its stdout how far it is; killed at the end."""
    with subprocess.Popen([sys.executable, "-c", script, servers], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
