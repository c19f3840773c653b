"""Shows where the CPU goes: client and brokers, user and kernel, and functions if py-spy is installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.bench import machine
from tools.bench.environment import BenchEnvironment, ClusterUnderTest
from tools.supervised_process import start

_SAMPLES_PER_S = 200
_SHOWN = 14
_END_S = 60


@contextmanager
def profiled(name: str, cluster: ClusterUnderTest, env: BenchEnvironment) -> Iterator[None]:
    """Watch the client (this process) and every broker while the block runs, then print the CPU time of each.

    If py-spy is installed, their functions with the most samples are printed as well.
    """
    brokers = {f"broker {broker.broker_id}": broker.pid for broker in cluster.local.known_state().brokers}
    watched = {"client": os.getpid(), **brokers}
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        env.say("    (pip install py-spy shows the functions too)")
    with ExitStack() as stack:
        before = {part: machine.cpu_time([pid]) for part, pid in watched.items()}
        samples = stack.enter_context(_sampled(spy, watched, env)) if spy else {}
        yield
        used = {part: machine.cpu_time([pid]).since(before[part]) for part, pid in watched.items()}
    env.say(f"    {name}: CPU seconds (user + kernel)")
    for part, cpu in used.items():
        env.say(f"      {part:<10} {cpu.user:6.2f} + {cpu.system:5.2f}")
    for part, stacks in samples.items():
        _show(part, stacks, env)


@contextmanager
def _sampled(spy: str, pids: Mapping[str, int], env: BenchEnvironment) -> Iterator[dict[str, Counter[tuple[str, ...]]]]:
    """Sample the processes by py-spy while the block runs; yield a dict that is empty until the block has ended.

    The dict then has the number of samples of each stack, by the process's name in `pids`.
    """
    samples: dict[str, Counter[tuple[str, ...]]] = {}
    with env.fresh_directory() as directory:
        spies = {}
        for part, pid in pids.items():
            command = [spy, "record", "--pid", str(pid), "--rate", str(_SAMPLES_PER_S), "--nonblocking"]
            command += ["--format", "raw", "--duration", "unlimited", "--output", str(directory / str(pid))]
            spies[part] = start(command, stdout=subprocess.DEVNULL)
        try:
            yield samples
        finally:
            for process in spies.values():
                process.send_signal(signal.SIGINT)
            for process in spies.values():
                process.wait(_END_S)
        for part, pid in pids.items():
            if (directory / str(pid)).is_file():
                samples[part] = _stacks(directory / str(pid))


def _stacks(path: Path) -> Counter[tuple[str, ...]]:
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def _show(part: str, stacks: Counter[tuple[str, ...]], env: BenchEnvironment) -> None:
    """Print the functions with the most samples, each with its shares: running itself, and anywhere on the stack."""
    total = sum(stacks.values())
    itself: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for stack, count in stacks.items():
        named = [frame.rpartition(":")[0] + ")" if ":" in frame else frame for frame in stack]
        itself[named[-1]] += count
        for frame in set(named):
            below[frame] += count
    env.say(f"      {part}: {total} samples; itself, with what it calls")
    for frame, count in itself.most_common(_SHOWN):
        env.say(f"        {count / total:5.1%} {below[frame] / total:6.1%}  {frame}")
