"""Manage the directory of a run under TIDELOG_HOME/chaos, and clean up after runs that were killed.

lock         locked while the run's process exists; the kernel releases the lock when the process ends
undo.jsonl   the changes to undo (verify.chaos.targets.undo)
kept         exists if the directory must stay after the run
cluster/     the run's own cluster
results/     histories, final logs, faults, verdict and report, unless another directory was requested
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

from tidelog.errors import LocalError
from tidelog.local.home import prepare_directory
from tidelog.local.state import load_state
from verify.chaos.targets.process_target import CLUSTER
from verify.chaos.targets.undo import UndoFile

RESULTS = "results"
_LOCK, _KEPT = "lock", "kept"
_END_MS = 20_000


class WorkDirectory:
    """A new directory TIDELOG_HOME/chaos/TIME-PID, which this process keeps locked until `close`.

    The constructor creates the directory, and raises LocalError if it cannot be written.
    """

    def __init__(self, home: Path) -> None:
        name = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
        self.path = prepare_directory(home / "chaos" / name)
        self._lock = _try_lock(self.path)
        self.undo = UndoFile(self.path)

    def keep(self) -> None:
        """Make `close` keep the directory."""
        (self.path / _KEPT).touch()

    def close(self) -> list[str]:
        """Undo the changes that are still open, remove the directory, release the lock, and return the failures, one
        line each.

        The directory stays if there are failures or `keep` was called.
        """
        failures = self.undo.perform()
        if not (failures or (self.path / _KEPT).exists()):
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return failures


def clean_up(home: Path, report: Callable[[str], None]) -> None:
    """Kill the clusters of runs whose process has ended without cleaning up, undo the changes of these runs, and remove
    their directories.

    Directories with a `kept` file stay. Active runs are left alone. Each run and each failure is reported as a line,
    except runs with a `kept` file that left no process and no change.
    """
    for path in sorted((home / "chaos").glob("*")):
        lock = _try_lock(path)
        if lock is None:
            continue  # the run is still active
        try:
            undo = UndoFile(path)
            ended = _kill_cluster(path / CLUSTER)
            kept = (path / _KEPT).exists()
            if kept and not ended and not undo.pending:
                continue
            report(f"cleaning up after a killed run: {path}")
            for failure in undo.perform():
                report(f"cannot undo a change on this machine: {failure}")
            if not kept:
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _kill_cluster(data_dir: Path) -> bool:
    """Send SIGKILL to the running processes of the cluster, wait up to 20 s for each, and return whether any was
    running.

    SIGKILL also ends a stopped process. The data of the cluster is not needed any more. An unreadable state counts as
    no process.
    """
    try:
        state = load_state(data_dir)
    except LocalError:
        return False
    running = [process for each in (state.processes if state else ()) if (process := each.process) and process.running]
    for process in running:
        process.signal(SIGKILL)
    for process in running:
        process.wait(_END_MS)
    return bool(running)


def _try_lock(directory: Path) -> int | None:
    """Return the descriptor of the lock, or None if another process holds the lock or the file cannot be opened."""
    try:
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
