"""Where the CPU goes: client and brokers, user and kernel; and by function where py-spy is installed."""

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
from tools.bench.environment import ClusterUnderTest, Lab

_SAMPLES_PER_S = 200
_SHOWN = 14
_END_S = 60


@contextmanager
def profiled(name: str, cluster: ClusterUnderTest, lab: Lab) -> Iterator[None]:
    """Watches the client (this process) and every broker for as long as the block runs, then prints what was seen."""
    brokers = {f"broker {broker.broker_id}": broker.pid for broker in cluster.local.known_state().brokers}
    watched = {"client": os.getpid(), **brokers}
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if spy is None:
        lab.say("    (pip install py-spy shows the functions too)")
    with ExitStack() as stack:
        before = {who: machine.cpu_time([pid]) for who, pid in watched.items()}
        samples = stack.enter_context(_sampled(spy, watched, lab)) if spy else {}
        yield
        used = {who: machine.cpu_time([pid]).since(before[who]) for who, pid in watched.items()}
    lab.say(f"    {name}: CPU seconds (user + kernel)")
    for who, cpu in used.items():
        lab.say(f"      {who:<10} {cpu.user:6.2f} + {cpu.system:5.2f}")
    for who, stacks in samples.items():
        _show(who, stacks, lab)


@contextmanager
def _sampled(spy: str, pids: Mapping[str, int], lab: Lab) -> Iterator[dict[str, Counter[tuple[str, ...]]]]:
    """The stacks of each process, filled in when the block has ended."""
    samples: dict[str, Counter[tuple[str, ...]]] = {}
    with lab.fresh_directory() as directory:
        spies = {}
        for who, pid in pids.items():
            command = [spy, "record", "--pid", str(pid), "--rate", str(_SAMPLES_PER_S), "--nonblocking"]
            command += ["--format", "raw", "--duration", "unlimited", "--output", str(directory / str(pid))]
            spies[who] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield samples
        finally:
            for process in spies.values():
                process.send_signal(signal.SIGINT)
            for process in spies.values():
                process.wait(_END_S)
        for who, pid in pids.items():
            if (directory / str(pid)).is_file():
                samples[who] = _stacks(directory / str(pid))


def _stacks(path: Path) -> Counter[tuple[str, ...]]:
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in path.read_text(encoding="utf-8").splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frames.split(";"))] += int(count)
    return stacks


def _show(who: str, stacks: Counter[tuple[str, ...]], lab: Lab) -> None:
    """By function: the share of samples in which it was at work itself, and in which it was on the stack."""
    total = sum(stacks.values())
    itself: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for stack, count in stacks.items():
        named = [frame.rpartition(":")[0] + ")" if ":" in frame else frame for frame in stack]
        itself[named[-1]] += count
        for frame in set(named):
            below[frame] += count
    lab.say(f"      {who}: {total} samples; itself, with what it calls")
    for frame, count in itself.most_common(_SHOWN):
        lab.say(f"        {count / total:5.1%} {below[frame] / total:6.1%}  {frame}")
