"""Disks of machines in memory: they outlive processes, and lose with the power what was not synced.

    disk = SimulatedDisk()
    files = disk.mount()                        # for one process
    disk.unmount()                              # it was killed: the page cache stays
    disk.crash(Random(7))                       # the power is gone
    disk.fail(Fault.SYNC_ERROR, under=path)     # until `heal`, also for the processes to come
    disk.slow(write_ms=300, sync_ms=500, for_ms=3_000)
    disk.flip_closed(Random(7))                 # a bit of some closed segment is another one from now on

What a disk may hold after a crash says `verify.simulation.disks.page_cache`, what its errors do
`verify.simulation.disks.failing_files`.
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

#: Calls that wait for the disk, and not only for the page cache.
_SYNCS = frozenset({"sync", "replace"})
#: Around a bit that flips: by these it is known again.
_NEAR_BYTES = 32


class SimulatedDisk:
    """One machine's file system.

    slowed  how many calls took long
    spend   told of the nanoseconds that a call takes, above what a thread takes anyway; whoever runs the process
            makes them pass for the thread, or the loop, that called
    """

    def __init__(self, spend: Callable[[int], object] = lambda ns: None) -> None:
        self.spend = spend
        self._files = CrashableFiles()
        self._mounted = FailingFiles(self._files)
        self._write_ns = self._sync_ns = self._slow_ns = 0
        self._refused = 0
        self._flipped: set[tuple[Path, int, int]] = set()
        self.slowed = 0

    # --- processes -------------------------------------------------------------------------------------------

    def mount(self) -> Files:
        """The file system of a new process; the one before it, if it is still there, is gone."""
        self._mounted.end()
        self._refused += len(self._mounted.failed)
        self._mounted = FailingFiles(self._files, like=self._mounted)
        self._mounted.watch = self._take_time
        return self._mounted

    def unmount(self) -> None:
        """The process was killed: it holds no locks, and nothing that it still does reaches the disk."""
        self._mounted.end()

    def crash(self, dice: Random | Fate = FORGOTTEN) -> None:
        """The power is gone: of what was not synced only that is left which the dice leave."""
        self._mounted.end()
        self._files = self._files.crash(dice)

    # --- faults ----------------------------------------------------------------------------------------------

    def fail(self, fault: Fault, under: Path | None = None, *, after: int = 0) -> None:
        """Until `heal`, once `after` calls of its kind went well."""
        self._mounted.fail(fault, under, after=after)

    def slow(self, *, write_ms: float = 0, sync_ms: float = 0, for_ms: float) -> None:
        """Until `heal` each write, and each sync, takes so long, and all together as long as that lasts.

        The disk does one after the other; and a thread's work is done in one piece, so that what it costs is known
        before it is over: no later call of it may be charged for when the disk is well again.
        """
        self._write_ns, self._sync_ns = round(write_ms * NS_PER_MS), round(sync_ms * NS_PER_MS)
        self._slow_ns = round(for_ms * NS_PER_MS)

    def tear(self, share: float, cut: Callable[[], object]) -> None:
        """The next write to a log gets that share of its bytes into the file; `cut` kills the process meanwhile."""
        self._mounted.tear(share, cut)

    def heal(self) -> None:
        """Ends all that lasts; what was refused stays refused."""
        self._mounted.heal()
        self._write_ns = self._sync_ns = 0

    def flip(self, dice: Random, *, suffix: str = ".log") -> tuple[Path, int] | None:
        """Changes a bit of some file with such a name, and says where; None where there is none with anything in it."""
        sizes = {path: len(self._files.read(path) or b"") for path in self._files.paths() if path.suffix == suffix}
        held = [path for path, size in sizes.items() if size]
        if not held:
            return None
        path = dice.choice(held)
        position = dice.randrange(sizes[path])
        self._files.flip(path, position, 1 << dice.randrange(8))
        return path, position

    def flip_closed(
        self, dice: Random, prefers: Callable[[Path], bool] = lambda path: True
    ) -> tuple[Path, Path, Callable[[], None]] | None:
        """Changes a bit of some log's closed segment; which one, the one after it, and what makes it well again.

        Of a log that is well: two changes near each other could not be told from what somebody wrote.
        prefers   of a log's directory: one of those, if there are any
        """
        damaged = {path.parent for path, _, _ in self._flipped}
        segments = (path for path in self._files.paths() if path.suffix == ".log" and path.parent not in damaged)
        logs = [path for path in segments if partition_named(path.parent.name)]
        closed = [pair for pair in pairwise(logs) if pair[0].parent == pair[1].parent and self._files.read(pair[0])]
        if not closed:
            return None
        path, following = dice.choice([pair for pair in closed if prefers(pair[0].parent)] or closed)
        position, bits = dice.randrange(len(self._files.read(path) or b"")), 1 << dice.randrange(8)
        self._files.flip(path, position, bits)
        self._flipped.add((path, position, bits))
        near = slice(max(0, position - _NEAR_BYTES), position + _NEAR_BYTES)
        flipped = (self._files.read(path) or b"")[near]

        def mend() -> None:
            self._flipped.discard((path, position, bits))
            # Unless it was cut, or another file has its name: compaction makes such.
            if self._files.exists(path) and (self._files.read(path) or b"")[near] == flipped:
                self._files.flip(path, position, bits)

        return path, following, mend

    # --- to look at ------------------------------------------------------------------------------------------

    @property
    def content(self) -> Files:
        """What a process would see; not to be written to."""
        return self._files

    @property
    def refused(self) -> int:
        """How many calls have failed."""
        return self._refused + len(self._mounted.failed)

    def _take_time(self, call: str, path: Path) -> None:
        ns = self._sync_ns if call in _SYNCS else self._write_ns if call == "write" else 0
        if ns and self._slow_ns:
            ns = min(ns, self._slow_ns)
            self._slow_ns -= ns
            self.slowed += 1
            self.spend(ns)
