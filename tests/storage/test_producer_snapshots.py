"""`.snapshot` files: Kafka's bytes, at most one for each segment, and damaged ones are not used."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.log import Log
from storage.producers.producer_snapshots import ProducerSnapshots, decode_snapshot, encode_snapshot
from storage.producers.producer_state import BatchMetadata, Producer, ProducerState
from tests.storage.logs import NOW, UnsyncedFiles, append, batch, config, open_log
from tidelog.records import read_header
from verify.simulation.disks.crashable_files import CrashableFiles
from verify.simulation.disks.page_cache import FORGOTTEN

#: Written by Kafka 3.9.1's own ProducerStateManager: producer 7, whose last batch wrapped from sequence 2³¹−2 to 1, and
#: producer 4000, of which only a marker and an open transaction are known.
KAFKAS = bytes.fromhex(
    "000168f6b26900000002"
    "00000000000000070003000000010000000000001266000000030000018bcfe56800ffffffffffffffffffffffff"
    "0000000000000fa00000ffffffffffffffffffffffff000000000000018bcfe568010000000c00000000000011f8"
)


def kafkas_producers() -> ProducerState:
    state = ProducerState()
    state.producers[7] = Producer(3, [BatchMetadata(1, 4710, 3, NOW)], NOW)
    state.producers[4000] = Producer(0, (), NOW + 1, coordinator_epoch=12, transaction_start=4600)
    return state


def facts(state: ProducerState | None) -> dict[int, tuple[object, ...]] | None:
    if state is None:
        return None
    return {
        producer_id: (
            producer.epoch,
            list(producer.batches)[-1:],
            producer.timestamp,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
        for producer_id, producer in state.producers.items()
    }


def test_the_bytes_are_those_that_kafka_writes() -> None:
    assert encode_snapshot(kafkas_producers()) == KAFKAS
    assert encode_snapshot(ProducerState()).hex() == "0001" + "48674bc7" + "00000000"


def test_metadata_written_by_kafka_is_understood() -> None:
    state = decode_snapshot(KAFKAS)
    assert facts(state) == facts(kafkas_producers())
    assert state is not None
    assert (state.producers[7].batches[0].base_sequence, state.producers[7].batches[0].base_offset) == (2**31 - 2, 4707)


def test_any_flipped_bit_is_noticed() -> None:
    for position in range(len(KAFKAS) * 8):
        data = bytearray(KAFKAS)
        data[position // 8] ^= 1 << position % 8
        assert decode_snapshot(bytes(data)) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**62),
            st.integers(0, 2**15 - 1),
            st.integers(0, 2**31 - 1),
            st.integers(0, 2**62),
            st.integers(1, 9),
        )
    )
)
def test_snapshot_is_readable_and_its_truncations_are_not(batches: list[tuple[int, int, int, int, int]]) -> None:
    state = ProducerState()
    for producer_id, epoch, sequence, offset, count in batches:
        data = batch(*range(count), producer_id=producer_id, epoch=epoch, sequence=sequence, base_offset=offset)
        state.update(read_header(data))
    data = encode_snapshot(state)
    again = decode_snapshot(data)
    assert again is not None
    assert encode_snapshot(again) == data
    assert facts(again) == facts(state)
    for end in range(len(data)):
        assert decode_snapshot(data[:end]) is None
    assert decode_snapshot(data + b"\0") is None


def test_newest_valid_snapshot_counts_and_others_are_removed(tmp_path: Path) -> None:
    files = UnsyncedFiles()
    snapshots = ProducerSnapshots(tmp_path, files, files.names(tmp_path))
    for offset in (3, 5, 8, 9):
        snapshots.write(offset, kafkas_producers())
    (tmp_path / "00000000000000000008.snapshot").write_bytes(KAFKAS[:-1])
    latest = snapshots.latest(8)
    assert latest is not None
    assert (latest[0], facts(latest[1])) == (5, facts(kafkas_producers()))
    assert snapshots.offsets() == (3, 5)
    snapshots.keep_only([5])
    assert snapshots.offsets() == (5,)
    assert snapshots.latest(4) is None


def test_snapshots_exist_for_each_roll_and_for_the_log_end(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for _ in range(3):
        for _ in range(5):
            append(log)
        log.close()
        log = open_log(tmp_path, segment_bytes=300)
    offsets = {int(path.stem) for path in tmp_path.glob("*.snapshot")}
    assert offsets == {*log.segment_base_offsets[1:], log.log_end_offset}
    log.truncate_to(log.segment_base_offsets[2] + 1)
    assert all(int(path.stem) <= log.log_end_offset for path in tmp_path.glob("*.snapshot"))
    log.truncate_fully_and_start_at(100)
    assert not list(tmp_path.glob("*.snapshot"))


PATH = Path("/orders-0")


def opened(files: CrashableFiles, *, clean: bool = False) -> Log:
    return Log.open(PATH, config(segment_bytes=300), files, recovery_point=1, clean=clean)


def produce(log: Log, producer_id: int) -> None:
    last = log._appender.producers.producers.get(producer_id)
    sequence = last.batches[-1].last_sequence + 1 if last else 0
    log.append_as_leader(batch(NOW, producer_id=producer_id, epoch=0, sequence=sequence), 0, NOW)


class KilledError(Exception):
    """End the process; the machine keeps running."""


@pytest.mark.parametrize("killed", [False, True])
def test_truncated_batches_are_not_remembered_after_later_appends(killed: bool) -> None:
    files = CrashableFiles()
    log = opened(files)
    produce(log, 7)
    log.flush()
    while len(log.segments) < 2:
        produce(log, 7)
    beyond = log.segment_base_offsets[-1]
    if killed:
        log.flush()

        def kill() -> None:
            if files.mutations[-1].startswith("remove") and files.mutations[-1].endswith(".snapshot"):
                raise KilledError

        files.boundary = kill
        with pytest.raises(KilledError):
            log.truncate_to(1)
        files.boundary = lambda: None
    else:  # the power fails, and only the snapshot of the last writes is on the disk
        files.open(PATH / f"{beyond:020}.snapshot").fsync()
        files.fsync_directory(PATH)
        files = files.crash(FORGOTTEN)
    log = opened(files)
    assert log.log_end_offset == 1
    while log.log_end_offset < beyond:
        produce(log, 8)
    files.open(log.segments[0].log.path).fsync()
    log = opened(files.crash(FORGOTTEN))
    assert log.log_end_offset == beyond
    assert log.last_offsets_of_producers == {7: 0, 8: beyond - 1}


def test_clean_shutdown_flushes_the_last_snapshot() -> None:
    files = CrashableFiles()
    log = opened(files)
    produce(log, 7)
    log.roll(NOW)
    log.raise_log_start(1)
    assert log.delete_old_segments(NOW, 1)
    log.close()
    log = opened(files.crash(FORGOTTEN), clean=True)
    assert (log.log_start_offset, log.last_offsets_of_producers) == (1, {7: 0})


def test_new_log_without_batches_needs_no_snapshot(tmp_path: Path) -> None:
    open_log(tmp_path).close()
    assert not list(tmp_path.glob("*.snapshot"))
    log = open_log(tmp_path)
    append(log)
    log.close()
    assert [int(path.stem) for path in tmp_path.glob("*.snapshot")] == [1]


def test_log_whose_records_are_deleted_has_a_snapshot_at_its_end(tmp_path: Path) -> None:
    """Without the snapshot, the next open would read the batches that are deleted."""
    log = open_log(tmp_path)
    append(log)
    log.raise_log_start(log.log_end_offset)
    log.close()
    assert [int(path.stem) for path in tmp_path.glob("*.snapshot")] == [1]
