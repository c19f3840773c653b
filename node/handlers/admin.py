"""What administers settings, records and disks; see `tidelog.admin_messages`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from node.handlers.configs import Configs, Topics
from node.handlers.log_dirs import describe_log_dirs
from node.handlers.record_deletion import delete_records
from node.later import LaterResponse
from node.replicas import Replicas
from node.server import RequestContext
from node.settings import BrokerSettings
from tidelog.messages import ApiKey, Response

Outcome = Response | LaterResponse | Awaitable[Response]


def admin_handlers(
    replicas: Replicas, settings: BrokerSettings, topics: Topics
) -> Mapping[ApiKey, Callable[[Any, RequestContext], Outcome]]:
    """The part of the dispatch table that is theirs."""
    configs = Configs(settings, topics, replicas.metadata)
    return {
        ApiKey.DESCRIBE_CONFIGS: lambda request, _: configs.describe(request),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request, _: configs.alter(request),
        ApiKey.DESCRIBE_LOG_DIRS: lambda request, _: describe_log_dirs(replicas, request),
        ApiKey.DELETE_RECORDS: lambda request, context: delete_records(replicas, request, context),
    }
