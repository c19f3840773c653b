"""Reading whole batches out of a row of segments."""

from __future__ import annotations

from struct import Struct

from storage.segment import Segment
from storage.segments import Segments
from tidelog.errors import CorruptMessageError
from tidelog.records import HEADER_BYTES, LENGTH_OVERHEAD, read_header

_OUTLINE = Struct(">qi11xi")  # base offset, batch length, last offset delta: what a reader needs to cut at batches
_POSITIONS_KEPT = 32


class Reader:
    """Remembers where the batch after a recent read begins, so that who reads on needs no index.

    `forget` when segments are cut or taken away.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._positions: dict[int, tuple[Segment, int]] = {}

    def read(self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> bytes:
        """As `Log.read`, for an offset that the log holds or that compaction took; `end_offset` is within the log.

        Empty too where nothing is left up to the log end: Kafka's cleaner may take the last batches of a segment.
        """
        located = self._positions.get(offset)
        if located is None or located[1] >= located[0].size:
            located = self._segments.locate(offset)
            if located is None:
                return b""
        segment, position = located
        data = segment.log.read(position, min(max(max_bytes, HEADER_BYTES), segment.size - position))
        length, next_offset = _whole_batches(data, max_bytes, end_offset)
        if not length:
            header = read_header(data)
            if header.next_offset > segment.next_offset:
                raise CorruptMessageError(f"{segment.log.path}: the batch at {position} claims {header.base_offset}")
            if not at_least_one or header.base_offset >= end_offset:
                return b""
            length, next_offset = header.size_bytes, header.next_offset
            data = segment.log.read(position, length)
            if len(data) < length:
                raise CorruptMessageError(f"{segment.log.path}: the batch at {position} is cut off")
        self._remember(next_offset, segment, position + length)
        return data[:length]

    def forget(self) -> None:
        self._positions.clear()

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._positions) >= _POSITIONS_KEPT and offset not in self._positions:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = (segment, position)


def _whole_batches(data: bytes, max_bytes: int, end_offset: int) -> tuple[int, int]:
    """How many bytes are whole batches below `end_offset`, and the offset after them."""
    position, next_offset, size = 0, -1, min(len(data), max_bytes)
    outline = _OUTLINE.unpack_from
    while size - position >= HEADER_BYTES:
        base_offset, batch_length, last_offset_delta = outline(data, position)
        if batch_length <= 0:
            raise CorruptMessageError(f"batch length {batch_length} after offset {next_offset}")
        following = position + batch_length + LENGTH_OVERHEAD
        if base_offset >= end_offset or following > size:
            break
        position, next_offset = following, base_offset + last_offset_delta + 1
    return position, next_offset
