"""Foreign files in a log directory cost none of the log's records."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.checkpoints import RECOVERY_POINTS, read_offsets, write_offsets
from storage.directory.log_directory import LogDirectory
from storage.file_names import file_name
from storage.files import RealFiles
from storage.log.log import Log
from tests.storage.logs import NOW, append, batch, open_log, records_of
from tidelog.errors import StorageError
from tidelog.model import TopicPartition

TOPIC = "orders-0"


def offsets(log: Log) -> list[int]:
    return [record.offset for record, _ in records_of(log)]


def log_of_three_segments(directory: Path) -> list[int]:
    """Create a log with the offsets 0 to 5 deleted and segments at 6, 9 and 12. Return its record offsets."""
    log = open_log(directory, segment_bytes=3 * len(batch(NOW)))
    for _ in range(14):
        append(log)
    log.raise_log_start(6)
    for segment in log.delete_old_segments(NOW, 14):
        segment.delete()
    assert log.segment_base_offsets == (6, 9, 12)
    log.close()
    return list(range(6, 14))


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", [b"", b"hello", bytes(500), batch(NOW, base_offset=7)])
@pytest.mark.parametrize("offset", [7, 10, 13, 99])
def test_a_file_named_like_a_segment_costs_nothing(tmp_path: Path, offset: int, content: bytes, clean: bool) -> None:
    expected = log_of_three_segments(tmp_path)
    (tmp_path / file_name(offset, ".log")).write_bytes(content)
    log = open_log(tmp_path, clean=clean, recovery_point=14, segment_bytes=3 * len(batch(NOW)))
    assert offsets(log) == expected
    assert append(log) == 14
    kept = [path.read_bytes() for path in tmp_path.glob("*.stray")]
    assert kept == ([content] if content else []) or (offset == 99 and not clean)


def test_an_empty_file_before_a_log_that_was_closed_in_order_costs_nothing(tmp_path: Path) -> None:
    expected = log_of_three_segments(tmp_path)
    (tmp_path / file_name(0, ".log")).touch()
    assert offsets(open_log(tmp_path, recovery_point=14)) == expected


def test_digits_of_other_scripts_name_no_segment(tmp_path: Path) -> None:
    expected = log_of_three_segments(tmp_path)
    (tmp_path / ("٠" * 19 + "٧.log")).touch()
    assert offsets(open_log(tmp_path)) == expected
    assert not (tmp_path / file_name(7, ".log")).exists()


def test_a_file_named_like_a_log_is_none(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path / "data", RealFiles(), 1, "c", None)
    (tmp_path / "data" / "notes-2").write_text("mine")
    (tmp_path / "data" / TOPIC).mkdir()
    assert directory.found() == [TopicPartition("orders", 0)]
    directory.close()


def test_directory_with_the_name_of_a_temporary_file_is_harmless(tmp_path: Path) -> None:
    directory = LogDirectory.open(tmp_path / "data", RealFiles(), 1, "c", None)
    path = tmp_path / "data" / RECOVERY_POINTS
    path.with_name(path.name + ".tmp").mkdir()
    write_offsets(RealFiles(), path, {TopicPartition("orders", 0): 7})
    assert read_offsets(RealFiles(), path) == {TopicPartition("orders", 0): 7}
    assert sorted(each.name for each in path.parent.glob(path.name + "*")) == [path.name, path.name + ".tmp"]
    directory.close()


def test_error_names_the_temporary_file_that_cannot_be_created(tmp_path: Path) -> None:
    for suffix in (".tmp", ".1.tmp"):
        (tmp_path / (RECOVERY_POINTS + suffix)).mkdir()
    with pytest.raises(StorageError, match=r"checkpoint\.1\.tmp: Is a directory"):
        write_offsets(RealFiles(), tmp_path / RECOVERY_POINTS, {})


def test_a_directory_named_like_a_leftover_of_a_log_stays(tmp_path: Path) -> None:
    expected = log_of_three_segments(tmp_path)
    (tmp_path / "leader-epoch-checkpoint.tmp").mkdir()
    log = open_log(tmp_path)
    assert offsets(log) == expected and append(log, NOW, leader_epoch=9) == 14
