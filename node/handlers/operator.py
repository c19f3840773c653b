"""The handlers of operators' commands; the messages are in `tidelog.protocol.operator_messages`."""

from __future__ import annotations

from node.handlers.dispatch import HandlerTable
from node.handlers.inspection.describe_broker import BrokerDescription
from node.handlers.inspection.describe_clients import describe_clients
from node.handlers.inspection.examine_replica import ReplicaExaminations
from node.net.client_connections import ClientConnections
from node.replication.replica_manager import ReplicaManager
from tidelog.protocol.messages import ApiKey


def operator_handlers(
    replicas: ReplicaManager,
    retention_check_interval_ms: int,
    description: BrokerDescription,
    clients: ClientConnections,
) -> HandlerTable:
    """Return the part of the dispatch table for operators' commands."""
    examinations = ReplicaExaminations(replicas, retention_check_interval_ms)
    return {
        ApiKey.EXAMINE_REPLICA: lambda request, _: examinations.examine(request),
        ApiKey.DESCRIBE_BROKER: lambda request, _: description.describe(request),
        ApiKey.DESCRIBE_CLIENTS: lambda request, _: describe_clients(clients, request, replicas.clock.monotonic_ms()),
    }
