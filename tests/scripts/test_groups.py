"""Tests that share a cluster or a Spark session have to run in one worker: else each worker starts its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STORY = """
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("one cluster")


@pytest.mark.parametrize("number", range(4))
def test_with_the_cluster(number):
    Path(__file__).with_name(os.environ["PYTEST_XDIST_WORKER"]).touch()
"""


def test_a_group_stays_with_one_of_two_workers(tmp_path: Path) -> None:
    for name in ("test_first.py", "test_second.py"):
        (tmp_path / name).write_text(STORY)
    command = [sys.executable, "-m", "pytest", "-p", "xdist.plugin", "-n", "2", "--dist", "loadgroup", str(tmp_path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # other plug-ins would take seconds to load
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=100)
    assert "8 passed" in done.stdout, done.stdout + done.stderr
    workers = [path.name for path in tmp_path.iterdir() if path.name.startswith("gw")]
    assert len(workers) == 1, f"the group ran in {sorted(workers)}"
