"""Describes the measured machine, and reads what its kernel knows of a process."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tools.bench import interpreter

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # fields of /proc/PID/stat, counted from behind the command's name


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def describe() -> dict[str, str | int | float]:
    """Return processor, cores, memory (GB), kernel, interpreter and current load, which a report must name."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gb": round(memory_gb, 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "python_optimised": interpreter.this_is_optimised(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def in_words(machine: dict[str, str | int | float]) -> str:
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gb']} GB, {machine['kernel']}, "
        f"{interpreter.in_words()}, load {machine['load_average']} at the start"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


class CpuTime(NamedTuple):
    """Seconds of CPU time in user mode and in the kernel, of one process or of several together."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system

    def since(self, before: CpuTime) -> CpuTime:
        return CpuTime(self.user - before.user, self.system - before.system)


def cpu_time(pids: Iterable[int]) -> CpuTime:
    """Return the CPU time of all these processes together since each began, with all their threads.

    Raises FileNotFoundError if one does not exist.
    """
    user = system = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[_UTIME])
        system += int(fields[_STIME])
    return CpuTime(user / _TICKS_PER_S, system / _TICKS_PER_S)


def own_cpu_time() -> CpuTime:
    """Return the CPU time of this process since it began, its threads included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return CpuTime(used.ru_utime, used.ru_stime)


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (10⁶ bytes).

    Raises FileNotFoundError if the process does not exist, and ProcessLookupError if it is a zombie.
    """
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(pid)
