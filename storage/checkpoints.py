"""Kafka's checkpoint files: small text files of a log directory.

    0                      version
    2                      number of entries
    orders 0 4711          topic, partition, offset (the leader epoch file: epoch, start offset)
    orders 1 12

A file is replaced as a whole, so a reader finds the old or the new content. A damaged file is read as if it were
missing.
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
    """Return the unchecked fields of each entry; None if the file is missing, truncated or of another version."""
    data = files.read(path)
    if data is None:
        return None
    try:
        version, count, *lines = data.decode("ascii").splitlines()
        if not data.endswith(b"\n"):
            return None  # truncated: the last number may lack digits
        if version != _VERSION or int(count) != len(lines):
            return None
    except ValueError:
        return None
    return [line.split(" ") for line in lines]


def whole_number(text: str, most: int) -> int:
    """Return the number from 0 to `most`. ValueError for another, because no log can have it: the file is damaged."""
    value = int(text)
    if not 0 <= value <= most:
        raise ValueError(f"{text} is not in [0, {most}]")
    return value


def write_lines(files: Files, path: Path, lines: Iterable[str], *, fsync: bool) -> None:
    """Replace the file by one with these entries, which are fields with a space between two; with `fsync`, flush it."""
    rows = list(lines)
    files.replace(path, "\n".join([_VERSION, str(len(rows)), *rows, ""]).encode("ascii"), fsync=fsync)


def read_offsets(files: Files, path: Path) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint by partition; empty if the file is missing or damaged."""
    offsets: dict[TopicPartition, int] = {}
    try:
        for topic, partition, offset in read_lines(files, path) or ():
            tp = TopicPartition(validate_topic(topic), whole_number(partition, INT32_MAX))
            offsets[tp] = whole_number(offset, INT64_MAX)
    except (ValueError, InvalidTopicError):
        return {}
    return offsets


def write_offsets(files: Files, path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint by one with these offsets, ordered by partition, and flush it."""
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
    write_lines(files, path, lines, fsync=True)
