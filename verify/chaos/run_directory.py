"""Where a run works: a directory under TIDELOG_HOME/chaos, and what becomes of one whose run was killed.

lock         held as long as the run lives; the kernel lets go of it when it does not
undo.jsonl   what has to be put back (verify.chaos.targets.undo)
kept         there if the directory was asked for, or needed, after the run
cluster/     a cluster of the run's own
results/     histories, final logs, faults, verdict and report, unless they were wanted elsewhere
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


class Workplace:
    """A directory that is ours until `close`. LocalError where it cannot be written."""

    def __init__(self, home: Path) -> None:
        name = time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
        self.path = prepare_directory(home / "chaos" / name)
        self._lock = _try_lock(self.path)
        self.undo = UndoFile(self.path)

    def keep(self) -> None:
        """It stays after `close`."""
        (self.path / _KEPT).touch()

    def close(self) -> list[str]:
        """Puts back what is not put back yet; returns what could not be. What must be looked at by a person stays."""
        failures = self.undo.perform()
        if not (failures or (self.path / _KEPT).exists()):
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        return failures


def clean_up(home: Path, tell: Callable[[str], None]) -> None:
    """Ends what runs of this user that were killed have left behind, and puts back what they had changed."""
    for path in sorted((home / "chaos").glob("*")):
        lock = _try_lock(path)
        if lock is None:
            continue  # its run lives
        try:
            undo = UndoFile(path)
            ended = _kill_cluster(path / CLUSTER)
            kept = (path / _KEPT).exists()
            if kept and not ended and not undo.pending:
                continue
            tell(f"cleaning up after a run that was killed: {path}")
            for failure in undo.perform():
                tell(f"could not be undone: {failure}")
            if not kept:
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _kill_cluster(data_dir: Path) -> bool:
    """Whether anything of it ran. SIGKILL, which a stopped process obeys too; nobody wants its data any more."""
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
    """None where somebody else has it, or it cannot be had."""
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
