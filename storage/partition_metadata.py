"""`partition.metadata`: which topic a log belongs to, since a name may be used again.

version: 0
topic_id: AAAAAAAAAAAAAAAAAAAAAQ
crc32c: 9e4d7c3a                    of the lines above; Kafka writes none, and reads no further than the id

A log whose id is another than the cluster's is that of an earlier topic, and no record of it may be seen again. So the
id of a log must not change by damage: what the checksum contradicts is no id at all, and the log, which is then taken
to be that of the topic of its name, keeps its records. An id without a checksum may be damaged or not.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from storage.files import Files

_LOG = logging.getLogger(__name__)

FILE_NAME = "partition.metadata"

_LINES = re.compile(
    r"version: 0\ntopic_id: (?P<id>[A-Za-z0-9_-]+)(?P<end>\n(crc32c: (?P<crc>[0-9a-f]{8})\n)?)?", re.ASCII
)
_ID_LENGTH = 22


class PartitionMetadata(NamedTuple):
    """`topic_id` in base64url, "" where it is not known; `proven`: it is the very one that was written."""

    topic_id: str
    proven: bool


UNKNOWN = PartitionMetadata("", False)


def read(files: Files, directory: Path) -> PartitionMetadata:
    """Of the log in `directory`; `UNKNOWN` where the file is missing, or damaged, which is reported."""
    data = files.read(directory / FILE_NAME)
    if data is None:
        return UNKNOWN
    found = parse(data)
    if found is None:
        _LOG.error(
            "%s is damaged: the log is taken to be that of the topic that has its name now", directory / FILE_NAME
        )
    return found or UNKNOWN


def parse(data: bytes) -> PartitionMetadata | None:
    """What the file says; None where it is damaged. The beginning of an id is no id."""
    match = _LINES.fullmatch(data.decode("ascii", "replace"))
    if match is None or (match["end"] is None and len(match["id"]) != _ID_LENGTH):  # Kafka ends the file with the id
        return None
    crc = match["crc"]
    if crc is None:
        return PartitionMetadata(match["id"], False)
    return PartitionMetadata(match["id"], True) if data == _encode(match["id"]) else None


def write(files: Files, directory: Path, topic_id: str) -> None:
    """Not synced: a thousand of them would take seconds, and a log that loses its id is adopted by the next topic."""
    files.replace(directory / FILE_NAME, _encode(topic_id), sync=False)


def _encode(topic_id: str) -> bytes:
    lines = f"version: 0\ntopic_id: {topic_id}\n".encode("ascii")
    return lines + f"crc32c: {crc32c(lines):08x}\n".encode("ascii")


def differ(topic_id: str, other: str | None) -> bool:
    """The other topic does not exist (None), or both ids are known and not the same."""
    return other is None or bool(topic_id and other and topic_id != other)
