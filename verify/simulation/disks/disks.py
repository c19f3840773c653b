"""Disks of machines in memory. A disk outlives its processes, and loses unsynced bytes when the power is cut.

    disk = SimulatedDisk()
    files = disk.mount()                        # for one process
    disk.unmount()                              # the process was killed: the page cache stays
    disk.crash(Random(7))                       # the power is cut
    disk.fail(Fault.SYNC_ERROR, under=path)     # until `heal`, also for later processes
    disk.slow(write_ms=300, sync_ms=500, for_ms=3_000)
    disk.flip_closed(Random(7))                 # flip a bit of some closed segment

`verify.simulation.disks.page_cache` describes the contents after a crash, and `verify.simulation.disks.failing_files`
the effects of the errors.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

from storage.files import Files
from storage.log_names import partition_named
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles, Fault
from verify.simulation.disks.page_cache import FORGOTTEN, Fate
from verify.simulation.timeline import NS_PER_MS

#: The calls that wait for the disk, and not only for the page cache.
_SYNCS = frozenset({"sync", "replace"})
#: The number of bytes on each side of a flipped bit by which the place is recognized later.
_NEAR_BYTES = 32


class SimulatedDisk:
    """The file system of one machine.

    slowed   the number of calls that were slow
    """

    def __init__(self) -> None:
        self._spend: Callable[[int], object] = lambda ns: None
        self._files = CrashableFiles()
        self._mounted = FailingFiles(self._files)
        self._write_ns = self._sync_ns = self._slow_ns = 0
        self._refused = 0
        self._flipped: set[tuple[Path, int, int]] = set()
        self.slowed = 0

    # --- processes -------------------------------------------------------------------------------------------

    def mount(self, spend: Callable[[int], object] = lambda ns: None) -> Files:
        """Return the file system for a new process. A previous process that still uses the disk is cut off from it.

        Faults that have begun stay, except a torn write. `spend` is called with the nanoseconds that a call takes in
        addition to the time of a thread. The owner of the process lets this time pass for the calling thread or loop.
        """
        self._spend = spend
        self._mounted.end()
        self._refused += len(self._mounted.failed)
        self._mounted = FailingFiles(self._files, like=self._mounted, watch=self._take_time)
        return self._mounted

    def unmount(self) -> None:
        """Detach the killed process: release its locks. Its later reads and changes raise PowerCut."""
        self._mounted.end()

    def crash(self, rng: Random | Fate = FORGOTTEN) -> None:
        """Cut the power, and cut off the process that uses the disk. `rng` decides which unsynced bytes are lost."""
        self._mounted.end()
        self._files = self._files.crash(rng)

    # --- faults ----------------------------------------------------------------------------------------------

    def fail(self, fault: Fault, under: Path | None = None, *, after: int = 0) -> None:
        """Make calls fail until `heal`, under this path or everywhere, after `after` calls of their kind succeeded."""
        self._mounted.fail(fault, under, after=after)

    def slow(self, *, write_ms: float = 0, sync_ms: float = 0, for_ms: float) -> None:
        """Make each write and each sync slow until `heal`, for `for_ms` in total.

        The disk executes calls one after another. The work of a thread is executed in one piece, so its time is charged
        before it ends. The limit `for_ms` prevents that calls are charged for a time after the disk has been healed.
        """
        self._write_ns, self._sync_ns = round(write_ms * NS_PER_MS), round(sync_ms * NS_PER_MS)
        self._slow_ns = round(for_ms * NS_PER_MS)

    def tear(self, share: float, cut: Callable[[], object]) -> None:
        """Write only that share of the bytes of the next write to a log; `cut` kills the process during this write.

        The writer gets PowerCut.
        """
        self._mounted.tear(share, cut)

    def heal(self) -> None:
        """End all faults. Calls that failed remain failed, and flipped bits stay."""
        self._mounted.heal()
        self._write_ns = self._sync_ns = 0

    def flip(self, rng: Random, *, suffix: str = ".log") -> tuple[Path, int] | None:
        """Flip a bit of a random nonempty file with this suffix. Return its path and the byte's position, or None
        without one.
        """
        sizes = {path: len(self._files.read(path) or b"") for path in self._files.paths() if path.suffix == suffix}
        held = [path for path, size in sizes.items() if size]
        if not held:
            return None
        path = rng.choice(held)
        position = rng.randrange(sizes[path])
        self._files.flip(path, position, 1 << rng.randrange(8))
        return path, position

    def flip_closed(
        self, rng: Random, prefers: Callable[[Path], bool] = lambda path: True
    ) -> tuple[Path, Path, Callable[[], None]] | None:
        """Flip a bit of a random closed segment. Return the segment, the next one, and a function that repairs it; None
        without one.

        Only an undamaged log is chosen, because two nearby changes could not be distinguished from a later write. The
        repair has no effect if the bytes have changed meanwhile.

        prefers   returns whether a log's directory is preferred, if there is such a log
        """
        damaged = {path.parent for path, _, _ in self._flipped}
        segments = (path for path in self._files.paths() if path.suffix == ".log" and path.parent not in damaged)
        logs = [path for path in segments if partition_named(path.parent.name)]
        closed = [pair for pair in pairwise(logs) if pair[0].parent == pair[1].parent and self._files.read(pair[0])]
        if not closed:
            return None
        path, following = rng.choice([pair for pair in closed if prefers(pair[0].parent)] or closed)
        position, bits = rng.randrange(len(self._files.read(path) or b"")), 1 << rng.randrange(8)
        self._files.flip(path, position, bits)
        self._flipped.add((path, position, bits))
        near = slice(max(0, position - _NEAR_BYTES), position + _NEAR_BYTES)
        flipped = (self._files.read(path) or b"")[near]

        def repair() -> None:
            self._flipped.discard((path, position, bits))
            # Repair only if the place still has these bytes: the segment may have been truncated, or replaced by
            # compaction.
            if self._files.exists(path) and (self._files.read(path) or b"")[near] == flipped:
                self._files.flip(path, position, bits)

        return path, following, repair

    # --- for inspection ------------------------------------------------------------------------------------------

    @property
    def content(self) -> Files:
        """Return what a process would see. The caller must not write to it."""
        return self._files

    @property
    def refused(self) -> int:
        """Return how many calls of all processes have failed."""
        return self._refused + len(self._mounted.failed)

    def _take_time(self, call: str, path: Path) -> None:
        ns = self._sync_ns if call in _SYNCS else self._write_ns if call == "write" else 0
        if ns and self._slow_ns:
            ns = min(ns, self._slow_ns)
            self._slow_ns -= ns
            self.slowed += 1
            self._spend(ns)
