"""Measures the checker on a run's directory: a million writes, each read by three readers, on three replicas."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

from tools.bench.command_output import output_of
from tools.bench.environment import BenchEnvironment, Benchmark
from tools.bench.results import Figure
from tools.bench.without_cluster.checker_run import write_run
from verify.checker.inputs.run_directory import RunDirectory

_WRITES = 1_000_000
_READERS = 3

_READ = Figure("checker.read", "bound: read the same bytes from the page cache, and find the ends of lines", "s")
_CHECK = Figure(
    "checker.check",
    f"judge {_WRITES:,} writes and {_READERS * _WRITES:,} reads against four final logs, I1–I23 (a core's time)",
    "s",
    "≤ 10",
    bound=_READ.key,
)
_MEMORY = Figure("checker.memory", "… and the most memory that it holds", "MB")


def measure(env: BenchEnvironment) -> dict[str, float]:
    with env.fresh_directory() as directory:
        # Writing and checking run in processes of their own, so that neither counts in the other's time and memory.
        _in_own_process("write", directory)
        took, megabytes = map(float, _in_own_process("check", directory).split())
        return {_READ.key: _read(directory), _CHECK.key: took, _MEMORY.key: megabytes}


def _read(directory: Path) -> float:
    began = time.process_time()
    for path in directory.rglob("*.jsonl"):
        with path.open("rb") as file:
            for _ in file:
                pass
    return time.process_time() - began


def _in_own_process(what: str, directory: Path) -> str:
    command = [sys.executable, "-P", "-m", "tools.bench.without_cluster.checker", what, str(directory)]
    return output_of(command, what, timeout_s=600)


def _check(directory: Path) -> None:
    began = time.process_time()
    verdict = RunDirectory(directory).check()
    took = time.process_time() - began
    if verdict.violated:
        raise SystemExit(f"the checker found a fault in a correct history: {verdict.findings[0]}")
    print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


BENCHMARK = Benchmark(
    "checker", "one process, columns of 50 to 200 operations a line", (_CHECK, _READ, _MEMORY), measure
)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write_run(Path(sys.argv[2]), _WRITES, _READERS)
    else:
        _check(Path(sys.argv[2]))
