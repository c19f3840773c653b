"""`lost-logs`: partitions that this broker had, and whose logs are gone, or set aside in doubt.

Gone are those of a log directory that was found empty, and those of which the high watermarks' checkpoint knows that
something was committed. In doubt are those whose `partition.metadata` names another
topic and has no checksum: the cluster's topic may have been made anew, or the id damaged.

    0
    1
    orders 0 AAAAAAAAAAAAAAAAAAAAAQ      topic, partition, topic id

As long as the cluster counts such a replica as in sync, it must not come back with an empty log: as a leader it would
make the others throw away what they have. Once it is out of the ISR it may begin anew and fetch everything.
Written into every log directory, since the next one to go may be any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from storage.checkpoints import read_lines, write_lines
from storage.files import Files
from tidelog.model import TopicPartition

FILE_NAME = "lost-logs"


def read(files: Files, directory: Path) -> dict[TopicPartition, str]:
    """The topic ids by partition."""
    found: dict[TopicPartition, str] = {}
    for fields in read_lines(files, directory / FILE_NAME) or ():
        if len(fields) == 3 and fields[1].isdecimal():
            found[TopicPartition(fields[0], int(fields[1]))] = fields[2]
    return found


def write(files: Files, directory: Path, lost: Mapping[TopicPartition, str]) -> None:
    """Replaces the file durably; no file where nothing is lost."""
    if lost:
        lines = ((tp.topic, tp.partition, topic_id) for tp, topic_id in sorted(lost.items()))
        write_lines(files, directory / FILE_NAME, lines, sync=True)
    else:
        files.remove(directory / FILE_NAME)
