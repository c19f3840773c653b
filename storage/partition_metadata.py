"""`partition.metadata`: the topic id of a log, because a later topic may have the same name.

version: 0
topic_id: AAAAAAAAAAAAAAAAAAAAAQ
crc32c: 9e4d7c3a                    of the lines above; Kafka neither writes nor reads this line

A log whose id differs from the cluster's belongs to an earlier topic, and its records must never be read again. Damage
must therefore not change an id. If the checksum does not match, the id counts as unknown; the log is then taken as the
log of the current topic of its name and keeps its records. An id without a checksum may be damaged.
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
    """`topic_id` is in base64url, "" if unknown. `proven`: the checksum confirms the id."""

    topic_id: str
    proven: bool


UNKNOWN = PartitionMetadata("", False)


def read(files: Files, directory: Path) -> PartitionMetadata:
    """Return the metadata of the log in `directory`; `UNKNOWN` if the file is missing or damaged. Damage is logged."""
    data = files.read(directory / FILE_NAME)
    if data is None:
        return UNKNOWN
    found = parse(data)
    if found is None:
        _LOG.error("%s is damaged: the log is used for the current topic of its name", directory / FILE_NAME)
    return found or UNKNOWN


def parse(data: bytes) -> PartitionMetadata | None:
    """Return the metadata in the file; None if it is damaged. A truncated id counts as damage."""
    match = _LINES.fullmatch(data.decode("ascii", "replace"))
    if match is None or (match["end"] is None and len(match["id"]) != _ID_LENGTH):  # Kafka ends the file with the id
        return None
    crc = match["crc"]
    if crc is None:
        return PartitionMetadata(match["id"], False)
    return PartitionMetadata(match["id"], True) if data == _encode(match["id"]) else None


def write(files: Files, directory: Path, topic_id: str) -> None:
    """Write the file without a flush, because a thousand flushes would take seconds.

    A log that loses its id in a power failure gets the id of the current topic.
    """
    files.replace(directory / FILE_NAME, _encode(topic_id), fsync=False)


def _encode(topic_id: str) -> bytes:
    lines = f"version: 0\ntopic_id: {topic_id}\n".encode("ascii")
    return lines + f"crc32c: {crc32c(lines):08x}\n".encode("ascii")


def differ(topic_id: str, other: str | None) -> bool:
    """Return whether the other topic does not exist (None), or both ids are known and differ."""
    return other is None or bool(topic_id and other and topic_id != other)
