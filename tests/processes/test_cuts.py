"""Real brokers, and a network between them that swallows everything for a while."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.harness.cuts import CUTS

OWN_NETWORK = ["unshare", "--map-root-user", "--net"]
#: TCP repeats ever more seldom, so that it may find out late; or the connection has ended, and another is dialled.
LATEST_BACK_S = 3.5


def can_cut() -> bool:
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    rule = ["ip", "rule", "add", "pref", "10", "ipproto", "tcp", "dport", "9", "blackhole"]
    return subprocess.run([*OWN_NETWORK, *rule], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_cut(), reason="no network namespace of our own to cut in")
def test_cut_connection_costs_little_more_than_its_time_and_no_record(tmp_path: Path) -> None:
    command = [*OWN_NETWORK, sys.executable, "-m", "tests.processes.harness.cuts", str(tmp_path)]
    root = Path(__file__).parents[2]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=110)
    assert run.returncode == 0, run.stderr
    *cuts, end = (json.loads(line) for line in run.stdout.splitlines() if line.startswith("{"))
    assert len(cuts) == len(CUTS)
    assert max(each["back_s"] for each in cuts) < LATEST_BACK_S, cuts
    assert end["records"] > 200 and end["batches"]
