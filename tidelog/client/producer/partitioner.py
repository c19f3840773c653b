"""Choose the partition of a record by its key, exactly as Kafka's Java client does."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import unpack_from

#: (key, number of partitions) -> partition
Partitioner = Callable[[bytes, int], int]

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_CACHED_KEYS = 1 << 14
_LONGEST_CACHED_KEY = 256


def murmur2(data: bytes) -> int:
    """Return Kafka's variant of MurmurHash2 (32 bits, fixed seed), as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in unpack_from(f"<{words}I", data):
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ (((k ^ (k >> 24)) * _M) & _MASK)
    rest = data[words << 2 :]
    if rest:
        h = ((h ^ int.from_bytes(rest, "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


# Keys repeat in practice, and a look-up costs a twentieth of the hash in Python.
_positive_hash = lru_cache(maxsize=_CACHED_KEYS)(lambda key: murmur2(key) & 0x7FFFFFFF)


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the key's hash without the sign bit, modulo the number of partitions: Kafka's default."""
    if len(key) > _LONGEST_CACHED_KEY:  # the cache holds no long keys, so that its memory stays small
        return (murmur2(key) & 0x7FFFFFFF) % partitions
    return _positive_hash(key) % partitions
