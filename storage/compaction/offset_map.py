"""The last offset of each key in a part of the log; compaction decides by it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from tidelog.records import BatchOutline

#: The most memory of one key: its digest, its offset, and its place in a table that is just being doubled.
BYTES_PER_KEY = 192

_DIGEST_BYTES = 16


class OffsetMap:
    """The last offset of each key in [start_offset, end_offset), in bounded memory.

    Filled with batches in log order until it is full. One batch is always accepted, however many keys it has, so that
    each round of cleaning makes progress. A key of 16 or more bytes is stored as a digest of 16, which no shorter key
    equals.
    """

    def __init__(self, start_offset: int, memory_bytes: int) -> None:
        self.start_offset = self.end_offset = start_offset
        self._capacity = memory_bytes // BYTES_PER_KEY
        self._last: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._last)

    def extend(self, end_offset: int) -> None:
        """Raise the end offset to `end_offset`, over records that are ignored or missing; never lower it."""
        self.end_offset = max(self.end_offset, end_offset)

    def add(self, batch: BatchOutline) -> bool:
        """Add the keys of the next batch and raise the end offset.

        Return False, and change nothing, if the map has keys and those of the batch might not fit.
        """
        last = self._last
        if last and len(last) + len(batch.keys) > self._capacity:
            return False
        for key, offset in zip(_digests(batch.keys), batch.offsets, strict=True):
            if key is not None:
                last[key] = offset
        self.extend(batch.header.next_offset)
        return True

    def survivors(self, batch: BatchOutline, *, tombstones: bool) -> list[int]:
        """Return the indexes in the batch of the records that have a key and that no later record replaces.

        Without `tombstones`, records without a value are left out.
        """
        last = self._last.get
        return [
            slot
            for slot, (key, offset, tombstone) in enumerate(
                zip(_digests(batch.keys), batch.offsets, batch.tombstones, strict=True)
            )
            if key is not None and last(key, -1) <= offset and (tombstones or not tombstone)
        ]


def _digests(keys: Sequence[bytes | None]) -> list[bytes | None]:
    return [
        key if key is None or len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        for key in keys
    ]
