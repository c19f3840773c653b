"""Test the export of a replica's files for the checker."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from storage.checkpoints import HIGH_WATERMARKS, LOG_STARTS, write_offsets
from tests.storage.logs import NOW, UnsyncedFiles, open_log
from tidelog.history.columns import DAMAGED
from tidelog.model import TopicPartition
from tidelog.records import encode_batch
from verify.chaos.payload import make_id, payload
from verify.checker.inputs.export_logs import main, read_replica
from verify.checker.inputs.logs import EpochStart, read_final_log

TP = TopicPartition("orders", 0)


def write_log(directory: Path, *epochs: int, **settings: object) -> list[int]:
    """Append a batch of two records for each epoch, and return the ids."""
    directory.mkdir(parents=True)
    log = open_log(directory, **settings)
    ids = [make_id(1, sequence) for sequence in range(2 * len(epochs))]
    for number, epoch in enumerate(epochs):
        mine = ids[2 * number : 2 * number + 2]
        log.append_as_leader(encode_batch([(NOW + i % 8, None, payload(i, 50), ()) for i in mine]), epoch, NOW)
    log.close()
    return ids


def test_export_has_every_record_of_every_segment(tmp_path: Path) -> None:
    ids = write_log(tmp_path / "log", 0, 0, 2, 3, segment_bytes=200)
    assert len(list((tmp_path / "log").glob("*.log"))) > 1
    log = read_replica(tmp_path / "log", "1", TP, hw=7)
    assert (log.log_start, log.leo, log.hw) == (0, 8, 7)
    assert list(log.offsets) == list(range(8)) and list(log.ids) == ids
    assert list(log.ts) == [NOW + each % 8 for each in ids]
    assert list(log.leader_epochs) == [0, 0, 0, 0, 2, 2, 3, 3]
    assert log.epochs == [EpochStart(0, 0), EpochStart(2, 4), EpochStart(3, 6)]
    assert [(each.base, each.last) for each in log.batches] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_one_flipped_bit_changes_the_batch_crc_and_damages_the_record(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_log(tmp_path / name, 0, 1)
    (file,) = (tmp_path / "b").glob("*.log")
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    sound, damaged = (read_replica(tmp_path / name, name, TP) for name in ("a", "b"))
    assert sound.batches[0] == damaged.batches[0] and sound.batches[1] != damaged.batches[1]
    assert list(damaged.ids[:2]) == list(sound.ids[:2]) and list(damaged.ids[2:]) == [DAMAGED, DAMAGED]


def test_a_torn_tail_ends_the_log(tmp_path: Path) -> None:
    ids = write_log(tmp_path / "log", 0, 1)
    (file,) = (tmp_path / "log").glob("*.log")
    file.write_bytes(file.read_bytes()[:-1])
    log = read_replica(tmp_path / "log", "1", TP)
    assert log.leo == 2 and list(log.ids) == ids[:2]


def test_records_below_the_log_start_are_left_out(tmp_path: Path) -> None:
    ids = write_log(tmp_path / "log", 0, 1, 2)
    log = read_replica(tmp_path / "log", "1", TP, log_start=3)
    assert log.log_start == 3 and list(log.offsets) == [3, 4, 5] and list(log.ids) == ids[3:]
    assert [each.base for each in log.batches] == [2, 4]


def test_command_exports_the_logs_with_their_checkpoints(tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    ids = write_log(data / "orders-0", 0, 1)
    write_log(data / "others-0", 0)
    write_offsets(UnsyncedFiles(), data / HIGH_WATERMARKS, {TP: 4})
    write_offsets(UnsyncedFiles(), data / LOG_STARTS, {TP: 1})
    result = CliRunner().invoke(main, ["2", str(out), str(data), "--topic", "orders"])
    assert result.exit_code == 0, result.output
    (written,) = out.rglob("*.jsonl")
    assert written == out / "final" / "2" / "orders-0.jsonl"
    log = read_final_log(written)
    assert (log.broker, log.tp, log.log_start, log.leo, log.hw) == ("2", TP, 1, 4, 4)
    assert list(log.ids) == ids[1:]
