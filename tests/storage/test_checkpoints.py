"""Kafka's checkpoints: a number that damage has made impossible is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.checkpoints import RECOVERY_POINTS, read_offsets, write_offsets
from tests.storage.logs import UnsyncedFiles
from tidelog.model import TopicPartition

FILES = UnsyncedFiles()


def test_offsets_come_back_as_they_were_written(tmp_path: Path) -> None:
    offsets = {TopicPartition("orders", 0): 0, TopicPartition("orders", 2**31 - 1): 2**63 - 1}
    write_offsets(FILES, tmp_path / RECOVERY_POINTS, offsets)
    assert read_offsets(FILES, tmp_path / RECOVERY_POINTS) == offsets


@pytest.mark.parametrize(
    "line",
    ["orders 0 -1", "orders -1 7", f"orders 0 {2**63}", f"orders {2**31} 7", "orders 0 x", "orders 0", "a/b 0 7"],
)
def test_checkpoint_with_an_impossible_value_is_ignored(tmp_path: Path, line: str) -> None:
    (tmp_path / RECOVERY_POINTS).write_text(f"0\n2\norders 1 5\n{line}\n")
    assert read_offsets(FILES, tmp_path / RECOVERY_POINTS) == {}
