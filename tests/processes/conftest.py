"""A fresh cluster of three real brokers for each test that asks for one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.disks import small_disk_at

# Who runs the tests under nohup ignores hang-ups, and so would the commands that they start.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """Three brokers; settings come from `@pytest.mark.parametrize("cluster", [{…}], indirect=True)`."""
    with running_cluster(tmp_path, **getattr(request, "param", {})) as started:
        yield started


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """16 MB that a test may fill."""
    with small_disk_at(tmp_path / "small") as disk:
        yield disk
