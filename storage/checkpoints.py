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
from tidelog.records.varint import INT32_MAX, INT64_MAX

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


def whole_number(text: str, most: int) -> int:
    """From 0 to `most`. ValueError for another, which no log can have: the file is damaged."""
    value = int(text)
    if not 0 <= value <= most:
        raise ValueError(f"{text} is not in [0, {most}]")
    return value


def write_lines(files: Files, path: Path, lines: Iterable[Iterable[object]], *, sync: bool) -> None:
    """Replaces the file; durably with `sync`."""
    rows = [" ".join(map(str, line)) for line in lines]
    files.replace(path, "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode("ascii"), sync=sync)


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint by partition; empty where it is missing or damaged."""
    offsets: dict[TopicPartition, int] = {}
    try:
        for topic, partition, offset in read_lines(files, path) or ():
            tp = TopicPartition(validate_topic(topic), whole_number(partition, INT32_MAX))
            offsets[tp] = whole_number(offset, INT64_MAX)
    except (ValueError, InvalidTopicError):
        return {}
    return offsets


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replaces the checkpoint durably."""
    write_lines(files, path, ((tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items())), sync=True)
