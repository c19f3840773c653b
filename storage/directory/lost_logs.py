"""`lost-logs`: partitions of this broker whose logs are missing, or were set aside although they may be valid.

A log counts as missing if a log directory was found empty, or if the high-watermark checkpoint shows that the log held
committed records. A log may be valid although its `partition.metadata` names another topic id, if that file has no
checksum: either the topic was created again, or the id is damaged.

    0
    1
    orders 0 AAAAAAAAAAAAAAAAAAAAAQ      topic, partition, topic id

While such a replica is in the ISR, it must not start with an empty log: as leader it would make the followers truncate
their logs. Once it has left the ISR, it may start empty and fetch everything. The file is written into every log
directory, because any of them may be lost next.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from storage.checkpoints import read_lines, write_lines
from storage.files import Files
from tidelog.model import TopicPartition

FILE_NAME = "lost-logs"


def read(files: Files, directory: Path) -> dict[TopicPartition, str]:
    """Return the topic ids of the lost logs by partition, without damaged entries; empty if there is no valid file."""
    found: dict[TopicPartition, str] = {}
    for fields in read_lines(files, directory / FILE_NAME) or ():
        if len(fields) == 3 and fields[1].isdecimal():
            found[TopicPartition(fields[0], int(fields[1]))] = fields[2]
    return found


def write(files: Files, directory: Path, lost: Mapping[TopicPartition, str]) -> None:
    """Replace the file and flush it. Remove the file, without a flush, if nothing is lost. StorageError."""
    if lost:
        lines = (f"{topic} {partition} {topic_id}" for (topic, partition), topic_id in sorted(lost.items()))
        write_lines(files, directory / FILE_NAME, lines, fsync=True)
    else:
        files.remove(directory / FILE_NAME)
