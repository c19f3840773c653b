"""Where records go: standard output, as lines or JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from tidelog.cli.progress import Progress
from tidelog.cli.record_lines import format_json, format_plain

if TYPE_CHECKING:
    from tidelog.fetch_buffer import ConsumerRecord


class Sink:
    """`form` is `json` or `lines`; what is written has left this process once `flush` returns."""

    def __init__(self, stream: BinaryIO, form: str, progress: Progress) -> None:
        self._stream = stream
        self._json = form == "json"
        self._progress = progress

    def write(self, records: Sequence[ConsumerRecord]) -> None:
        if self._json:
            lines = b"".join([_json(each) for each in records])
        else:
            lines = format_plain([each.value for each in records])
        self._stream.write(lines)
        self._progress.advance(len(records), len(lines))

    def flush(self) -> None:
        self._stream.flush()


def _json(record: ConsumerRecord) -> bytes:
    return format_json(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        timestamp_type=record.timestamp_type,
        leader_epoch=record.leader_epoch,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
