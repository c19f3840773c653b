"""Test system calls that fail, are slow, are cut short or return a wrong time, in a small process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT
from verify.chaos.faults.support.shim import Page, Shim
from verify.chaos.targets.undo import UndoFile

pytestmark = pytest.mark.skipif(Shim().missing() is not None, reason=f"{Shim().missing()}")

WRITE = (
    "import os; f = os.open(path, os.O_RDWR | os.O_CREAT); print(os.pwritev(f, [b'batch', b'records'], 0)); os.fsync(f)"
)


class Victim:
    """Run Python code with the shim."""

    def __init__(self, directory: Path, environment: Mapping[str, str], page: Page) -> None:
        self.segment = directory / f"{0:020d}.log"
        self.page = page
        self._environment = environment

    def run(self, code: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", f"path = {str(path or self.segment)!r}\n{code}"],
            env={**os.environ, **self._environment},
            capture_output=True,
            text=True,
            timeout=30,
        )


@pytest.fixture
async def victim(tmp_path: Path) -> AsyncIterator[Victim]:
    shim = Shim()
    places = await shim.set_up(UndoFile(tmp_path), tmp_path, {"1": DEFAULT_PLACEMENT, "zookeeper": DEFAULT_PLACEMENT})
    assert places["zookeeper"] == DEFAULT_PLACEMENT
    yield Victim(tmp_path, places["1"].environment, shim.page("1"))
    await shim.tear_down()
    assert not (tmp_path / "shim").exists()


def test_shim_without_orders_changes_nothing(victim: Victim) -> None:
    assert victim.run(WRITE).stdout == "12\n"
    assert victim.segment.read_bytes() == b"batchrecords"


@pytest.mark.parametrize(("order", "counter"), [("write_errno", "writes_failed"), ("sync_errno", "syncs_failed")])
def test_system_call_fails_with_the_ordered_error(victim: Victim, order: str, counter: str) -> None:
    victim.page.order(**{order: 5})
    assert "Input/output error" in victim.run(WRITE).stderr
    assert victim.page.read(counter) == 1
    victim.page.withdraw()
    assert not victim.run(WRITE).stderr


def test_orders_apply_to_log_files_only(victim: Victim, tmp_path: Path) -> None:
    victim.page.order(write_errno=5, sync_errno=5, tear_after=1)
    assert not victim.run(WRITE, tmp_path / "cluster.json").stderr
    assert not victim.run(WRITE, tmp_path / "0000000.log").stderr


def test_torn_write_ends_the_process(victim: Victim) -> None:
    victim.page.order(tear_after=7 + 1)
    assert victim.run(WRITE).returncode == -9
    assert victim.segment.read_bytes() == b"batchre"
    assert victim.page.read("torn_bytes") == 7 + 1
    assert victim.run(WRITE).returncode == 0, "once"


def test_delayed_writes_and_syncs_take_their_time(victim: Victim) -> None:
    victim.page.order(write_delay_us=150_000, sync_delay_us=100_000)
    began = time.monotonic()
    assert not victim.run(WRITE).stderr
    assert time.monotonic() - began > 0.25
    assert (victim.page.read("writes_delayed"), victim.page.read("syncs_delayed")) == (1, 1)


def test_wall_clock_is_shifted_and_monotonic_clock_is_not(victim: Victim) -> None:
    victim.page.order(clock_offset_ns=-3_600 * 10**9)
    wall, steady = map(float, victim.run("import time; print(time.time(), time.monotonic())").stdout.split())
    assert abs(wall - time.time() + 3_600) < 30
    assert abs(steady - time.monotonic()) < 30
    assert victim.page.read("clocks_shifted") > 0


def test_held_interpreter_blocks_all_its_threads(victim: Victim) -> None:
    code = """
import threading, time
turns = []
thread = threading.Thread(target=lambda: [turns.append(time.perf_counter()) or time.sleep(0.01) for _ in range(60)])
thread.start(); thread.join()
print(max(b - a for a, b in zip(turns, turns[1:])))
"""
    victim.page.order(hold_ms=700)
    began = time.monotonic()
    assert not victim.run(code).stderr
    assert time.monotonic() - began > 0.7
    assert victim.page.read("holds") == 1
