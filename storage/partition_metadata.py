"""`partition.metadata`: which topic a log belongs to, since a name may be used again.

version: 0
topic_id: AAAAAAAAAAAAAAAAAAAAAQ
"""

from __future__ import annotations

import re
from pathlib import Path

from storage.files import Files

FILE_NAME = "partition.metadata"

_WHOLE_ID = re.compile(r"[A-Za-z0-9_-]{22}")


def read_topic_id(files: Files, directory: Path) -> str:
    """The base64url topic id; "" where the file is missing or damaged.

    The beginning of an id is no id, or a power failure could make a log that of another topic.
    """
    data = files.read(directory / FILE_NAME)
    if data is None:
        return ""
    text = data.decode("ascii", "replace")
    fields = dict(line.partition(": ")[::2] for line in text.splitlines())
    topic_id = fields.get("topic_id", "") if fields.get("version") == "0" else ""
    return topic_id if text.endswith("\n") or _WHOLE_ID.fullmatch(topic_id) else ""  # Kafka ends the file with the id


def write_topic_id(files: Files, directory: Path, topic_id: str) -> None:
    """Not synced: a thousand of them would take seconds, and a log that loses its id is adopted by the next topic."""
    files.replace(directory / FILE_NAME, f"version: 0\ntopic_id: {topic_id}\n".encode("ascii"), sync=False)
