"""Frames of Kafka's protocol, cut and joined by the network in any way."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.protocol.kafka.frames import READ_BYTES, FrameError, FrameReader

LIMIT = 300_000


def reader_of(max_frame_bytes: int, shared: memoryview | None = None, *, trusted_bytes: int = 0) -> FrameReader:
    return FrameReader(max_frame_bytes, shared or memoryview(bytearray(READ_BYTES)), trusted_bytes=trusted_bytes)


def feed(reader: FrameReader, data: bytes, pieces: list[int]) -> list[bytes]:
    """Give the bytes to the reader in pieces of these sizes, repeated, and return the frames. Raise its FrameError."""
    frames: list[bytes] = []
    turn = 0
    while data:
        space = reader.space()
        size = min(max(1, pieces[turn % len(pieces)]), len(space), len(data))
        turn += 1
        space[:size] = data[:size]
        for frame in reader.received(size):
            if isinstance(frame, FrameError):
                raise frame
            frames.append(bytes(frame))
        data = data[size:]
    return frames


def framed(*bodies: bytes) -> bytes:
    return b"".join(pack(">i", len(body)) + body for body in bodies)


BODIES = st.lists(
    st.one_of(
        st.binary(max_size=200),
        st.integers(60_000, 70_000).map(lambda size: bytes(range(256)) * (size // 256) + b"x" * (size % 256)),
        st.just(b"large" * 50_000),
    ),
    max_size=5,
)


@settings(deadline=None)
@given(BODIES, st.lists(st.integers(1, 80_000), min_size=1, max_size=4), st.sampled_from([0, 100_000, LIMIT]))
def test_frames_are_the_same_however_the_network_cuts_them(
    bodies: list[bytes], pieces: list[int], trusted_bytes: int
) -> None:
    smallest = max(1, sum(map(len, bodies)) // 2_000)  # so that a piece of one byte does not take minutes
    reader = reader_of(LIMIT, trusted_bytes=trusted_bytes)
    assert feed(reader, framed(*bodies), [max(each, smallest) for each in pieces]) == bodies


def test_many_frames_at_once_are_followed_by_smaller_reads() -> None:
    reader, small = reader_of(LIMIT), framed(*[b"x" * 20] * 101)
    assert len(reader.space()) == READ_BYTES
    assert len(feed(reader, small, [len(small)])) == 101
    assert len(reader.space()) == 4096
    assert len(feed(reader, framed(b"y" * 10_000), [4096])) == 1, "a frame may be larger than such a read"
    assert len(reader.space()) == READ_BYTES


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(pack(">i", LIMIT + 1), f"claims a frame of {LIMIT + 1} bytes", id="too large"),
        pytest.param(pack(">i", -1), "claims a frame of -1 bytes", id="negative"),
        pytest.param(pack(">i", -(2**31)), "claims a frame of -2147483648 bytes", id="smallest"),
        pytest.param(pack(">i", 2**31 - 1), "claims a frame of 2147483647 bytes", id="largest"),
        pytest.param(b"GET / HTTP/1.1\r\n", "speaks HTTP", id="HTTP"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP", id="HTTP server"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01", "speaks TLS", id="TLS"),
        pytest.param(b"\x15\x03\x03\x00\x02\x02\x50", "speaks TLS", id="alert of a TLS server"),
        pytest.param(b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f", "speaks ZeroMQ", id="ZeroMQ"),
    ],
)
def test_bytes_that_are_no_frame_are_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        feed(reader_of(LIMIT), data, [len(data)])


def test_frames_before_a_bad_size_are_returned_and_later_bytes_ignored() -> None:
    reader, data = reader_of(LIMIT), framed(b"a", b"b") + pack(">i", -1) + framed(b"c")
    reader.space()[: len(data)] = data
    *frames, error = reader.received(len(data))
    assert frames == [b"a", b"b"]
    assert isinstance(error, FrameError) and "claims a frame of -1 bytes" in error.reason
    assert (feed(reader, framed(b"d", b"large" * 50_000), [READ_BYTES]), reader.held_bytes) == ([], 0)


@pytest.mark.parametrize("arrived", [1, 5, 20_000, 40_000, 100_000, 300_000])
@pytest.mark.parametrize("piece", [1_000, READ_BYTES])
def test_claimed_size_allocates_no_memory_before_the_bytes_arrive(arrived: int, piece: int) -> None:
    reader = reader_of(100_000_000)
    assert feed(reader, (pack(">i", 100_000_000) + bytes(arrived))[:arrived], [piece]) == []
    assert arrived - 4 <= reader.held_bytes <= 2 * arrived


@pytest.mark.parametrize(("size", "held"), [(100_000, 100_000), (200_000, 200_000), (200_001, 200_000)])
def test_clients_reader_allocates_a_frame_up_to_the_trusted_size_at_once(size: int, held: int) -> None:
    reader = reader_of(LIMIT, trusted_bytes=200_000)
    assert feed(reader, (pack(">i", size) + bytes(40_000)), [READ_BYTES]) == []
    assert reader.held_bytes == held


def test_silent_connection_holds_no_memory() -> None:
    reader = reader_of(LIMIT)
    assert feed(reader, framed(b"x" * 1000, b"large" * 50_000), [READ_BYTES]) == [b"x" * 1000, b"large" * 50_000]
    assert reader.held_bytes == 0
    feed(reader, b"\0\0", [2])
    assert reader.held_bytes == 2


def test_connections_that_share_the_read_buffer_keep_their_own_bytes() -> None:
    shared = memoryview(bytearray(READ_BYTES))
    readers = [reader_of(LIMIT, shared) for _ in range(3)]
    bodies = [bytes([number]) * size for number, size in enumerate((900, 70_000, 200_000))]
    found: list[list[bytes]] = [[], [], []]
    streams = [framed(body) for body in bodies]
    while any(streams):
        for number, stream in enumerate(streams):
            found[number] += feed(readers[number], stream[:777], [777])
            streams[number] = stream[777:]
    assert found == [[body] for body in bodies]


def test_frame_stays_the_same_while_the_buffer_is_used_again() -> None:
    reader = reader_of(LIMIT)
    first = feed(reader, framed(b"first"), [100])
    feed(reader, framed(b"other"), [100])
    assert first == [b"first"]
