"""Small text files of a data directory: Kafka's checkpoints.

    0                      version
    2                      how many lines follow
    orders 0 4711          topic, partition, offset (the leader epoch file: epoch, start offset)
    orders 1 12

They are replaced whole, so a reader finds the old content or the new one. A file that does not say what it should is
no checkpoint: its reader gets None and does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from storage.files import Files
from tidelog.errors import InvalidTopicError
from tidelog.model import TopicPartition, validate_topic

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_VERSION = "0"


def read_lines(files: Files, path: Path) -> list[list[str]] | None:
    """The fields of each line; None where there is no file or it is damaged."""
    data = files.read(path)
    if data is None:
        return None
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if not data.endswith(b"\n"):
            return None  # torn: the last number may only be the beginning of one
        if version != _VERSION or int(count) != len(lines):
            return None
    except ValueError:
        return None
    return [line.split(" ") for line in lines]


def write_lines(files: Files, path: Path, lines: Iterable[Iterable[object]], *, sync: bool) -> None:
    """Replaces the file; durably with `sync`."""
    rows = [" ".join(map(str, line)) for line in lines]
    files.replace(path, "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode("ascii"), sync=sync)


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint by partition; empty where it is missing or damaged."""
    offsets: dict[TopicPartition, int] = {}
    try:
        for topic, partition, offset in read_lines(files, path) or ():
            if int(offset) < 0 or int(partition) < 0:
                return {}
            offsets[TopicPartition(validate_topic(topic), int(partition))] = int(offset)
    except (ValueError, InvalidTopicError):
        return {}
    return offsets


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the checkpoint durably."""
    write_lines(files, path, ((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items())), sync=True)
