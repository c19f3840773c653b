"""Whose log a directory holds, as far as its file can be believed."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.partition_metadata import FILE_NAME, read_topic_id, write_topic_id
from tests.storage.logs import UnsyncedFiles

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def test_the_id_of_the_topic_is_kept(tmp_path: Path) -> None:
    write_topic_id(UnsyncedFiles(), tmp_path, TOPIC_ID)
    assert (tmp_path / FILE_NAME).read_bytes() == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"
    assert read_topic_id(UnsyncedFiles(), tmp_path) == TOPIC_ID


def test_kafka_writes_no_line_end(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert read_topic_id(UnsyncedFiles(), tmp_path) == TOPIC_ID


@pytest.mark.parametrize("kept", range(len(b"version: 0\ntopic_id: ") + len(TOPIC_ID)))
def test_a_torn_file_names_no_topic_rather_than_another_one(tmp_path: Path, kept: int) -> None:
    for rest in (b"", bytes(40), bytes(42 - kept)):
        (tmp_path / FILE_NAME).write_bytes(f"version: 0\ntopic_id: {TOPIC_ID}".encode()[:kept] + rest)
        assert read_topic_id(UnsyncedFiles(), tmp_path) == ""
