"""Reads whole batches from the segments of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from struct import Struct

from storage.files import File
from storage.log.leader_epochs import LeaderEpochs
from storage.segments.file_slice import FileSlice
from storage.segments.log_segments import Segments
from storage.segments.segment import Segment
from tidelog.errors import CorruptMessageError, StorageError
from tidelog.model import Buffer
from tidelog.records import HEADER_BYTES, LENGTH_OVERHEAD, read_header

_OUTLINE = Struct(">qii7xi")  # base offset, batch length, leader epoch, last offset delta
_OFFSET = Struct(">q")
#: Below this size, or with smaller first batches, a read with a copy costs less than a slice.
LEAST_SLICE_BYTES = 64 * 1024
_LEAST_BATCH_BYTES = 16 * 1024
#: The most batches of a slice.
_SLICED_BATCHES = 256
_POSITIONS_KEPT = 32
_NO_EPOCH = -1  # the leader epoch of a batch written before KIP-101


class LogReader:
    """Remembers the position after each recent read, so that a sequential reader needs no index.

    Clients check the CRC, which covers neither the base offset nor the leader epoch. The reader compares both with the
    neighbouring batches and with the epoch cache, and returns no batch that contradicts them.

    The owner calls `forget` before segments are truncated, removed or replaced.
    """

    def __init__(self, segments: Segments, epochs: LeaderEpochs) -> None:
        self._segments = segments
        self._epochs = epochs
        self._positions: dict[int, tuple[Segment, int]] = {}

    def read(self, offset: int, max_bytes: int, end_offset: int, at_least_one: bool) -> Buffer:
        """Read as `Log.read`, from an offset that is in the log and below `end_offset`, which is at most the log end.

        The result may be empty at the end of the log, because Kafka's cleaner may remove the last batches of a segment.
        """
        located, least = self._located(offset)
        if located is None:
            return b""
        segment, position = located
        data = segment.log.read(position, min(max(max_bytes, HEADER_BYTES), segment.size - position))
        size = min(max_bytes, len(data))
        outlines = _outlines_in(data, size)
        length, next_offset = self._whole_batches(segment, position, size, outlines, offset, least, end_offset)
        if not length:
            header = read_header(data)
            length, next_offset = header.size_bytes, header.next_offset
            if header.base_offset < least or not self._fits(
                segment, position + length, header.base_offset, next_offset, header.partition_leader_epoch, offset
            ):
                raise CorruptMessageError(
                    f"{segment.log.path}: the batch at position {position} does not belong to offset {offset}"
                )
            if not at_least_one or header.base_offset >= end_offset:
                return b""
            data = segment.log.read(position, length)
            if len(data) < length:
                raise CorruptMessageError(f"{segment.log.path}: the batch at position {position} is incomplete")
        self._remember(next_offset, segment, position + length)
        # A partial batch at the end is dropped with a view, because a copy of all other bytes would cost more.
        return data if length == len(data) else memoryview(data)[:length]

    def slice(
        self, offset: int, max_bytes: int, end_offset: int, on_failure: Callable[[StorageError], None]
    ) -> FileSlice | None:
        """Return the first batches (at most 256) of `read` without reading their records; None if `read` costs less.

        `read` costs less for a few bytes and for small batches, because each batch's header is read by itself here.
        None also if the file was cut off, because `read` returns what is left and then names the damage.
        """
        located, least = self._located(offset)
        if located is None:
            return None
        segment, position = located
        size = min(max_bytes, segment.size - position)
        if size < LEAST_SLICE_BYTES or segment.log.size() < segment.size:
            return None
        outlines = _outlines_of(segment.log, position, size)
        length, next_offset = self._whole_batches(segment, position, size, outlines, offset, least, end_offset)
        if length < LEAST_SLICE_BYTES:
            return None
        self._remember(next_offset, segment, position + length)
        return FileSlice(segment.log, position, length, on_failure)

    def bytes_between(self, offset: int, end_offset: int) -> int | None:
        """Return the bytes from the batch with `offset` to that with `end_offset`; None if a segment ends between them.

        0 if no batch ends at or after `offset`.
        """
        start = self._remembered(offset) or self._segments.locate(offset)
        if start is None:
            return 0
        active = self._segments.active
        end = self._segments.locate(end_offset) if end_offset < active.next_offset else None
        segment, end_position = end or (active, active.size)
        return end_position - start[1] if segment is start[0] else None

    def forget(self) -> None:
        self._positions.clear()

    def _located(self, offset: int) -> tuple[tuple[Segment, int] | None, int]:
        """Return where to read an offset, and the lowest base offset of the batch there; (None, 0) if there is none."""
        located = self._remembered(offset)
        return (located, offset) if located is not None else (self._segments.locate(offset), 0)

    def _remembered(self, offset: int) -> tuple[Segment, int] | None:
        located = self._positions.get(offset)
        return located if located is not None and located[1] < located[0].size else None

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._positions) >= _POSITIONS_KEPT and offset not in self._positions:
            del self._positions[next(iter(self._positions))]
        self._positions[offset] = (segment, position)

    def _whole_batches(
        self,
        segment: Segment,
        start: int,
        size: int,
        outlines: Iterable[tuple[int, int, int, int]],
        offset: int,
        least: int,
        end_offset: int,
    ) -> tuple[int, int]:
        """Return how many of the `size` bytes from position `start` on are whole batches that begin below `end_offset`
        and that `_fits` accepts, and the offset after them.

        `outlines` are those of the batches there. `offset` is the reader's offset, and `least` the lowest base offset
        of the first batch. (0, `offset`) if the first batch does not qualify.
        """
        position, expected = 0, offset
        epoch, epoch_end = self._epoch_at(offset, end_offset)
        for base_offset, batch_length, batch_epoch, last_offset_delta in outlines:
            following = position + batch_length + LENGTH_OVERHEAD
            if following > size or batch_length <= 0:
                break
            if base_offset != expected or batch_epoch != epoch or base_offset >= epoch_end:
                if (
                    base_offset >= end_offset
                    or base_offset < (expected if position else least)
                    or not self._fits(
                        segment,
                        start + following,
                        base_offset,
                        base_offset + last_offset_delta + 1,
                        batch_epoch,
                        expected,
                    )
                ):
                    break
                epoch, epoch_end = batch_epoch, self._epoch_at(base_offset, end_offset)[1]
            position, expected = following, base_offset + last_offset_delta + 1
        return position, expected

    def _epoch_at(self, offset: int, end_offset: int) -> tuple[int | None, int]:
        """Return the epoch of the offset and the offset at which the epoch ends, at most `end_offset`."""
        epoch, epoch_end = self._epochs.span_of(offset)
        return epoch, end_offset if epoch_end is None else min(epoch_end, end_offset)

    def _fits(self, segment: Segment, end: int, base_offset: int, next_offset: int, epoch: int, expected: int) -> bool:
        """Return whether a batch that ends at position `end` may answer a reader at the offset `expected`."""
        known = self._epochs.span_of(max(base_offset, expected))[0]
        if next_offset <= expected or epoch < _NO_EPOCH or (epoch != _NO_EPOCH and known not in (None, epoch)):
            return False
        return base_offset <= expected or next_offset <= self._offset_at(segment, end)

    def _offset_at(self, segment: Segment, position: int) -> int:
        """Return the base offset of the batch at this position; the offset after the segment if the segment ends there.

        −1 if the file ends too early.
        """
        if position < segment.size:
            data = segment.log.read(position, _OFFSET.size)
            return int(_OFFSET.unpack(data)[0]) if len(data) == _OFFSET.size else -1
        return self._segments.offset_after(segment)


def _outlines_in(data: bytes, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the outline of each batch that begins in the first `size` bytes."""
    position, last = 0, size - HEADER_BYTES
    unpack = _OUTLINE.unpack_from
    while position <= last:
        outline = unpack(data, position)
        yield outline
        position += outline[1] + LENGTH_OVERHEAD


def _outlines_of(file: File, start: int, size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the outlines of the first 256 batches in the `size` bytes from `start` on; none if the first is small."""
    position, last = 0, size - HEADER_BYTES
    for number in range(_SLICED_BATCHES):
        if position > last:
            return
        outline = _OUTLINE.unpack(file.read(start + position, _OUTLINE.size))
        if number == 0 and outline[1] < _LEAST_BATCH_BYTES:
            return
        yield outline
        position += outline[1] + LENGTH_OVERHEAD
