"""The topic id of a log, and how far its file can be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage import partition_metadata
from storage.configs.log_config import LogConfig
from storage.log_manager import LogManager
from storage.partition_metadata import FILE_NAME, UNKNOWN, PartitionMetadata
from tests.storage.logs import UnsyncedFiles, append
from tidelog.errors import IneligibleReplicaError
from tidelog.model import TopicPartition

FILES = UnsyncedFiles()
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
BY_KAFKA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
BY_US = BY_KAFKA + b"\ncrc32c: abc8535c\n"
#: One flipped bit.
ANOTHER_ID, ANOTHER_ID_BY_KAFKA = BY_US.replace(b"AAQ", b"ACQ"), BY_KAFKA.replace(b"AAQ", b"ACQ")
ORDERS = TopicPartition("orders", 0)


def read(directory: Path, data: bytes) -> PartitionMetadata:
    (directory / FILE_NAME).write_bytes(data)
    return partition_metadata.read(FILES, directory)


def flipped(data: bytes, bit: int) -> bytes:
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def test_the_id_of_the_topic_is_kept_with_a_checksum(tmp_path: Path) -> None:
    partition_metadata.write(FILES, tmp_path, TOPIC_ID)
    assert (tmp_path / FILE_NAME).read_bytes() == BY_US
    assert partition_metadata.read(FILES, tmp_path) == (TOPIC_ID, True)


def test_metadata_of_kafka_has_no_checksum_and_no_line_end(tmp_path: Path) -> None:
    assert read(tmp_path, BY_KAFKA) == read(tmp_path, BY_KAFKA + b"\n") == (TOPIC_ID, False)


@pytest.mark.parametrize("kept", range(len(BY_KAFKA)))
def test_truncated_metadata_names_no_topic(tmp_path: Path, kept: int) -> None:
    for rest in (b"", bytes(40), bytes(42 - kept)):
        assert read(tmp_path, BY_KAFKA[:kept] + rest) == UNKNOWN


@pytest.mark.parametrize("kept", range(len(BY_KAFKA), len(BY_US)))
def test_truncated_checksum_proves_nothing(tmp_path: Path, kept: int) -> None:
    assert read(tmp_path, BY_US[:kept]) in (UNKNOWN, (TOPIC_ID, False))


def test_flipped_bit_never_turns_the_log_into_another_topics(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for bit in range(8 * len(BY_US)):
        assert read(tmp_path, flipped(BY_US, bit)) == UNKNOWN
    assert len(caplog.records) == 8 * len(BY_US)
    assert f"{tmp_path / FILE_NAME} is damaged" in caplog.text


# --- what becomes of the log ---------------------------------------------------------------------------------


def start(directory: Path, topic_id: str = TOPIC_ID, *, unread: bool = False) -> LogManager:
    manager = LogManager.open([directory], FILES, 1, "c1", "boot-1")
    manager.open_logs(hosted={} if unread else {ORDERS: topic_id}, unreadable_topics={"orders"} if unread else ())
    return manager


def log_with(directory: Path, metadata: bytes) -> None:
    """Let a broker write a record and stop, then give its `partition.metadata` this content."""
    manager = LogManager.open([directory], FILES, 1, "c1", "boot-1")
    manager.open_logs()
    append(manager.get_or_create(ORDERS, TOPIC_ID, LogConfig(), in_sync=True))
    manager.close()
    (directory / "orders-0" / FILE_NAME).write_bytes(metadata)


def ends_at(manager: LogManager, topic_id: str = TOPIC_ID, *, in_sync: bool) -> int:
    return manager.get_or_create(ORDERS, topic_id, LogConfig(), in_sync=in_sync).log_end_offset


def strays(directory: Path) -> list[Path]:
    return list(directory.glob("orders-0.*-stray"))


@pytest.mark.parametrize("unread", [False, True])
@pytest.mark.parametrize("in_sync", [False, True])
def test_damaged_metadata_loses_no_record_and_is_rewritten(tmp_path: Path, in_sync: bool, unread: bool) -> None:
    log_with(tmp_path, ANOTHER_ID)
    assert ends_at(start(tmp_path, unread=unread), in_sync=in_sync) == 1
    assert (tmp_path / "orders-0" / FILE_NAME).read_bytes() == BY_US
    assert not strays(tmp_path)


def test_kafka_metadata_gets_a_checksum_once_the_cluster_confirms_the_id(tmp_path: Path) -> None:
    log_with(tmp_path, BY_KAFKA)
    assert ends_at(start(tmp_path), in_sync=True) == 1
    assert (tmp_path / "orders-0" / FILE_NAME).read_bytes() == BY_US


@pytest.mark.parametrize("unread", [False, True])
def test_recreated_topic_begins_empty_even_if_the_replica_is_in_the_isr(tmp_path: Path, unread: bool) -> None:
    log_with(tmp_path, BY_US)
    assert ends_at(start(tmp_path, "anew", unread=unread), "anew", in_sync=True) == 0
    assert len(strays(tmp_path)) == 1


@pytest.mark.parametrize("unread", [False, True])
def test_unproven_topic_id_creates_no_empty_log_of_an_in_sync_replica(tmp_path: Path, unread: bool) -> None:
    log_with(tmp_path, ANOTHER_ID_BY_KAFKA)
    for begun in range(3):  # a later start, which finds no log in question, refuses as well
        manager = start(tmp_path, unread=unread and not begun)
        with pytest.raises(IneligibleReplicaError, match="set aside although it may be valid"):
            ends_at(manager, in_sync=True)
        assert manager.works
        manager.close()
    assert len(strays(tmp_path)) == 1
    assert ends_at(start(tmp_path), in_sync=False) == 0, "the others have the records"


def test_log_set_aside_by_mistake_can_be_restored(tmp_path: Path) -> None:
    log_with(tmp_path, ANOTHER_ID_BY_KAFKA)
    start(tmp_path).close()
    [stray] = strays(tmp_path)
    (stray / FILE_NAME).unlink()
    stray.rename(tmp_path / "orders-0")
    assert ends_at(start(tmp_path), in_sync=True) == 1
    assert not (tmp_path / "lost-logs").exists()
