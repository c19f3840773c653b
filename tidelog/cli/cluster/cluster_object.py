"""Describes a local cluster as one JSON object, which is the same in all commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.local.cluster import LocalCluster
from tidelog.local.state import BrokerState, ClusterState


def as_object(cluster: LocalCluster, state: ClusterState, not_ready: Mapping[int, str]) -> dict[str, Any]:
    """Return the JSON object of the cluster and its processes.

    `not_ready` has, by broker id, the reason of each running broker that is not ready. A broker that does not run, or
    has no HTTP port, has `ready` null. `condition` is a `Condition`, or null for a process that was stopped or never
    started.
    """
    return {
        "bootstrap_servers": state.bootstrap_servers,
        "zookeeper": state.zookeeper,
        "brokers": [_broker(cluster, broker, not_ready.get(broker.broker_id)) for broker in state.brokers],
        "zookeeper_pid": state.embedded.pid or None if state.embedded else None,
        "zookeeper_alive": state.embedded.running if state.embedded else None,
        "zookeeper_condition": state.embedded.condition if state.embedded else None,
        "data_dir": str(cluster.data_dir),
        "log_dir": str(cluster.log_dir),
    }


def _broker(cluster: LocalCluster, broker: BrokerState, reason: str | None) -> dict[str, Any]:
    watched = broker.running and broker.http_port
    return {
        "id": broker.broker_id,
        "pid": broker.pid or None,
        "alive": broker.running,
        "condition": broker.condition,
        "ready": reason is None if watched else None,
        "not_ready_because": reason,
        "host": broker.address.rpartition(":")[0],
        "port": broker.port,
        "replication_port": broker.replication_port,
        "http": broker.http_address if broker.http_port else None,
        "data_dir": str(cluster.broker_dir(broker.broker_id)),
        "log": str(cluster.log_file(broker.broker_id)),
    }
