"""Make batches as a leader returns them: with offsets and a leader epoch."""

from __future__ import annotations

from tidelog.records import MarkerKind, encode_batch, encode_control_batch
from tidelog.records.header import HEADER, assign_offsets, seal


def a_batch(offset: int, *, epoch: int = 5, values: int = 1) -> memoryview:
    return _at(offset, epoch, bytearray(encode_batch([(1, None, b"v", ())] * values)))


def unreadable_batch(offset: int, *, epoch: int = 5) -> memoryview:
    """Return a batch with a right CRC whose bytes are no record."""
    batch = bytearray(encode_batch([(1, None, b"v", ())]))
    batch[HEADER.size :] = b"\xff" * (len(batch) - HEADER.size)
    seal(batch, 0, len(batch))
    return _at(offset, epoch, batch)


def control_batch(offset: int, *, epoch: int = 5) -> memoryview:
    marker = encode_control_batch(
        MarkerKind.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp_ms=1
    )
    return _at(offset, epoch, bytearray(marker))


def _at(offset: int, epoch: int, batch: bytearray) -> memoryview:
    assign_offsets(batch, 0, offset, epoch)
    return memoryview(bytes(batch))
