"""`leadership-checkpoint`: for each partition, the leadership on which a broker acted last."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.configs.log_config import LogConfig
from storage.directory import leadership_checkpoint
from storage.directory.leadership_checkpoint import FILE_NAME, Leadership
from storage.log_manager import LogManager
from tests.storage.logs import UnsyncedFiles
from tidelog.model import NO_LEADER, TopicPartition
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.page_cache import FORGOTTEN

FILES = UnsyncedFiles()
ORDERS = [TopicPartition("orders", partition) for partition in range(2)]
KNOWN = {ORDERS[0]: Leadership("id", 17, 3, 40, 2), ORDERS[1]: Leadership("id", 4, NO_LEADER, 7, 1)}

_INT32 = st.integers(0, 2**31 - 1)
_PARTITIONS = st.builds(TopicPartition, st.sampled_from(["orders", "a.b_c-d"]), _INT32)
_LEADERSHIPS = st.builds(
    Leadership, st.sampled_from(["", "AAAAAAAAAAAAAAAAAAAAAQ"]), _INT32, _INT32 | st.just(NO_LEADER), _INT32, _INT32
)


def start(*paths: Path, files: UnsyncedFiles | CrashableFiles = FILES) -> LogManager:
    logs = LogManager.open(paths, files, 1, "c", "boot")
    logs.open_logs()
    return logs


def with_orders(*paths: Path, files: UnsyncedFiles | CrashableFiles = FILES) -> LogManager:
    logs = start(*paths, files=files)
    for tp in ORDERS:
        logs.get_or_create(tp, "id", LogConfig())
    return logs


@given(st.dictionaries(_PARTITIONS, _LEADERSHIPS, max_size=5))
def test_leaderships_are_read_as_written(known: dict[TopicPartition, Leadership]) -> None:
    files, directory = CrashableFiles(), Path("/data")
    files.make_directory(directory)
    leadership_checkpoint.write(files, directory, known)
    assert leadership_checkpoint.read(files, directory) == known


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xff",
        b"0\n1\norders 0 id 17",
        b"0\n1\norders 0 id 17 3 40 2",
        b"0\n2\norders 0 id 17 3 40 2\n",
        b"1\n1\norders 0 id 17 3 40 2\n",
        b"0\n1\norders 0 id 17 -2 40 2\n",
        b"0\n1\norders 0 id -1 3 40 2\n",
        b"0\n1\norders 0 id 2147483648 3 40 2\n",
        b"0\n1\n../orders 0 id 17 3 40 2\n",
        b"0\n1\norders 0 17 3 40 2\n",
    ],
)
def test_damaged_file_is_ignored(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(content)
    assert leadership_checkpoint.read(FILES, tmp_path) == {}
    logs = with_orders(tmp_path)
    assert logs.leaderships() == {}
    logs.checkpoint_leaderships(KNOWN)
    assert leadership_checkpoint.read(FILES, tmp_path) == KNOWN


def test_killed_process_leaves_its_last_leaderships(tmp_path: Path) -> None:
    logs = with_orders(tmp_path)
    logs.checkpoint_leaderships(KNOWN)
    logs.close(clean=False)
    assert start(tmp_path).leaderships() == KNOWN


def test_power_failure_leaves_the_leaderships_whole_or_missing() -> None:
    files, path = CrashableFiles(), Path("/data")
    logs = with_orders(path, files=files)
    logs.checkpoint_leaderships(KNOWN)
    left = files.crash(FORGOTTEN)
    assert start(path, files=left).leaderships() in ({}, KNOWN)


def test_each_directory_keeps_the_leaderships_of_its_own_logs(tmp_path: Path) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    logs = with_orders(*paths)
    logs.checkpoint_leaderships(KNOWN)
    assert [leadership_checkpoint.read(FILES, path) for path in paths] == [{tp: KNOWN[tp]} for tp in ORDERS]
    assert logs.leaderships() == KNOWN


def test_later_leadership_counts_after_a_log_was_moved(tmp_path: Path) -> None:
    paths = tmp_path / "a", tmp_path / "b"
    logs = with_orders(*paths)
    logs.checkpoint_leaderships(KNOWN)
    logs.close()
    (paths[0] / "orders-0").rename(paths[1] / "orders-0")
    logs = start(*paths)
    later = KNOWN | {ORDERS[1]: Leadership("id", 5, 1, 8, 2)}
    assert logs.leaderships() == KNOWN
    logs.checkpoint_leaderships(later)
    logs.close()
    assert [leadership_checkpoint.read(FILES, path) for path in paths] == [{}, later]
    assert start(*paths).leaderships() == later


def test_next_write_omits_the_leaderships_of_removed_logs(tmp_path: Path) -> None:
    logs = with_orders(tmp_path)
    logs.checkpoint_leaderships(KNOWN)
    logs.delete(ORDERS[0])
    logs.checkpoint_leaderships(KNOWN)
    assert leadership_checkpoint.read(FILES, tmp_path) == {ORDERS[1]: KNOWN[ORDERS[1]]}
