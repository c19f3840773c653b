"""Build record values that reveal changes, cuts and wrong places: an id, filler derived from the id, and a CRC.

bytes 0–7       the id, big-endian: producer << 40 | sequence
bytes 8 … −5    eight bytes derived from the id, repeated and cut to the size
last four       CRC-32 of all bytes before, big-endian (not the CRC-32C of the batch)
"""

from __future__ import annotations

import zlib

from tidelog.history.columns import DAMAGED, SEQUENCE_BITS

#: The size of an id and a CRC without filler.
SMALLEST_BYTES = 12
_PRODUCERS = 1 << 23
#: An odd factor (2^64 over the golden ratio), so that different ids have different fillers.
_SCATTER = 0x9E3779B97F4A7C15
_WORD = (1 << 64) - 1


def make_id(producer: int, sequence: int) -> int:
    """Return the id of a record, which fits into 63 bits. Raise ValueError for a producer outside of [0, 2^23) or a
    sequence outside of [0, 2^40).
    """
    if not (0 <= producer < _PRODUCERS and 0 <= sequence < 1 << SEQUENCE_BITS):
        raise ValueError(f"producer {producer}, sequence {sequence}: no such id")
    return producer << SEQUENCE_BITS | sequence


def producer_of(record_id: int) -> int:
    """Return the number of the producer in an id."""
    return record_id >> SEQUENCE_BITS


def sequence_of(record_id: int) -> int:
    """Return the sequence number in an id, counted per producer from 0."""
    return record_id & ((1 << SEQUENCE_BITS) - 1)


def payload(record_id: int, size_bytes: int) -> bytes:
    """Return the value of the record with this id. Raise ValueError for a size below `SMALLEST_BYTES`."""
    if size_bytes < SMALLEST_BYTES:
        raise ValueError(f"an id and its CRC need {SMALLEST_BYTES} bytes, not {size_bytes}")
    body = record_id.to_bytes(8, "big") + _filler(record_id, size_bytes - SMALLEST_BYTES)
    return body + zlib.crc32(body).to_bytes(4, "big")


def id_of(value: bytes | memoryview | None) -> int | None:
    """Return the id in a value, or None if the value is None, too short, or fails the check of its CRC or filler."""
    if value is None or len(value) < SMALLEST_BYTES:
        return None
    body, crc = bytes(value[:-4]), int.from_bytes(value[-4:], "big")
    if zlib.crc32(body) != crc:
        return None
    record_id = int.from_bytes(body[:8], "big")
    return record_id if body[8:] == _filler(record_id, len(body) - 8) else None


def read_id(value: bytes | memoryview | None) -> int:
    """Return the id of a value as a history stores it; DAMAGED if `id_of` finds none, also for None."""
    found = id_of(value)
    return DAMAGED if found is None else found


def _filler(record_id: int, size_bytes: int) -> bytes:
    word = (record_id * _SCATTER & _WORD).to_bytes(8, "big")
    return (word * (size_bytes // 8 + 1))[:size_bytes]
