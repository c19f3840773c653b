"""One cluster of three real brokers for all tests of foreign clients, whose xdist group is `clients`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.clients.adapters.foreign_client import ForeignClient
from tests.clients.adapters.registry import client_of
from tests.processes.harness.cluster import RunningCluster, running_cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """Three brokers. At the end no log file may have a traceback, because no request of a client may cause one."""
    with running_cluster(tmp_path_factory.mktemp("clients")) as started:
        yield started
        assert {broker_id: started.said(broker_id, "Traceback") for broker_id in started.broker_ids} == {
            1: 0,
            2: 0,
            3: 0,
        }


@pytest.fixture(scope="session")
def servers(cluster: RunningCluster) -> str:
    """Return the addresses for Kafka clients."""
    return cluster.local.known_state().kafka_bootstrap_servers


@pytest.fixture(scope="session")
def client(servers: str) -> Callable[[str], ForeignClient]:
    """Return a foreign client by its name."""
    return lambda name: client_of(name, servers)


@pytest.fixture
def topic(cluster: RunningCluster) -> str:
    """Return a new topic of one partition with three replicas."""
    name = f"topic-{next(_numbers)}"
    cluster.create_topic(name)
    return name
