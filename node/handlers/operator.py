"""The handlers of operators' commands; the messages are in `tidelog.protocol.operator_messages`."""

from __future__ import annotations

from node.handlers.dispatch import HandlerTable
from node.handlers.inspection.describe_broker import BrokerDescription
from node.handlers.inspection.examine_replica import ReplicaExaminations
from node.observability.health_endpoints import HealthEndpoints
from node.replication.replica_manager import ReplicaManager
from node.settings.broker_settings import BrokerSettings
from tidelog.protocol.messages import ApiKey


def operator_handlers(replicas: ReplicaManager, observation: HealthEndpoints, settings: BrokerSettings) -> HandlerTable:
    """Return the part of the dispatch table for operators' commands."""
    examinations = ReplicaExaminations(replicas, settings.log_retention_check_interval_ms)
    report = BrokerDescription(settings, observation, replicas.clock)
    return {
        ApiKey.EXAMINE_REPLICA: lambda request, _: examinations.examine(request),
        ApiKey.DESCRIBE_BROKER: lambda request, _: report.describe(request),
    }
