"""Three brokers for tests of foreign clients. Tests of one xdist group run in one worker, and share one cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.clients.adapters.registry import Clients
from tests.clients.cluster_under_test import IS_CONTROL, ClusterUnderTest, cluster_under_test
from tests.processes.harness.cluster import RunningCluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterUnderTest]:
    """Three brokers. At the end no log file may have a traceback, because no request of a client may cause one."""
    with cluster_under_test(tmp_path_factory.mktemp("clients"), group_initial_rebalance_delay_ms=0) as started:
        yield started
        if isinstance(started, RunningCluster):
            assert {broker_id: started.said(broker_id, "Traceback") for broker_id in started.broker_ids} == {
                1: 0,
                2: 0,
                3: 0,
            }


@pytest.fixture(scope="session")
def tidelog_cluster(cluster: ClusterUnderTest) -> RunningCluster:
    """Return the cluster for tests that need brokers of Tidelog. The control skips these tests."""
    if IS_CONTROL:
        pytest.skip("the brokers are those of Apache Kafka")
    assert isinstance(cluster, RunningCluster)
    return cluster


@pytest.fixture(scope="session")
def servers(cluster: ClusterUnderTest) -> str:
    """Return the brokers' addresses."""
    return cluster.bootstrap_servers


@pytest.fixture(scope="session")
def client(servers: str) -> Iterator[Clients]:
    """Return foreign clients by their names."""
    clients = Clients(servers)
    yield clients
    clients.close()


@pytest.fixture
def topic(cluster: ClusterUnderTest) -> str:
    """Return a new topic of one partition with three replicas."""
    name = f"topic-{next(_numbers)}"
    cluster.create_topic(name)
    return name
