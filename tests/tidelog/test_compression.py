"""Test the five codecs with bytes that Kafka wrote, bytes for other libraries, damage, and decompression bombs."""

from __future__ import annotations

import contextlib
import errno
import random
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import lz4.frame
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.written import Written, as_read, written_records
from tidelog.errors import (
    CorruptMessageError,
    MessageTooLargeError,
    RequestTimedOutError,
    UnsupportedCompressionTypeError,
)
from tidelog.records import (
    HEADER_BYTES,
    BatchBuilder,
    Codec,
    Record,
    compress,
    decode_columns,
    decode_records,
    decompress,
    encode_batch,
    first_record_at_or_after,
    read_header,
    validate_batch,
)
from tidelog.records.header import HEADER, seal

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
TEXT = b"".join(b"%d bottles of beer on the wall\n" % number for number in range(5_000))
NOISE = random.Random(4).randbytes(100_000)

# One batch as the client of Kafka 3.9.1 writes it with each codec. All agree from the attributes' second byte to the
# record count.
GOLDEN_MIDDLE = (
    "00000002"  # last offset delta 2
    "0000018bcfe56800"  # base timestamp 1700000000000
    "0000018bcfe56896"  # max timestamp 150 ms later
    "00000000000003e9"  # producer id 1001
    "0002"  # producer epoch 2
    "00000005"  # base sequence 5
    "00000003"  # 3 records
)
GOLDEN = {
    Codec.NONE: "000000000000002a" "00000087" "00000007" "02" "a10445ac" "0000" + GOLDEN_MIDDLE
    + "2c000000066b65790a76616c75650402680400ff026e01"
    + "0e00ac0202010100"
    + "6c000104026b5e" + "746964656c6f6720" * 5 + "746964656c6f67" + "00",
    Codec.GZIP: "000000000000002a" "00000076" "00000007" "02" "2288f594" "0001" + GOLDEN_MIDDLE
    + "1f8b08000000000000ff"  # deflate, no time, no system
    + "d361606060cb4eade42a4bcc294d6561ca6061f8cf94c7c8c7b086898991912187819185293bae24332535273f5d81489a0100"
    + "79210a85" "56000000",  # CRC-32, 86 bytes
    Codec.SNAPPY: "000000000000002a" "0000007b" "00000007" "02" "72e56191" "0002" + GOLDEN_MIDDLE
    + "82534e4150505900" "00000001" "00000001"  # xerial's header
    + "00000036"  # a block of 54 bytes
    + "56"  # 86 bytes when decompressed
    + "b82c000000066b65790a76616c75650402680400ff026e010e00ac02020101006c000104026b5e746964656c6f6720749608000000",
    Codec.LZ4: "000000000000002a" "00000079" "00000007" "02" "4c849005" "0003" + GOLDEN_MIDDLE
    + "04224d18" "60" "40" "82"  # independent blocks of at most 64 KiB, no sizes, no sums
    + "39000000"  # a block of 57 bytes
    + "ff1f2c000000066b65790a76616c75650402680400ff026e010e00ac02020101006c000104026b5e746964656c6f6720"
    + "08001050656c6f6700" "00000000",  # the end mark
    Codec.ZSTD: "000000000000002a" "00000074" "00000007" "02" "20102a3a" "0004" + GOLDEN_MIDDLE
    + "28b52ffd" "0058"  # no content size, a window of 2 MiB
    + "bc0100f4022c000000066b65790a76616c75650402680400ff026e010e00ac02020101006c000104026b5e746964656c6f6720"
    + "000100b6b29401010000",
}  # fmt: skip
GOLDEN_RECORDS = [
    Record(42, 1_700_000_000_000, b"key", b"value", (("h", b"\x00\xff"), ("n", None))),
    Record(43, 1_700_000_000_150, None, None, ()),
    Record(44, 1_699_999_999_999, b"k", b"tidelog tidelog tidelog tidelog tidelog tidelog", ()),
]


def sealed(codec: int, block: bytes, **fields: int) -> bytes:
    """Return a batch of three records whose block is `block`, valid or not."""
    batch = bytearray(bytes.fromhex(GOLDEN[Codec.NONE])[:HEADER_BYTES] + block)
    header = read_header(batch)._replace(attributes=codec, batch_length=len(batch) - 12)
    HEADER.pack_into(batch, 0, *header._replace(**fields))
    seal(batch, 0, len(batch))
    return bytes(batch)


# ---- bytes written by Kafka, decoded in every way


@pytest.mark.parametrize("codec", Codec)
def test_the_golden_batches_hold_the_same_records(codec: Codec) -> None:
    batch = b"??" + bytes.fromhex(GOLDEN[codec]) + b"!!"
    header = read_header(batch, 2)
    validate_batch(batch, 2, header)
    assert header.codec == codec
    assert decode_records(batch, 2) == decode_records(memoryview(batch), 2) == GOLDEN_RECORDS
    assert [Record(*row) for row in zip(*decode_columns(batch, 2), strict=True)] == GOLDEN_RECORDS
    assert first_record_at_or_after(batch[2:-2], 1_700_000_000_100) == GOLDEN_RECORDS[1][:2]
    assert first_record_at_or_after(batch[2:-2], 0, 44) == GOLDEN_RECORDS[2][:2]
    assert first_record_at_or_after(batch[2:-2], 1_700_000_000_150, 44) is None


def test_a_bare_snappy_block_is_read_too() -> None:
    bare = bytes.fromhex(GOLDEN[Codec.SNAPPY])[HEADER_BYTES + 20 :]
    assert decode_records(sealed(Codec.SNAPPY, bare, base_offset=42)) == GOLDEN_RECORDS


def test_a_batch_that_compaction_emptied_has_no_block_to_undo() -> None:
    for codec in Codec:
        assert decode_records(sealed(codec, b"", record_count=0)) == []


# ---- our bytes, decoded by other libraries


def read_by_arrow(codec: Codec, block: bytes) -> bytes:
    """Use Arrow's own libraries; the frame around snappy is decoded here."""
    if codec is not Codec.SNAPPY:
        return bytes(pa.input_stream(pa.py_buffer(block), compression=codec.name.lower()).read())
    assert block[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    whole, at = b"", 16
    while at < len(block):
        [length] = struct.unpack_from(">i", block, at)
        inner = block[at + 4 : at + 4 + length]
        size, shift, byte = 0, 0, 0
        while True:
            size |= (inner[byte] & 0x7F) << shift
            if inner[byte] < 0x80:
                break
            shift, byte = shift + 7, byte + 1
        assert size <= 32 << 10
        whole += pa.decompress(inner, size, "snappy", asbytes=True)
        at += 4 + length
    assert at == len(block)
    return whole


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT * 20], ids=["none", "a byte", "text", "noise", "3 MiB"])
def test_compressed_data_can_be_read_here_and_by_other_libraries(codec: Codec, data: bytes) -> None:
    block = compress(codec, data)
    assert decompress(codec, block) == decompress(codec, memoryview(block), len(data)) == data
    if data or codec is Codec.SNAPPY:
        assert read_by_arrow(codec, block) == data
    if len(data) > len(NOISE):
        assert len(block) < len(data) / 2


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [TEXT, NOISE, TEXT * 20], ids=["text", "noise", "3 MiB"])
def test_data_compressed_by_other_libraries_can_be_read(codec: Codec, data: bytes) -> None:
    assert decompress(codec, pa.compress(data, codec.name.lower(), asbytes=True)) == data


def test_lz4_frames_are_of_the_kind_that_kafkas_java_reader_knows() -> None:
    for data in (b"x", TEXT * 20):
        magic, flags, block_size = struct.unpack_from("<IBB", compress(Codec.LZ4, data))
        assert magic == 0x184D2204 and block_size == 0x40  # 64 KiB
        assert flags & 0b1110_0000 == 0b0110_0000  # version 1, blocks independent of each other


@pytest.mark.parametrize("codec", COMPRESSING)
def test_the_same_records_compress_to_the_same_bytes(codec: Codec) -> None:
    """A repeated produce must send the same bytes, so no codec may write the time of day into them."""
    assert compress(codec, TEXT) == compress(codec, TEXT)
    assert codec is not Codec.GZIP or compress(codec, TEXT)[4:8] == bytes(4)


@given(written_records, st.integers(0, 2**62), st.sampled_from(COMPRESSING))
def test_a_compressed_batch_reads_as_its_plain_twin(records: list[Written], base_offset: int, codec: Codec) -> None:
    plain = encode_batch(records, base_offset=base_offset)
    batch = encode_batch(records, base_offset=base_offset, codec=codec)
    assert decode_records(batch) == decode_records(plain) == as_read(records, base_offset)
    assert decompress(codec, batch[HEADER_BYTES:]) == plain[HEADER_BYTES:]
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert read_header(batch)._replace(**same) == read_header(plain)._replace(**same)
    timestamp, offset = records[-1][0], base_offset + len(records) // 2
    assert first_record_at_or_after(batch, timestamp, offset) == first_record_at_or_after(plain, timestamp, offset)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_builder_counts_bytes_before_compression(codec: Codec) -> None:
    builder = BatchBuilder(10_000)
    appended = 0
    while builder.try_append(5, None, b"the same line again and again") is not None:
        appended += 1
    batch = builder.build(codec=codec, producer_id=7, producer_epoch=1, base_sequence=3)
    assert len(batch) < builder.size_bytes / 5 and 9_900 < builder.size_bytes == len(builder.build())
    assert len(decode_records(batch)) == appended == read_header(batch).record_count
    assert read_header(batch).last_sequence == 3 + appended - 1


# ---- damage


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_truncation_and_every_addition_is_corrupt(codec: Codec) -> None:
    block = compress(codec, TEXT[:300])
    for length in range(len(block)):
        if codec is Codec.SNAPPY and length == 16:
            continue  # a frame without blocks: whole, and refused for its lack of records
        with pytest.raises(CorruptMessageError):
            decompress(codec, block[:length])
    for more in (b"\x00", b"\xff" * 9, block):
        with pytest.raises(CorruptMessageError):
            decompress(codec, block + more)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_large_block_that_is_cut_off_is_corrupt(codec: Codec) -> None:
    block = compress(codec, TEXT * 20)
    for length in (len(block) // 2, len(block) - 1):
        with pytest.raises(CorruptMessageError):
            decompress(codec, block[:length])
    with pytest.raises(CorruptMessageError):
        decompress(codec, block + b"\x00")


@given(st.sampled_from(COMPRESSING), st.data())
def test_damage_below_the_crc_gives_records_or_a_typed_error(codec: Codec, data: st.DataObject) -> None:
    block = bytearray(compress(codec, TEXT[:300]))
    for _ in range(data.draw(st.integers(1, 4))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptMessageError, MessageTooLargeError):
        assert len(decompress(codec, block, 100_000)) <= 100_000
    with contextlib.suppress(CorruptMessageError, MessageTooLargeError):
        decode_records(sealed(codec, bytes(block)))


MAGIC_BYTES = {
    Codec.GZIP: b"\x1f\x8b\x08\x00",
    Codec.SNAPPY: b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00",
    Codec.LZ4: b"\x04\x22\x4d\x18\x60\x40\x82",
    Codec.ZSTD: b"\x28\xb5\x2f\xfd",
}


@given(st.sampled_from(COMPRESSING), st.booleans(), st.binary(max_size=100))
def test_arbitrary_bytes_give_bytes_or_a_typed_error(codec: Codec, with_magic: bool, rest: bytes) -> None:
    with contextlib.suppress(CorruptMessageError, MessageTooLargeError):
        assert len(decompress(codec, MAGIC_BYTES[codec] + rest if with_magic else rest, 100_000)) <= 100_000


def test_a_snappy_block_of_no_bytes_is_corrupt() -> None:
    with pytest.raises(CorruptMessageError, match="a snappy block of 0 bytes"):
        decompress(Codec.SNAPPY, MAGIC_BYTES[Codec.SNAPPY][:16] + bytes(4))


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_block_of_another_codec_is_corrupt(codec: Codec) -> None:
    for other in Codec:
        if other is not codec:
            with pytest.raises(CorruptMessageError):
                decompress(codec, compress(other, TEXT))


@pytest.mark.parametrize("codec", Codec)
def test_counts_that_the_block_does_not_keep_are_corrupt(codec: Codec) -> None:
    records = bytes.fromhex(GOLDEN[Codec.NONE])[HEADER_BYTES:]
    assert len(decode_records(sealed(codec, compress(codec, records)))) == 3
    for block, fields in (
        (records, {"record_count": 2}),
        (records, {"record_count": 4, "last_offset_delta": 3}),
        (records, {"record_count": 0}),
        (records, {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1}),
        (records, {"last_offset_delta": 1, "record_count": 2}),
        (records + b"\x00", {}),
        (records[:-1], {}),
        (b"", {}),
    ):
        with pytest.raises(CorruptMessageError):
            decode_records(sealed(codec, compress(codec, block), **fields))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_nothing_defines_is_named(codec: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError, match=f"codec {codec}"):
        decompress(codec, b"")


# ---- bombs


def streamed(codec: Codec, data: bytes) -> bytes:
    """Return a frame whose writer did not know the size beforehand, as Java's writers do not."""
    if codec is Codec.SNAPPY:
        return compress(codec, data)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec.name.lower()) as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("data", [TEXT, TEXT * 20], ids=["text", "3 MiB"])
def test_the_limit_is_exact(codec: Codec, data: bytes) -> None:
    for block in (compress(codec, data), streamed(codec, data)):
        assert decompress(codec, block, len(data)) == data
        for limit in (len(data) - 1, len(data) // 2, 0):
            with pytest.raises(MessageTooLargeError, match=f"more than {limit} bytes"):
                decompress(codec, block, limit)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_readers_of_batches_may_set_the_limit(codec: Codec) -> None:
    batch = bytes.fromhex(GOLDEN[codec])
    assert decode_records(batch, limit=86) == GOLDEN_RECORDS
    assert first_record_at_or_after(batch, 0, limit=86) == GOLDEN_RECORDS[0][:2]
    for read in (decode_records, decode_columns, lambda batch, limit: first_record_at_or_after(batch, 0, limit=limit)):
        with pytest.raises(MessageTooLargeError):
            read(batch, limit=85)


def zstd_bomb(frame_header: bytes) -> bytes:
    """Return 1 MiB with 245,760 blocks that each mean "131,072 times this byte", 30 GiB in all."""
    block = ((128 << 10) << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd" + frame_header + block * 245_759 + bytes([block[0] | 1]) + block[1:]


def gzip_bomb() -> bytes:
    deflate = zlib.compressobj(9, wbits=31)
    head = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    again = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return head + again * 999


def lz4_bomb() -> bytes:
    frame = lz4.frame.compress(bytes(4 << 20), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False)
    return frame[:7] + frame[7:-4] * 60 + frame[-4:]


def snappy_bomb() -> bytes:
    framed = compress(Codec.SNAPPY, bytes(32 << 10))
    return framed[:16] + framed[16:] * 1_700


def tiny_snappy_blocks() -> bytes:
    """Return 300,000 blocks of a byte each, and one that claims 4 GiB."""
    tiny, last = b"\x01\x00x", b"\xff\xff\xff\xff\x0f"
    return MAGIC_BYTES[Codec.SNAPPY][:16] + (b"\x00\x00\x00\x03" + tiny) * 300_000 + b"\x00\x00\x00\x05" + last


@pytest.mark.parametrize("claim", [(30 << 30), 1001])
def test_a_size_that_is_declared_is_judged_before_anything_is_undone(claim: int) -> None:
    frame = b"\x28\xb5\x2f\xfd\xc0\x58" + claim.to_bytes(8, "little") + b"nothing that could be undone"
    with pytest.raises(MessageTooLargeError):
        decompress(Codec.ZSTD, frame, 1000)
    with pytest.raises(CorruptMessageError):
        decompress(Codec.ZSTD, frame, 30 << 30)


#: The codec, the bomb, and the memory that its rejection may cost, relative to the limit.
BOMBS = {
    "a zstd frame that claims 30 GiB": (
        Codec.ZSTD,
        lambda: zstd_bomb(b"\xc0\x58" + (30 << 30).to_bytes(8, "little")),
        0,
    ),
    "a zstd frame of 30 GiB": (Codec.ZSTD, lambda: zstd_bomb(b"\x00\x58"), 1),
    "a zstd frame of 30 GiB with a window of 128 MiB": (Codec.ZSTD, lambda: zstd_bomb(b"\x00\x88"), 2),
    "a gzip member of 1 GiB": (Codec.GZIP, gzip_bomb, 1),
    "an lz4 frame of 240 MiB": (Codec.LZ4, lz4_bomb, 1),
    "snappy blocks of 53 MiB in a frame": (Codec.SNAPPY, snappy_bomb, 0),
    "very many snappy blocks in a frame": (Codec.SNAPPY, tiny_snappy_blocks, 0),
    "a snappy block that claims 4 GiB": (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + bytes(1 << 20), 0),
}
LIMIT = 48 << 20
SLACK = 12 << 20

MEASURE = """
import sys
from tidelog.errors import MessageTooLargeError
from tidelog.records import compress, decompress, Codec

def peak_kb():
    with open("/proc/self/status") as status:
        return int(next(line for line in status if line.startswith("VmHWM")).split()[1])

codec, limit = map(int, sys.argv[1:])
bomb = sys.stdin.buffer.read()
for each in Codec:
    decompress(each, compress(each, b"warm"))
before = peak_kb()
try:
    decompress(codec, bomb, limit)
except MessageTooLargeError:
    print((peak_kb() - before) * 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measured by Linux's peak of resident memory")
@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bomb_is_rejected_before_it_fills_memory(name: str) -> None:
    codec, make, times_the_limit = BOMBS[name]
    bomb = make()
    assert len(bomb) < 3 << 20
    command = [sys.executable, "-P", "-c", MEASURE, str(int(codec)), str(LIMIT)]
    measured = subprocess.run(command, input=bomb, stdout=subprocess.PIPE, check=True)
    assert measured.stdout, "it was not refused"
    assert int(measured.stdout) < times_the_limit * LIMIT + SLACK


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), ImportError("no such file")], ids=repr)
def test_library_that_cannot_be_imported_now_is_a_retriable_error(
    codec: Codec, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = compress(codec, TEXT)

    def fail(name: str) -> None:
        raise error

    with monkeypatch.context() as without_library:
        without_library.setattr("tidelog.records.compression.import_module", fail)
        for use in (lambda: compress(codec, TEXT), lambda: decompress(codec, block)):
            with pytest.raises(RequestTimedOutError, match=r"cannot load the module .*; retry later") as raised:
                use()
            assert raised.value.retriable
    assert decompress(codec, block) == TEXT
