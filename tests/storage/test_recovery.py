"""The files that a crash leaves, and the log that recovery makes of them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.inspection import Damage, inspect
from tests.storage.logs import NOW, append, first_at_or_after, open_log, read_all, records_of
from tidelog.records import iter_headers
from tidelog.records.header import HEADER

SMALL = {"segment_bytes": 600, "index_interval_bytes": 150}


def write_log(directory: Path, batches: int = 25) -> bytes:
    """Write a log in three epochs and several segments, as a killed process leaves it. Return all its bytes."""
    log = open_log(directory, **SMALL)
    for number in range(batches):
        append(log, NOW - number % 7, NOW - 3, leader_epoch=number // 10)
    data = read_all(log)
    log.leader_epochs.write()
    log.abandon()
    return data


def whole_batches(data: bytes) -> set[bytes]:
    """Return every prefix of whole batches."""
    return {data[:position] for position, _ in iter_headers(data)} | {data}


@settings(max_examples=75)
@given(cut=st.floats(0, 1), fill=st.sampled_from(["nothing", "zeros", "noise"]))
def test_log_truncated_at_any_byte_recovers_whole_batches(cut: float, fill: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        data = write_log(directory)
        last = sorted(directory.glob("*.log"))[-1]
        content = last.read_bytes()
        kept = int(len(content) * cut)
        rest = {"nothing": b"", "zeros": bytes(len(content) - kept), "noise": b"\x5a" * 200}[fill]
        last.write_bytes(content[:kept] + rest)

        log = open_log(directory, clean=False, **SMALL)
        recovered = read_all(log)
        assert recovered in whole_batches(data)
        assert len(recovered) > len(data) - len(content) - 1
        assert len(recovered) + 200 > len(data) - len(content) + kept, "only the partial batch is lost"
        assert log.latest_epoch == max((header.partition_leader_epoch for _, header in iter_headers(recovered)))

        base_offset = append(log, NOW, leader_epoch=9)
        assert base_offset == list(iter_headers(recovered))[-1][1].next_offset
        for target in range(NOW - 8, NOW + 1):
            expected = first_at_or_after(records_of(log), target, log.log_end_offset)
            assert log.offset_for_timestamp(target, log.log_end_offset) == expected
        log.abandon()


def test_flipped_bit_above_the_recovery_point_truncates_the_log(tmp_path: Path) -> None:
    data = write_log(tmp_path)
    second = sorted(tmp_path.glob("*.log"))[1]
    content = bytearray(second.read_bytes())
    content[-5] ^= 1
    second.write_bytes(content)

    log = open_log(tmp_path, clean=False, **SMALL)
    recovered = read_all(log)
    assert recovered in whole_batches(data)
    assert log.recovered.removed_segments > 0
    assert sorted(tmp_path.glob("*.log"))[-1] == second


def test_recovery_reads_nothing_below_the_recovery_point(tmp_path: Path) -> None:
    data = write_log(tmp_path)
    log = open_log(tmp_path, clean=False, recovery_point=list(iter_headers(data))[-2][1].base_offset, **SMALL)
    assert 0 < log.recovered.checked_bytes < 600
    assert read_all(log) == data


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("kept", [0, 12, 13, 24])
def test_missing_index_entries_below_the_recovery_point_are_harmless(tmp_path: Path, suffix: str, kept: int) -> None:
    log = open_log(tmp_path, index_interval_bytes=150)
    for number in range(30):
        append(log, NOW + 10 * number)
    log.abandon()
    path = next(tmp_path.glob("*" + suffix))
    path.write_bytes(path.read_bytes()[:kept])
    for recovery_point in (29, 20, 10):
        log = open_log(tmp_path, clean=False, recovery_point=recovery_point, index_interval_bytes=150)
        for target in range(NOW, NOW + 300, 5):
            expected = first_at_or_after(records_of(log), target, 30)
            assert log.offset_for_timestamp(target, 30) == expected
        log.abandon()


def test_recovery_finds_the_same_indexes_as_the_writer_made(tmp_path: Path) -> None:
    write_log(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*index")}
    log = open_log(tmp_path, clean=False, **SMALL)
    log.abandon()
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*index")} == before


def test_a_missing_segment_in_the_middle_ends_the_log_before_it(tmp_path: Path) -> None:
    data = write_log(tmp_path)
    sorted(tmp_path.glob("*.log"))[2].unlink()
    log = open_log(tmp_path, clean=True, **SMALL)
    assert read_all(log) in whole_batches(data)
    assert len(log.segment_base_offsets) == 2
    assert log.recovered.removed_segments > 0


@pytest.mark.parametrize("left", ["nothing", "all but the last batch"])
def test_compacted_segment_that_lost_its_end_ends_the_log(tmp_path: Path, left: str) -> None:
    """Compaction is excluded as a cause, because no cleaner ran."""
    data = write_log(tmp_path)
    second = sorted(tmp_path.glob("*.log"))[1]
    content = second.read_bytes()
    *_, (last, _) = iter_headers(content)
    second.write_bytes(content[: last if left == "all but the last batch" else 0])
    log = open_log(tmp_path, clean=False, recovery_point=0, cleanup_policy="compact", **SMALL)
    assert read_all(log) in whole_batches(data)
    assert log.log_end_offset == log.segments[-1].next_offset == (records_of(log)[-1][0].offset + 1)
    assert log.recovered.removed_segments


@pytest.mark.parametrize("cleaned", [True, False])
def test_segments_below_the_cleaner_offset_may_end_early(tmp_path: Path, cleaned: bool) -> None:
    """Leave the log as Kafka's cleaner does."""
    data = write_log(tmp_path)
    second, third = sorted(tmp_path.glob("*.log"))[1:3]
    content = second.read_bytes()
    *_, (last, _) = iter_headers(content)
    second.write_bytes(content[:last])
    log = open_log(tmp_path, clean=False, cleaned_to=int(third.stem) - 1 + cleaned, **SMALL)
    assert read_all(log).endswith(data[-100:]) is cleaned


def strays(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.stray"))


@pytest.mark.parametrize("clean", [True, False])
def test_segments_after_a_missing_one_are_set_aside_and_restorable(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_log(tmp_path)
    flushed_to = records_of(open_log(tmp_path, **SMALL))[-1][0].offset + 1
    paths = sorted(tmp_path.glob("*.log"))
    missing, later = paths[2], {path.name: path.read_bytes() for path in paths[3:]}
    taken = missing.read_bytes()
    missing.unlink()

    log = open_log(tmp_path, clean=clean, recovery_point=flushed_to, **SMALL)
    assert read_all(log) in whole_batches(data)
    assert {path.name: path.read_bytes() for path in strays(tmp_path)} == {f"{k}.stray": v for k, v in later.items()}
    [reported] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert (
        str(tmp_path) in reported
        and all(f"{name}.stray" in reported for name in later)
        and "docs/FORMAT.md" in reported
    )
    for path in strays(tmp_path):
        assert not [finding for finding in inspect(path, records=True) if isinstance(finding, Damage)]
    log.close()

    missing.write_bytes(taken)
    for path in strays(tmp_path):
        path.rename(path.with_suffix(""))
    assert read_all(open_log(tmp_path, clean=clean, recovery_point=flushed_to, **SMALL)) == data


@pytest.mark.parametrize("clean", [True, False])
def test_bytes_after_damage_in_a_flushed_segment_are_set_aside(tmp_path: Path, clean: bool) -> None:
    data = write_log(tmp_path)
    flushed_to = records_of(open_log(tmp_path, **SMALL))[-1][0].offset + 1
    paths = sorted(tmp_path.glob("*.log"))
    position, header = list(iter_headers(paths[1].read_bytes()))[2]
    content = bytearray(paths[1].read_bytes())
    content[position + header.size_bytes - 1] ^= 1
    content[8 + position] ^= 1  # its length, so that a scan of the headers alone finds it
    paths[1].write_bytes(content)
    later = {path.name: path.read_bytes() for path in paths[2:]}

    log = open_log(tmp_path, clean=clean, recovery_point=flushed_to, **SMALL)
    assert log.log_end_offset == header.base_offset and read_all(log) in whole_batches(data)
    kept = {path.name.removesuffix(".stray"): path.read_bytes() for path in strays(tmp_path)}
    assert kept == {f"{header.base_offset:020}.log": bytes(content[position:]), **later}
    assert list(log.recovered.set_aside) == sorted(path.name for path in strays(tmp_path))


def test_file_set_aside_replaces_no_earlier_one(tmp_path: Path) -> None:
    for _ in range(3):
        write_log(tmp_path)
        sorted(tmp_path.glob("*.log"))[1].unlink()
        log = open_log(tmp_path, **SMALL)
        last = log.segment_base_offsets[-1]
        log.abandon()
        assert last == 0
        for path in tmp_path.glob("0*.log"):
            path.unlink()
        (tmp_path / "leader-epoch-checkpoint").unlink()
    names = [path.name for path in strays(tmp_path)]
    assert len(names) % 3 == 0 and len({name.split(".")[0] for name in names}) == len(names) // 3
    assert {name.split(".log")[1] for name in names} == {".stray", ".1.stray", ".2.stray"}


def test_unflushed_bytes_after_a_partial_batch_are_removed(tmp_path: Path) -> None:
    write_log(tmp_path)
    second = sorted(tmp_path.glob("*.log"))[1]
    second.write_bytes(second.read_bytes()[:-5])
    log = open_log(tmp_path, clean=False, recovery_point=0, **SMALL)
    assert log.recovered.removed_segments and not strays(tmp_path)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        b"0\n1\n0 4",  # truncated within the last number
        b"0\n2\n0 40\n1 60\n",  # trimmed, but not on the disk
        b"0\n2\n1 20\n2 40\n",
        b"0\n2\n0 0\n2 40\n",  # one in the middle is missing
        b"0\n3\n0 0\n1 21\n2 40\n",
        b"0\n3\n0 0\n1 20\n6 40\n",
        b"0\n0\n",
    ],
)
def test_an_epoch_checkpoint_that_the_batches_contradict_is_read_from_them(
    tmp_path: Path, content: bytes, clean: bool
) -> None:
    write_log(tmp_path)
    epochs = open_log(tmp_path, **SMALL).epochs
    (tmp_path / "leader-epoch-checkpoint").write_bytes(content)
    assert open_log(tmp_path, clean=clean, recovery_point=50, **SMALL).epochs == epochs == ((0, 0), (1, 20), (2, 40))


@pytest.mark.parametrize("content", [None, b"", b"0\n5\n", b"\xff\x00", b"0\n2\n3 5\n1 9\n", b"0\n1\nx y\n"])
def test_a_damaged_epoch_checkpoint_is_read_from_the_batches(tmp_path: Path, content: bytes | None) -> None:
    write_log(tmp_path)
    epochs = open_log(tmp_path, **SMALL).epochs
    path = tmp_path / "leader-epoch-checkpoint"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert open_log(tmp_path, **SMALL).epochs == epochs
    assert len(epochs) == 3


def test_log_trimmed_inside_a_segment_keeps_its_epoch_checkpoint(tmp_path: Path) -> None:
    write_log(tmp_path)
    log = open_log(tmp_path, **SMALL)
    log.raise_log_start(1)
    log.close()
    # No CRC covers the epoch of a batch. A scan of all batches, as without a checkpoint, would trust this one.
    path = min(each for each in tmp_path.glob("*.log") if int(each.stem) >= 20)
    content = bytearray(path.read_bytes())
    position, header = next(each for each in iter_headers(content) if each[1].base_offset > 20)
    HEADER.pack_into(content, position, *header._replace(partition_leader_epoch=0))
    path.write_bytes(content)
    assert open_log(tmp_path, **SMALL).epochs == ((0, 0), (1, 20), (2, 40))


def test_epoch_checkpoint_drops_epochs_past_the_log_end(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, NOW, NOW, leader_epoch=1)
    append(log, NOW, leader_epoch=4)
    log.abandon()
    path = next(tmp_path.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    log = open_log(tmp_path, clean=False)
    assert log.epochs == ((1, 0),)
    assert log.end_offset_for_epoch(1) == (1, 2)


def test_leftovers_of_a_crash_are_swept_up(tmp_path: Path) -> None:
    write_log(tmp_path)
    for name in ("00000000000000000077.index", "leader-epoch-checkpoint.tmp", "00000000000000000000.log.deleted"):
        (tmp_path / name).write_bytes(b"x")
    open_log(tmp_path, **SMALL)
    assert not [
        path.name for path in tmp_path.iterdir() if path.name.endswith((".tmp", ".deleted")) or "77" in path.name
    ]


def test_clean_close_leaves_everything_and_needs_no_checks(tmp_path: Path) -> None:
    log = open_log(tmp_path, **SMALL)
    for number in range(30):
        append(log, NOW - number)
    data = read_all(log)
    log.close()
    again = open_log(tmp_path, recovery_point=log.recovery_point, **SMALL)
    assert again.recovered.checked_bytes == 0
    assert read_all(again) == data
    assert again.largest_timestamp == NOW


def test_a_restart_does_not_depend_on_the_index_files(tmp_path: Path) -> None:
    original, copy = tmp_path / "a", tmp_path / "b"
    data = write_log(original)
    shutil.copytree(original, copy)
    for path in copy.glob("*index"):
        path.unlink()
    log = open_log(copy, **SMALL)
    assert read_all(log) == data
    log.close()
    log = open_log(original, **SMALL)
    log.close()
    for path in original.glob("*index"):
        assert (copy / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("clean", [True, False])
def test_log_without_its_first_segment_reports_the_loss(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
) -> None:
    write_log(tmp_path)
    (tmp_path / "00000000000000000000.log").unlink()
    log = open_log(tmp_path, clean=clean, **SMALL)
    assert (
        f"started at offset 0 and now starts at offset {log.log_start_offset}: segment files are missing" in caplog.text
    )
    log.abandon()
    caplog.clear()
    open_log(tmp_path, clean=clean, **SMALL)
    assert not caplog.text


def test_checks_begin_one_index_entry_before_the_recovery_point(tmp_path: Path) -> None:
    settings = {"segment_bytes": 100_000, "index_interval_bytes": 150}
    for clock, step in (("forward", 1), ("backward", -1), ("standing", 0)):
        directory = tmp_path / clock
        log = open_log(directory, **settings)
        for number in range(100):
            append(log, NOW + step * number)
        size = log.size_bytes // 100
        log.flush()
        log.abandon()
        for recovery_point in (50, 51, 52, 53, 100):
            again = open_log(directory, clean=False, recovery_point=recovery_point, **settings)
            assert again.recovered.checked_bytes <= (100 - recovery_point + 4) * size, (clock, recovery_point)
            assert (again.log_end_offset, again.largest_timestamp) == (100, NOW + max(step * 99, 0))
            again.flush()
            again.abandon()
