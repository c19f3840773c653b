"""Test that keys get the partitions that Kafka's Java client chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.producer.partitioner import _positive_hash, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_the_published_values(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_murmur2_equals_the_textbook_definition(data: bytes) -> None:
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * 0x5BD1E995 % 2**32
        k = (k ^ k >> 24) * 0x5BD1E995 % 2**32
        h = h * 0x5BD1E995 % 2**32 ^ k
    for place, byte in reversed(list(enumerate(data[whole:]))):
        h ^= byte << 8 * place
        if place == 0:
            h = h * 0x5BD1E995 % 2**32
    h = (h ^ h >> 13) * 0x5BD1E995 % 2**32
    assert murmur2(data) == h ^ h >> 15


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_a_partition_is_the_positive_hash_modulo_their_number(key: bytes, partitions: int) -> None:
    assert partition_for_key(key, partitions) == (murmur2(key) & 0x7FFFFFFF) % partitions


def test_long_keys_are_not_kept() -> None:
    before = _positive_hash.cache_info().currsize
    for number in range(50):
        key = b"%d" % number * 300
        assert partition_for_key(key, 7) == (murmur2(key) & 0x7FFFFFFF) % 7
    assert _positive_hash.cache_info().currsize == before
