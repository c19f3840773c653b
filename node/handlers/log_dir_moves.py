"""AlterReplicaLogDirs: move this broker's replicas between its log directories (KIP-113)."""

from __future__ import annotations

import logging
from typing import Protocol

from tidelog.errors import BrokerError
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    ReplicaLogDir,
    ReplicaLogDirResult,
)

log = logging.getLogger(__name__)


class Moves(Protocol):
    """The part of `node.replication.log_dir_moves.LogDirMoves` that begins and ends moves."""

    async def alter(self, tp: TopicPartition, path: str) -> None: ...


async def alter_replica_log_dirs(moves: Moves, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Begin the move of each named replica, one after the other, and return a result for each."""
    return AlterReplicaLogDirsResponse(tuple([await _alter(moves, each) for each in request.replicas]))


async def _alter(moves: Moves, wanted: ReplicaLogDir) -> ReplicaLogDirResult:
    tp = TopicPartition(wanted.topic, wanted.partition)
    try:
        await moves.alter(tp, wanted.log_dir)
    except BrokerError as error:
        log.warning("%s: not moved to %.200r: %s", tp, wanted.log_dir, error)
        return ReplicaLogDirResult(*tp, error.code, str(error))
    return ReplicaLogDirResult(*tp, 0)
