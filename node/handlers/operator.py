"""What an operator's commands ask; see `tidelog.operator_messages`."""

from __future__ import annotations

from node.handlers.dispatch import HandlerTable
from node.handlers.examination import Examinations
from node.handlers.self_report import SelfReport
from node.observation import Observation
from node.replicas import Replicas
from node.settings import BrokerSettings
from tidelog.messages import ApiKey


def operator_handlers(replicas: Replicas, observation: Observation, settings: BrokerSettings) -> HandlerTable:
    """The part of the dispatch table that is theirs."""
    examinations = Examinations(replicas, settings.log_retention_check_interval_ms)
    report = SelfReport(settings, observation, replicas.clock)
    return {
        ApiKey.EXAMINE_REPLICA: lambda request, _: examinations.examine(request),
        ApiKey.DESCRIBE_BROKER: lambda request, _: report.describe(request),
    }
