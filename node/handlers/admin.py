"""The handlers that administer settings, records and disks; the messages are in `tidelog.protocol.admin_messages`."""

from __future__ import annotations

from node.handlers.configs import Brokers, CheckAddresses, Configs, Topics, any_addresses
from node.handlers.dispatch import HandlerTable
from node.handlers.inspection.log_dirs import LogDirs
from node.handlers.log_dir_moves import alter_replica_log_dirs
from node.handlers.records.record_deletion import delete_records
from node.replication.log_dir_moves import LogDirMoves
from node.replication.replica_manager import ReplicaManager
from tidelog.protocol.messages import ApiKey


def admin_handlers(
    replicas: ReplicaManager,
    brokers: Brokers,
    topics: Topics,
    moves: LogDirMoves,
    check_addresses: CheckAddresses = any_addresses,
) -> HandlerTable:
    """Return the part of the dispatch table for settings, log directories and the deletion of records."""
    configs = Configs(brokers, topics, replicas.metadata, replicas.clock, check_addresses)
    log_dirs = LogDirs(replicas, moves)
    return {
        ApiKey.DESCRIBE_CONFIGS: lambda request, context: configs.describe(request, context.deadline_ms),
        ApiKey.ALTER_CONFIGS: lambda request, context: configs.replace(request, context.deadline_ms),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request, context: configs.alter(request, context.deadline_ms),
        ApiKey.ALTER_REPLICA_LOG_DIRS: lambda request, _: alter_replica_log_dirs(moves, request),
        ApiKey.DESCRIBE_LOG_DIRS: lambda request, _: log_dirs.describe(request),
        ApiKey.DELETE_RECORDS: lambda request, context: delete_records(replicas, request, context),
    }
