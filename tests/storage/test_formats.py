"""The bytes on the disk, written by hand. docs/FORMAT.md shows the same ones."""

from __future__ import annotations

import re
from pathlib import Path

from storage.checkpoints import HIGH_WATERMARKS, read_offsets, write_offsets
from storage.files import RealFiles
from tests.storage.logs import batch, open_log
from tidelog.model import TopicPartition

FORMAT = Path(__file__).parents[2] / "docs" / "FORMAT.md"


def documented(title: str) -> list[bytes]:
    """Return the bytes of each code block from the line with the file's name to the next such line."""
    text = FORMAT.read_text().split("## A worked example")[1].split("\n## ")[0]
    section = re.split(r"^`(?=0000)", text, flags=re.MULTILINE)
    part = next(part for part in section if part.startswith(title))
    return [
        bytes.fromhex(
            "".join(re.match(r"((?:[0-9a-f]{2} )*[0-9a-f]{2})(?=  |$)", line)[1] for line in block.split("\n"))
        )  # type: ignore[index]
        for block in re.findall(r"```\n(.*?)\n```", part, flags=re.DOTALL)
    ]


def write_example(directory: Path) -> None:
    log = open_log(directory, index_interval_bytes=100)
    for stamps in ((1000, 1003), (1001,), (1002,), (1007,), (1005,)):
        log.append_as_leader(batch(*stamps), 5, 1000)
    log.append_as_leader(batch(1006, value=b"six", producer_id=9, epoch=1, sequence=0), 5, 1000)
    assert log.offset_for_timestamp(1004, 7) == (1007, 4, 5)
    log.close()


def test_the_files_are_those_of_the_documents_worked_example_byte_by_byte(tmp_path: Path) -> None:
    write_example(tmp_path)
    data = (tmp_path / "00000000000000000000.log").read_bytes()
    assert len(data) == 424
    first, last = documented("00000000000000000000.log")
    assert data.startswith(first)
    assert data.endswith(last)
    positions = [(77, 2), (146, 3), (215, 4), (284, 5), (353, 6)]
    assert [data[position : position + 8] for position, _ in positions] == [o.to_bytes(8, "big") for _, o in positions]
    for name in ("00000000000000000000.index", "00000000000000000000.timeindex", "00000000000000000007.snapshot"):
        assert [(tmp_path / name).read_bytes()] == documented(name)
    assert (tmp_path / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n5 0\n"


def test_the_indexes_bytes_are_kafkas(tmp_path: Path) -> None:
    write_example(tmp_path)
    # The batch at 146 is the first with more than 100 bytes between the start and itself; 284 is the next after it.
    assert (tmp_path / "00000000000000000000.index").read_bytes().hex(" ", 4) == "00000003 00000092 00000005 0000011c"
    # The batch that ends with offset 1 reached 1003, the one with offset 4 reached 1007; sealing adds nothing.
    assert (tmp_path / "00000000000000000000.timeindex").read_bytes().hex(" ", 4) == (
        "00000000 000003eb 00000001 00000000 000003ef 00000004"
    )


def test_an_entry_needs_more_bytes_than_the_interval(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=2 * 69)
    for _ in range(6):
        log.append_as_leader(batch(1000), 0, 1000)
    log.flush()
    # Batches start at 0, 69, 138, 207, …: 138 does not exceed the interval, 207 does, and then none up to 345.
    assert (tmp_path / "00000000000000000000.index").read_bytes().hex(" ", 4) == "00000003 000000cf"


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


def test_damaged_checkpoint_is_ignored(tmp_path: Path) -> None:
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
        b"0\n1\na 0 47",  # perhaps it was 4711
    ):
        path.write_bytes(content)
        assert read_offsets(RealFiles(), path) == {}
