"""The bytes on the disk, by hand. docs/FORMAT.md shows the same ones."""

from __future__ import annotations

from pathlib import Path

from storage.checkpoints import HIGH_WATERMARKS, read_offsets, write_offsets
from storage.files import RealFiles
from tests.storage.logs import batch, open_log
from tidelog.model import TopicPartition

FIRST = bytes.fromhex(
    "0000000000000000"  # base offset 0
    "00000038"  # 56 bytes follow
    "00000005"  # leader epoch 5
    "02"  # magic
)


def test_a_segment_its_indexes_and_its_snapshot_byte_by_byte(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=100)
    for stamps in ((1000, 1003), (1001,), (1002,), (1007,), (1005,)):
        log.append_as_leader(batch(*stamps, producer_id=-1), 5, 1000)
    log.append_as_leader(batch(1006, value=b"six", producer_id=9, epoch=1, sequence=0), 5, 1000)
    log.close()

    data = (tmp_path / "00000000000000000000.log").read_bytes()
    # sizes: 77 (two records), then 69 for each batch of one record, 71 for the last
    positions = [0, 77, 146, 215, 284, 353]
    assert len(data) == 424
    for position, base_offset in zip(positions, [0, 2, 3, 4, 5, 6], strict=True):
        assert data[position : position + 8] == base_offset.to_bytes(8, "big")
        assert data[position + 12 : position + 17] == b"\x00\x00\x00\x05\x02"

    # The batch at 146 is the first with more than 100 bytes between the start and itself, 284 the next after it.
    assert (tmp_path / "00000000000000000000.index").read_bytes().hex(" ", 4) == "00000003 00000092 00000005 0000011c"
    # 1003 was reached by the batch that ends with offset 1, 1007 by offset 4; closing has nothing to add.
    assert (tmp_path / "00000000000000000000.timeindex").read_bytes().hex(" ", 4) == (
        "00000000 000003eb 00000001 00000000 000003ef 00000004"
    )
    snapshot = (tmp_path / "00000000000000000007.snapshot").read_bytes()
    assert snapshot[:2] == b"\x00\x01"
    assert snapshot[6:].hex() == (
        "00000001"  # one producer
        "0000000000000009"  # id
        "0001"  # epoch
        "00000000"  # last sequence
        "0000000000000006"  # last offset
        "00000000"  # offset delta
        "00000000000003ee"  # timestamp 1006
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no open transaction
    )
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n5 0\n"


def test_closing_and_rolling_add_the_last_entry_of_the_time_index(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=150)
    for stamp in (1000, 1002, 1001):
        log.append_as_leader(batch(stamp), 0, 1000)
    first = tmp_path / "00000000000000000000.timeindex"
    assert first.read_bytes().hex(" ", 4) == "00000000 000003ea 00000001"
    second = tmp_path / "00000000000000000002.timeindex"
    assert second.read_bytes() == b""
    log.close()
    assert second.read_bytes().hex(" ", 4) == "00000000 000003e9 00000000"


def test_offset_checkpoints_are_kafkas(tmp_path: Path) -> None:
    path = tmp_path / HIGH_WATERMARKS
    offsets = {TopicPartition("b", 1): 7, TopicPartition("a-c", 10): 0}
    write_offsets(RealFiles(), path, offsets)
    assert path.read_bytes() == b"0\n2\na-c 10 0\nb 1 7\n"
    assert read_offsets(RealFiles(), path) == offsets


def test_a_damaged_checkpoint_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / HIGH_WATERMARKS
    assert read_offsets(RealFiles(), path) == {}
    for content in (
        b"",
        b"1\n0\n",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na 0 -4\n",
        b"0\n1\n../a 0 4\n",
        b"\xff",
        b"0\nx\n",
    ):
        path.write_bytes(content)
        assert read_offsets(RealFiles(), path) == {}
