"""`partition.metadata`: which topic a log belongs to, since a name may be used again.

version: 0
topic_id: AAAAAAAAAAAAAAAAAAAAAQ
"""

from __future__ import annotations

from pathlib import Path

from storage.files import Files

FILE_NAME = "partition.metadata"


def read_topic_id(files: Files, directory: Path) -> str:
    """The base64url topic id; "" where the file is missing or damaged."""
    data = files.read(directory / FILE_NAME)
    if data is None:
        return ""
    fields = dict(line.partition(": ")[::2] for line in data.decode("ascii", "replace").splitlines())
    return fields.get("topic_id", "") if fields.get("version") == "0" else ""


def write_topic_id(files: Files, directory: Path, topic_id: str) -> None:
    """Not synced: a thousand of them would take seconds, and a log that loses its id is adopted by the next topic."""
    files.replace(directory / FILE_NAME, f"version: 0\ntopic_id: {topic_id}\n".encode("ascii"), sync=False)
