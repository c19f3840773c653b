"""`scripts/demo` on real processes: ZooKeeper, three brokers, Spark and a SIGKILL, with long and short inputs."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
VERDICT = re.compile(r"verdict: (\d+) acknowledged, (\d+) read, (\d+) lost, (\d+) doubled; failover gap (\S+) s")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def write_log(path: Path, lines: int) -> Path:
    """Write a log of some days, with late lines and some lines without a time."""
    rng = random.Random(3)
    moment = datetime(2024, 1, 2, tzinfo=UTC)
    with path.open("wb") as log:
        for number in range(lines):
            moment += timedelta(seconds=rng.expovariate(1 / 15))
            late = timedelta(minutes=rng.choice([0] * 20 + [1, 30]))
            stamp = f"{moment - late:%Y-%m-%dT%H:%M:%S}Z " if number % 100 else "\tat a place in the code: "
            log.write(stamp.encode() + b"request %d: \xff\xfe \x00 done\r\n" % number)
    return path


class Demo:
    """A run of the demo in a session of its own, with a mark by which all of its processes are found."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.json = directory / "out.json"
        self._mark = f"DEMO_TEST={os.getpid()}-{time.monotonic_ns()}"
        name, _, value = self._mark.partition("=")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tools.demo", "--json", str(self.json), *arguments],
            env={**os.environ, "PYTHONPATH": str(PROJECT), "TMPDIR": str(directory), name: value},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def peaks_kb(self) -> dict[str, int]:
        """Run to the end, and return the largest resident size of any Python process of each kind."""
        peaks: dict[str, int] = {}
        drain = threading.Thread(target=self.output.read)
        drain.start()
        while self.process.poll() is None:
            for pid in self.left_behind():
                with contextlib.suppress(OSError, StopIteration):
                    kind = kind_of(Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))
                    status = Path(f"/proc/{pid}/status").read_text().splitlines()
                    peak_kb = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
                    if kind:
                        peaks[kind] = max(peaks.get(kind, 0), peak_kb)
            time.sleep(0.3)
        drain.join()
        return peaks

    def left_behind(self) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if self._mark.encode() in environment.split(b"\0"):
                    found.append(int(entry.name))
        return found

    def ended(self) -> tuple[int, list[str], dict[str, Any]]:
        """Return the exit status, the unread lines of standard output, and the figures."""
        rest, errors = self.process.communicate(timeout=500)
        assert errors == ""
        assert self.left_behind() == []
        return self.process.returncode, rest.splitlines(), json.loads(self.json.read_text())


def kind_of(command: list[bytes]) -> str | None:
    """Return what a Python process of the demo does, or None for another process."""
    if b"python" not in Path(os.fsdecode(command[0])).name.encode():
        return None
    for mark in (b"tools.demo", b"pyspark.daemon", b"windowed_counts.py", b"audit.py", b"node"):
        if any(mark in argument for argument in command[1:]):
            return mark.decode()
    return "another"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "a place with a space"
    place.mkdir()
    yield place
    assert not list(place.glob("tidelog-demo-*"))


def test_lines_survive_the_kill_and_spark_counts_them_all(directory: Path) -> None:
    log = write_log(directory / "app.log", 20_000)
    status, lines, figures = Demo(directory, "--input", str(log)).ended()
    assert figures["failures"] == []
    assert status == 0
    verdict = VERDICT.fullmatch(lines[-1])
    assert verdict is not None
    assert verdict.groups()[:4] == ("20000", "20000", "0", "0")
    assert 0 < float(verdict[5]) < 10
    assert figures["failover"]["acks_in_second_before"] >= 200
    assert figures["failover"]["unacknowledged"] > 0
    assert figures["stream"]["excluded"] >= 1
    assert figures["stream"]["counted"] + figures["stream"]["late"] == figures["stream"]["plain"]


def test_ten_lines_get_a_verdict_and_a_void_kill(directory: Path) -> None:
    log = write_log(directory / "ten.log", 10)
    status, lines, figures = Demo(directory, "--input", str(log)).ended()
    assert status == 1
    assert len(figures["failures"]) == 1
    assert figures["failures"][0].startswith("the kill could not bite")
    verdict = VERDICT.fullmatch(lines[-1])
    assert verdict is not None
    assert verdict.groups()[:4] == ("10", "10", "0", "0")


def test_million_lines_need_no_more_memory_than_a_tenth_of_them(directory: Path) -> None:
    peaks = []
    for lines in (100_000, 1_000_000):
        log = write_log(directory / f"{lines}.log", lines)
        demo = Demo(directory, "--input", str(log))
        peaks.append(demo.peaks_kb())
        assert demo.process.returncode == 0
    small, large = peaks
    assert small.keys() == large.keys() >= {"tools.demo", "node", "pyspark.daemon", "windowed_counts.py", "audit.py"}
    assert {kind: large[kind] / small[kind] for kind in small if large[kind] > 1.2 * small[kind]} == {}


@pytest.mark.parametrize("moment", ["ZooKeeper is ready", "Spark is starting", "the stream runs", "SIGKILL"])
def test_ctrl_c_ends_the_demo_with_a_verdict_and_leaves_no_process(directory: Path, moment: str) -> None:
    log = write_log(directory / "app.log", 20_000)
    demo = Demo(directory, "--input", str(log))
    for line in demo.output:
        if moment in line:
            break
    os.killpg(demo.process.pid, signal.SIGINT)
    status, lines, figures = demo.ended()
    assert status == 130
    assert figures["interrupted"]
    verdict = VERDICT.fullmatch(lines[-1])
    assert verdict is not None
    acknowledged, read, lost, doubled = map(int, verdict.groups()[:4])
    assert (lost, doubled) == (0, 0)
    assert read >= acknowledged
