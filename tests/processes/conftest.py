"""A fresh cluster of three real brokers for each test that asks for one, and one ZooKeeper for all of them."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.processes.harness.cluster import RunningCluster, running_cluster
from tests.processes.harness.disks import small_disk_at
from tidelog.local.zookeeper import EmbeddedZooKeeper

# Under nohup, the tests ignore SIGHUP, and the commands that they start would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def another_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Return unused chroots in one ZooKeeper. A test that disturbs ZooKeeper itself starts one of its own."""
    with EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper")) as zookeeper:
        numbers = itertools.count(1)
        yield lambda: f"{zookeeper.hosts}/cluster-{next(numbers)}"


@pytest.fixture
def cluster(
    tmp_path: Path, another_root: Callable[[], str], request: pytest.FixtureRequest
) -> Iterator[RunningCluster]:
    """Three brokers; settings come from `@pytest.mark.parametrize("cluster", [{…}], indirect=True)`."""
    with running_cluster(tmp_path, zookeeper=another_root(), **getattr(request, "param", {})) as started:
        yield started


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """16 MB that a test may fill."""
    with small_disk_at(tmp_path / "small") as disk:
        yield disk
