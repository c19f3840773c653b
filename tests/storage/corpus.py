"""Logs of every kind that Tidelog writes, for readers written by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from storage.checkpoints import CLEANER_OFFSETS, write_offsets
from storage.log.log import Log
from tests.storage.cleaning import write_compacted_log
from tests.storage.logs import NOW, UnsyncedFiles, batch, open_log
from tidelog.model import TopicPartition
from tidelog.records import Codec, MarkerKind, encode_batch, encode_control_batch

SMALL = {"segment_bytes": 4000, "index_interval_bytes": 300}


def fill(log: Log, count: int, *, codec: Codec = Codec.NONE, leader_epoch: int = 0) -> None:
    """Return batches of three records with keys, headers and nulls, and timestamps that rise and fall."""
    for number in range(count):
        stamp = NOW - 1_000_000 + log.log_end_offset * 10 - number % 5 * 70
        records = [
            (stamp, None, b"value %d " % number * 5, (("name", b"x"), ("näme", None))),
            (stamp - 30, b"key %d" % number, None, ()),
            (stamp + 5, b"key", b"", ()),
        ]
        log.append_as_leader(encode_batch(records, codec=codec), leader_epoch, NOW)


def codecs(directory: Path) -> None:
    log = open_log(directory, **SMALL)
    for codec in Codec:
        fill(log, 30, codec=codec)
    log.close()


def leader_epochs(directory: Path) -> None:
    log = open_log(directory, **SMALL)
    for epoch in (0, 3, 4, 9):
        log.assign_leader_epoch(epoch)
        fill(log, 20, leader_epoch=epoch)
    log.close()


def producers(directory: Path) -> None:
    log = open_log(directory, **SMALL)
    for sequence in range(30):
        for producer_id in (7, 8):
            sent = batch(NOW, producer_id=producer_id, epoch=producer_id - 7, sequence=sequence)
            log.append_as_leader(sent, 0, NOW)
    log.close()


def control_batches(directory: Path) -> None:
    """Append as a follower, because only a coordinator writes markers."""
    log = open_log(directory, **SMALL)
    for number in range(40):
        kind = MarkerKind.COMMIT if number % 3 else MarkerKind.ABORT
        sent = batch(NOW, producer_id=5, epoch=0, sequence=number, base_offset=log.log_end_offset, leader_epoch=0)
        log.append_as_follower(sent)
        marker = encode_control_batch(
            kind, producer_id=5, producer_epoch=0, coordinator_epoch=2, timestamp_ms=NOW,
            base_offset=log.log_end_offset, leader_epoch=0,
        )  # fmt: skip
        log.append_as_follower(marker)
    log.close()


def log_append_time(directory: Path) -> None:
    log = open_log(directory, message_timestamp_type="LogAppendTime", **SMALL)
    for codec in (Codec.NONE, Codec.LZ4, Codec.GZIP):
        fill(log, 25, codec=codec)
    log.close()


def truncated(directory: Path) -> None:
    log = open_log(directory, **SMALL)
    fill(log, 60)
    log.truncate_to(log.log_end_offset * 2 // 3)
    fill(log, 5, leader_epoch=1)
    log.close()


def trimmed(directory: Path) -> None:
    log = open_log(directory, retention_bytes=6000, **SMALL)
    fill(log, 120)
    for segment in log.delete_old_segments(NOW, log.log_end_offset):
        segment.delete()
    log.delete_records(log.log_start_offset + 7, log.log_end_offset)
    assert log.segment_base_offsets[0] > 0
    log.close()


def recovered(directory: Path) -> None:
    log = open_log(directory, **SMALL)
    fill(log, 50, codec=Codec.ZSTD)
    log.abandon()
    last = max(directory.glob("*.log"))
    last.write_bytes(last.read_bytes()[:-20])
    log = open_log(directory, clean=False, **SMALL)
    assert log.recovered.cut_bytes > 0
    fill(log, 3)
    log.close()


def compacted(directory: Path) -> None:
    write_compacted_log(directory).close()


WRITERS: tuple[Callable[[Path], None], ...] = (
    codecs, compacted, control_batches, leader_epochs, log_append_time, producers, recovered, trimmed, truncated,
)  # fmt: skip


def write_corpus(directory: Path) -> list[Path]:
    """Return the directories of the logs, which lie in one log directory."""
    logs = [directory / f"{write.__name__}-0" for write in WRITERS]
    for write, log in zip(WRITERS, logs, strict=True):
        write(log)
    cleaned = int(max((directory / "compacted-0").glob("*.log")).stem)
    write_offsets(UnsyncedFiles(), directory / CLEANER_OFFSETS, {TopicPartition("compacted", 0): cleaned})
    return logs
