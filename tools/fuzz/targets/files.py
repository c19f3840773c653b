"""Fuzzes small files of a data directory and the indexes of a segment, as a crash, a disk or a user may damage them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from crc32c import crc32c

from storage import partition_metadata
from storage.checkpoints import read_lines, read_offsets, write_offsets
from storage.configs.log_config import LogConfig
from storage.directory import leadership_checkpoint
from storage.log.leader_epochs import FILE_NAME as EPOCHS_FILE
from storage.log.leader_epochs import LeaderEpochs
from storage.log.log import Log
from storage.producers.producer_snapshots import CRC_COVERS_FROM, decode_snapshot, encode_snapshot
from storage.producers.producer_state import BatchMetadata, Producer, ProducerState
from tidelog.errors import TidelogError
from tidelog.records import decode_records, encode_batch, iter_headers
from tools.fuzz.targets.target import Target, check
from verify.simulation.disks.crashable_files import CrashableFiles

_DIRECTORY = Path("/data")
_LOG = _DIRECTORY / "t-0"
_INT32, _INT64 = 1 << 31, 1 << 63
_BATCHES = 24
_CONFIG = LogConfig.from_topic_configs({"segment.bytes": "1500", "index.interval.bytes": "120"})


class _OneFile(CrashableFiles):
    """A file system in memory whose data directory contains one file with these bytes."""

    def __init__(self, name: str, data: bytes) -> None:
        super().__init__()
        self.make_directory(_DIRECTORY)
        self.replace(_DIRECTORY / name, data)


def run_checkpoint(data: bytes) -> None:
    """Check that offsets of partitions are valid, and unchanged after they are written and read again."""
    files = _OneFile("c", data)
    read_lines(files, _DIRECTORY / "c")
    offsets = read_offsets(files, _DIRECTORY / "c")
    for tp, offset in offsets.items():
        check(0 <= offset < _INT64 and 0 <= tp.partition < _INT32, f"{tp} at {offset}")
    write_offsets(files, _DIRECTORY / "c", offsets)
    check(read_offsets(files, _DIRECTORY / "c") == offsets, offsets)


def run_leadership_checkpoint(data: bytes) -> None:
    """Check that epochs and versions are valid, and unchanged after they are written and read again."""
    files = _OneFile(leadership_checkpoint.FILE_NAME, data)
    known = leadership_checkpoint.read(files, _DIRECTORY)
    for tp, (_, *numbers) in known.items():
        check(all(-1 <= number < _INT32 for number in (*numbers, tp.partition)), f"{tp}: {numbers}")
    leadership_checkpoint.write(files, _DIRECTORY, known)
    check(leadership_checkpoint.read(files, _DIRECTORY) == known, known)


def run_leader_epochs(data: bytes) -> None:
    """Check that epochs are valid, that they rise with their start offsets, and that each look-up has an answer."""
    epochs = LeaderEpochs.load(_DIRECTORY, _OneFile(EPOCHS_FILE, data))
    if epochs is None:
        return
    entries = epochs.entries()
    for entry in entries:
        check(0 <= entry.epoch < _INT32 and 0 <= entry.start_offset < _INT64, entry)
    check(list(entries) == sorted(entries), entries)
    for entry in entries[:3]:
        answer = epochs.end_offset_for(entry.epoch, _INT64 - 1)
        check(answer is not None and answer.epoch == entry.epoch, answer)
        check(epochs.span_of(entry.start_offset)[0] == entry.epoch, entry)
    if entries:
        epochs.truncate_from_start(entries[0].start_offset + 1)
        epochs.truncate_from_end(entries[-1].start_offset)
        epochs.assign(entries[-1].epoch + 1, entries[-1].start_offset)
    epochs.write()


def run_producer_snapshot(data: bytes) -> None:
    """Check that a snapshot, as it is and with a matching CRC, is refused, or can be written and read again."""
    sealed = data[:2] + crc32c(data[CRC_COVERS_FROM:]).to_bytes(4) + data[CRC_COVERS_FROM:]
    for snapshot in (data, sealed):
        state = decode_snapshot(snapshot)
        if state is not None:
            check(decode_snapshot(encode_snapshot(state)) is not None, "it cannot be written again")


def run_partition_metadata(data: bytes) -> None:
    """Check that a topic id is absent, or not empty and no longer than the file."""
    found = partition_metadata.parse(data)
    if found is not None:
        check(0 < len(found.topic_id) <= len(data), found)


def run_offset_index(data: bytes) -> None:
    """Check that look-ups by offset and by time are right if the `.index` of each segment holds arbitrary bytes."""
    _check_look_ups(data, ".index")


def run_time_index(data: bytes) -> None:
    """Check that look-ups by offset and by time are right if the `.timeindex` of each segment holds arbitrary bytes."""
    _check_look_ups(data, ".timeindex")


def _check_look_ups(data: bytes, suffix: str) -> None:
    clean, files = bool(data and data[0] & 1), CrashableFiles()
    files.make_directory(_DIRECTORY)
    files.make_directory(_LOG)
    for path, content in _written().items():
        files.open(path).write(0, (data[1:] if path.suffix == suffix else content,))
    try:
        log = Log.open(_LOG, _CONFIG, files, recovery_point=0 if not clean else _BATCHES, clean=clean)
    except TidelogError:
        return
    times = _times()
    for offset in range(0, _BATCHES, 5):
        batch = log.read(offset, 1)
        headers = [header for _, header in iter_headers(batch)]
        check(bool(headers) and headers[0].base_offset == offset, f"offset {offset} is not where it is read")
        check(decode_records(batch)[0].timestamp == times[offset], f"offset {offset} is another record")
    for target in (0, times[3], times[11] + 1, times[20], max(times) + 1):
        expected = next((offset for offset, time in enumerate(times) if time >= target), None)
        found = log.offset_for_timestamp(target, _BATCHES)
        check((found.offset if found else None) == expected, f"{found} is found for {target}, and not {expected}")
    for bound in (7, 16, _BATCHES):
        largest = log.offset_of_max_timestamp(bound)
        check(largest is not None and largest.timestamp == max(times[:bound]), f"{largest} is largest below {bound}")


def _times() -> list[int]:
    rng = random.Random(5)
    return [1_000 + 10 * number + rng.randrange(40) for number in range(_BATCHES)]


@cache
def _written() -> Mapping[Path, bytes]:
    """Return the files of a cleanly closed log of several segments, with their contents."""
    files = CrashableFiles()
    files.make_directory(_DIRECTORY)
    files.make_directory(_LOG)
    log = Log.open(_LOG, _CONFIG, files, recovery_point=0, clean=True)
    for time in _times():
        log.append_as_leader(encode_batch([(time, b"k", b"v" * 60, ())]), 0, max(_times()))
    log.close()
    contents = {_LOG / name: files.read(_LOG / name) for name in files.names(_LOG)}
    return {path: content for path, content in contents.items() if content is not None}


def _indexes(suffix: str) -> list[bytes]:
    return [
        first + content for path, content in _written().items() if path.suffix == suffix for first in (b"\0", b"\1")
    ]


def _snapshots() -> list[bytes]:
    state = ProducerState()
    empty = encode_snapshot(state)
    state.producers[7] = Producer(1, (BatchMetadata(3, 9, 2, 1000),), 1000, -1, -1)
    state.producers[8] = Producer(0, (), 1000, 4, 11)
    return [encode_snapshot(state), empty]


_METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"

TARGETS = (
    Target(
        "checkpoint",
        "recovery points, high watermarks, log starts",
        run_checkpoint,
        lambda: [b"0\n2\norders 0 4711\norders 1 12\n", b"0\n0\n", b"0\n1\na.b_c-d 7 9223372036854775807\n"],
        ("storage",),
    ),
    Target(
        "leaderships",
        "leadership-checkpoint",
        run_leadership_checkpoint,
        lambda: [b"0\n2\norders 0 AAAAAAAAAAAAAAAAAAAAAQ 17 3 40 2\na-b 1  4 -1 7 2\n", b"0\n0\n"],
        ("storage",),
    ),
    Target(
        "leader-epochs",
        "leader-epoch-checkpoint",
        run_leader_epochs,
        lambda: [b"0\n3\n0 0\n3 70\n4 90\n", b"0\n0\n", b"0\n1\n2147483647 9223372036854775807\n"],
        ("storage",),
    ),
    Target("producer-snapshot", ".snapshot files", run_producer_snapshot, _snapshots, ("storage",)),
    Target(
        "partition-metadata",
        "partition.metadata",
        run_partition_metadata,
        lambda: [_METADATA, _METADATA + b"crc32c: %08x\n" % crc32c(_METADATA), _METADATA[:-1]],
        ("storage",),
    ),
    Target("offset-index", ".index files", run_offset_index, lambda: _indexes(".index"), ("storage",)),
    Target("time-index", ".timeindex files", run_time_index, lambda: _indexes(".timeindex"), ("storage",)),
)
