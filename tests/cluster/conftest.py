"""One ZooKeeper for all tests of the folder. Each test uses a chroot of its own, on ZooKeeper or on its twin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.stores import Real, Server, Twin
from tidelog.local.zookeeper import EmbeddedZooKeeper


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    directory: Path = tmp_path_factory.mktemp("zookeeper")
    with EmbeddedZooKeeper(directory) as server:
        yield server


@pytest.fixture(params=["memory", "zookeeper"])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "memory":
        return Twin()
    zookeeper: EmbeddedZooKeeper = request.getfixturevalue("zookeeper")
    return Real(zookeeper.hosts)
