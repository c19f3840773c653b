"""Which record of a key is its last one, in a stretch of the log: what compaction decides by."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from tidelog.records import BatchOutline

#: What one key costs at most: its digest, its offset, and its place in a table that is just being doubled.
BYTES_PER_KEY = 192

_DIGEST_BYTES = 16


class OffsetMap:
    """The last offset of each key in [start_offset, end_offset), in bounded memory.

    Filled with batches in the order of the log until it is full, but always with one, however many keys that has: each
    round of cleaning gets further. A key of 16 bytes or more is held as a digest of 16, which no shorter key equals.
    """

    def __init__(self, start_offset: int, memory_bytes: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._capacity = memory_bytes // BYTES_PER_KEY
        self._last: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._last)

    def extend(self, end_offset: int) -> None:
        """Up to there no record counts, or none is."""
        self.end_offset = max(self.end_offset, end_offset)

    def take(self, batch: BatchOutline) -> bool:
        """Takes in the keys of the next batch; False, and nothing is changed, where they might not fit."""
        last = self._last
        if last and len(last) + len(batch.keys) > self._capacity:
            return False
        for key, offset in zip(_held(batch.keys), batch.offsets, strict=True):
            if key is not None:
                last[key] = offset
        self.extend(batch.header.next_offset)
        return True

    def survivors(self, batch: BatchOutline, *, tombstones: bool) -> list[int]:
        """The slots of the records that no later one replaces, with or without tombstones; none without a key."""
        last = self._last.get
        return [
            slot
            for slot, (key, offset, tombstone) in enumerate(
                zip(_held(batch.keys), batch.offsets, batch.tombstones, strict=True)
            )
            if key is not None and last(key, -1) <= offset and (tombstones or not tombstone)
        ]


def _held(keys: Sequence[bytes | None]) -> list[bytes | None]:
    return [
        key if key is None or len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        for key in keys
    ]
