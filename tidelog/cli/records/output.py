"""Writes records to standard output, as lines or JSON lines."""

from __future__ import annotations

from typing import BinaryIO

from tidelog.cli.records.record_lines import format_json, format_plain
from tidelog.cli.records.rows import Rows
from tidelog.cli.terminal.progress import Progress


class RecordWriter:
    """Writes records to a stream, as lines or JSON lines (`form` is `lines` or `json`)."""

    def __init__(self, stream: BinaryIO, form: str, progress: Progress) -> None:
        self._stream = stream
        self._json = form == "json"
        self._progress = progress

    def write(self, rows: Rows) -> None:
        """Write a line for each record into the stream's buffer, and advance the progress."""
        lines = _json_lines(rows) if self._json else format_plain(rows.columns.values)
        self._stream.write(lines)
        self._progress.advance(rows.record_count, len(lines))

    def flush(self) -> None:
        """Pass the written lines to the operating system; OSError if that fails, for example at a closed pipe."""
        self._stream.flush()


def _json_lines(rows: Rows) -> bytes:
    topic, partition = rows.topic_partition
    return b"".join(
        [
            format_json(
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp_ms=timestamp_ms,
                timestamp_type=rows.timestamp_type,
                leader_epoch=rows.leader_epoch,
                key=key,
                value=value,
                headers=headers,
            )
            for offset, timestamp_ms, key, value, headers in zip(*rows.columns, strict=True)
        ]
    )
