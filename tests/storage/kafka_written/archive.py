"""The contents of an archive of files that Kafka wrote, and the records that the client knows of."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path
from typing import NamedTuple

LOGS, WRITTEN, PRODUCERS = "logs", "written.jsonl", "producers.txt"


class Written(NamedTuple):
    """A record at the offset and with the time that Kafka reported; the rest as the client sent it."""

    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def unpack(archive: Path, destination: Path) -> Path:
    """Return the directory in the archive."""
    with tarfile.open(archive) as packed:
        packed.extractall(destination, filter="data")
    return destination / archive.name.partition(".")[0]


def to_line(record: Written) -> str:
    """A line of `WRITTEN`."""
    headers = [[name, _text(value)] for name, value in record.headers]
    fields = [record.topic, record.offset, record.timestamp, _text(record.key), _text(record.value), headers]
    return json.dumps(fields, ensure_ascii=False)


def read_written(directory: Path) -> list[Written]:
    """Return the records that the client wrote, by topic and in the order of their offsets."""
    lines = (directory / WRITTEN).read_text().splitlines()
    return [
        Written(topic, offset, timestamp, _bytes(key), _bytes(value), tuple((n, _bytes(v)) for n, v in headers))
        for topic, offset, timestamp, key, value, headers in map(json.loads, lines)
    ]


def _text(content: bytes | None) -> str | None:
    return None if content is None else base64.b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
