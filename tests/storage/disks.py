"""Disks for tests: an implementation of `Files`, and the files that a power failure leaves of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from storage.descriptor_reserve import DescriptorReserve
from storage.files import Files, RealFiles
from storage.open_files import OpenFiles
from tests.storage.system_calls import SystemCalls
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.failing_files import FailingFiles
from verify.simulation.disks.page_cache import FORGOTTEN, KEPT, Fate

#: The possible contents of a disk after a power failure.
SEEDS = range(15)


class Disk(NamedTuple):
    """An implementation, a flushed directory of its own, and the files that a power failure leaves."""

    files: Files
    root: Path
    power: CrashableFiles | SystemCalls

    def after(self, choice: Random | Fate = FORGOTTEN) -> CrashableFiles:
        return self.power.crash(choice)

    def images(self, work: Callable[[], object], *, process_only: bool = False) -> list[CrashableFiles]:
        """Do the work. Return the files that are left if the process, or the machine, ends within one of its calls."""
        taken = [self.power.crash(KEPT)]

        def take() -> None:
            taken.append(self.power.crash(KEPT))
            if not process_only:
                taken.append(self.power.crash(FORGOTTEN))
                taken.extend(self.power.crash(Random(seed)) for seed in SEEDS)

        self.power.boundary = take
        work()
        self.power.boundary = lambda: None
        assert len(taken) > 1, "the work changed nothing"
        return taken


#: The implementations that model durability.
DURABLE: dict[str, Callable[[], Files]] = {
    "production": RealFiles,
    "production with a reserve of descriptors": lambda: RealFiles(OpenFiles(reserve=DescriptorReserve(2))),
    "production with one open file": lambda: RealFiles(OpenFiles(1)),
    "failing, over production": lambda: FailingFiles(RealFiles()),
    "in memory": CrashableFiles,
    "failing, in memory": lambda: FailingFiles(CrashableFiles()),
}


def disk_of(make: Callable[[], Files], directory: Path) -> Iterator[Disk]:
    """Yield a disk below `directory`. The calls of production files are recorded until the generator continues."""
    files = make()
    inner = files.inner if isinstance(files, FailingFiles) else files
    root = directory / "data"
    with ExitStack() as until_the_end:
        power = inner if isinstance(inner, CrashableFiles) else until_the_end.enter_context(SystemCalls(directory))
        files.make_directory(root)
        for each in root.parents:
            files.fsync_directory(each)
        yield Disk(files, root, power)
