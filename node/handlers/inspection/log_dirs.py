"""DescribeLogDirs: list the replicas in each log directory, its disk space, and the directories that have failed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from node.replication.replica_manager import ReplicaManager
from tidelog.errors import StorageError
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import DescribeLogDirsRequest, DescribeLogDirsResponse, LogDir, LogDirReplica

#: The time after which the answer leaves the disk space of a hanging disk out.
_TIMEOUT_S = 1.0
_UNKNOWN_SPACE = (-1, -1)


class FutureLog(Protocol):
    """The part of `storage.moves.future_log.FutureLog` that is described."""

    topic_partition: TopicPartition

    @property
    def path(self) -> Path: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def end_offset(self) -> int | None: ...


class Moves(Protocol):
    """The part of `node.replication.log_dir_moves.LogDirMoves` that lists the future logs."""

    @property
    def in_progress(self) -> Iterable[FutureLog]: ...


class LogDirs:
    """The handler of DescribeLogDirs. At most one thread reads disk spaces, even while a disk hangs."""

    def __init__(self, replicas: ReplicaManager, moves: Moves) -> None:
        self._replicas = replicas
        self._moves = moves
        self._pending_query: asyncio.Future[dict[Path, tuple[int, int]]] | None = None

    async def describe(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Return all log directories, each with the requested partitions (None: all) in it.

        A failed directory has its error instead. Disk space is −1 if it cannot be read, and in all directories if one
        disk does not answer within `_TIMEOUT_S`.
        """
        held = self._replicas.log_sizes()
        spaces = await self._spaces(list(held))
        wanted = None
        if request.partitions is not None:
            wanted = {TopicPartition(each.topic, each.partition) for each in request.partitions}
        dirs = []
        for path, sizes in held.items():
            if isinstance(sizes, StorageError):
                dirs.append(LogDir(str(path), sizes.code, str(sizes)))
            else:
                chosen = {tp: size for tp, size in sorted(sizes.items()) if wanted is None or tp in wanted}
                total, usable = spaces.get(path, _UNKNOWN_SPACE)
                futures = (
                    future
                    for future in self._moves.in_progress
                    if future.path.parent == path and (wanted is None or future.topic_partition in wanted)
                )
                found = _replicas_in(self._replicas, chosen) + tuple(_future(self._replicas, each) for each in futures)
                dirs.append(LogDir(str(path), 0, None, found, total, usable))
        return DescribeLogDirsResponse(tuple(dirs))

    async def _spaces(self, paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
        """Return the total and the free bytes of each path, or no entries if a disk does not answer in time."""
        if self._pending_query is None:
            self._pending_query = asyncio.ensure_future(
                self._replicas.offload(lambda: {path: _space(path) for path in paths})
            )
        query = self._pending_query
        done, _ = await asyncio.wait({query}, timeout=_TIMEOUT_S)
        if not done:
            return {}
        if self._pending_query is query:  # another request may have started a new query meanwhile
            self._pending_query = None
        return query.result()


def _replicas_in(replicas: ReplicaManager, sizes: Mapping[TopicPartition, int]) -> tuple[LogDirReplica, ...]:
    return tuple(LogDirReplica(*tp, size, _lag(replicas, tp)) for tp, size in sizes.items())


def _lag(replicas: ReplicaManager, tp: TopicPartition) -> int:
    replica = replicas.get(tp)
    return 0 if replica is None else max(0, replica.partition.high_watermark - replica.log.log_end_offset)


def _future(replicas: ReplicaManager, future: FutureLog) -> LogDirReplica:
    replica = replicas.get(future.topic_partition)
    lag = 0 if replica is None else max(0, replica.log.log_end_offset - (future.end_offset or 0))
    return LogDirReplica(*future.topic_partition, future.size_bytes, lag, is_future=True)


def _space(path: Path) -> tuple[int, int]:
    """Return the total and the free bytes of the disk, or (−1, −1) if they cannot be read."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return _UNKNOWN_SPACE
    return usage.total, usage.free
