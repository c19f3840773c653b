"""DescribeLogDirs: what lies in which directory, and which of them no longer works."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from node.replicas import Replicas
from tidelog.admin_messages import DescribeLogDirsRequest, DescribeLogDirsResponse, LogDir, LogDirReplica
from tidelog.errors import StorageError
from tidelog.model import TopicPartition


async def describe_log_dirs(replicas: Replicas, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Every directory of this broker, with those of the partitions in it that were asked for."""
    held = replicas.log_sizes()
    # A disk that hangs answers nothing, so it is not asked on the loop.
    spaces = await replicas.offload(lambda: {path: _space(path) for path in held})
    wanted = None
    if request.partitions is not None:
        wanted = {TopicPartition(each.topic, each.partition) for each in request.partitions}
    dirs = []
    for path, sizes in held.items():
        if isinstance(sizes, StorageError):
            dirs.append(LogDir(str(path), sizes.code, str(sizes)))
        else:
            chosen = {tp: size for tp, size in sorted(sizes.items()) if wanted is None or tp in wanted}
            dirs.append(LogDir(str(path), 0, None, _replicas_in(replicas, chosen), *spaces[path]))
    return DescribeLogDirsResponse(tuple(dirs))


def _replicas_in(replicas: Replicas, sizes: Mapping[TopicPartition, int]) -> tuple[LogDirReplica, ...]:
    return tuple(LogDirReplica(*tp, size, _lag(replicas, tp)) for tp, size in sizes.items())


def _lag(replicas: Replicas, tp: TopicPartition) -> int:
    replica = replicas.get(tp)
    return 0 if replica is None else max(0, replica.partition.high_watermark - replica.log.log_end_offset)


def _space(path: Path) -> tuple[int, int]:
    """(all bytes, those that are free) of the disk; −1 where it does not say."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return -1, -1
    return usage.total, usage.free
