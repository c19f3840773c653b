"""Test which faults are permitted for the run's own cluster and for a running one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.local.cluster import LocalCluster
from tidelog.local.state import BrokerState, ClusterState, ProcessState, save_state
from verify.chaos.fault import Fault, Need
from verify.chaos.faults import catalogue
from verify.chaos.targets.container_target import ContainerTarget
from verify.chaos.targets.process_target import Cluster, LocalTarget
from verify.chaos.targets.undo import UndoFile

#: Faults that damage files of brokers or of ZooKeeper, which a later run cannot restore.
DAMAGES = {"F42", "F46", "F47", "F48", "F49", "F53"}
FAULTS: list[Fault] = [kind() for kinds in catalogue().values() for kind in kinds]


def target(directory: Path, brokers: int | None) -> LocalTarget:
    """Return a target with three brokers and a ZooKeeper of its own; with `brokers` None, the cluster ran before."""
    members = tuple(BrokerState(20_000 + broker_id, broker_id=broker_id) for broker_id in (1, 2, 3))
    save_state(directory, ClusterState("127.0.0.1:2181", ProcessState(2181), members, {}))
    cluster = LocalCluster(directory, home=directory / "home")
    return LocalTarget(directory, directory / "results", UndoFile(directory), cluster, brokers=brokers)


def refused(cluster: Cluster) -> set[str]:
    """Return the rows without a possible fault."""
    possible = {fault.row for fault in FAULTS if not any(cluster.lacks(need) for need in fault.needs)}
    return {fault.row for fault in FAULTS} - possible


def test_files_of_a_running_cluster_are_never_damaged(tmp_path: Path) -> None:
    used = target(tmp_path, None)
    assert refused(used) >= DAMAGES
    assert used.lacks(Need.FILES) is None  # the files may be read


def test_files_of_an_own_cluster_may_be_damaged(tmp_path: Path) -> None:
    assert not refused(target(tmp_path, 3)) & DAMAGES


@pytest.mark.parametrize("row", ["F1", "F6", "F7", "F13", "F35", "F37"])
def test_processes_of_a_running_cluster_may_be_killed_and_paused(tmp_path: Path, row: str) -> None:
    assert row not in refused(target(tmp_path, None))


def test_bootstrap_servers_are_the_brokers_ports_for_clients(tmp_path: Path) -> None:
    members = (BrokerState(9092, broker_id=1, host="198.18.5.1"), BrokerState(9093, broker_id=2))
    save_state(tmp_path, ClusterState("127.0.0.1:2181", ProcessState(2181), members, {}))
    cluster = LocalCluster(tmp_path, home=tmp_path / "home")
    there = LocalTarget(tmp_path, tmp_path / "results", UndoFile(tmp_path), cluster)
    assert there.bootstrap_servers == "198.18.5.1:9092,127.0.0.1:9093"


def test_container_cluster_is_not_the_runs_own(tmp_path: Path) -> None:
    there = ContainerTarget(tmp_path, tmp_path / "results", "127.0.0.1:9092", UndoFile(tmp_path))
    assert refused(there) >= DAMAGES
