"""Log directories that a real Kafka 3.9 wrote, one closed in order and one killed, can be opened and read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from storage.checkpoints import read_offsets
from storage.configs.log_config import LogConfig
from storage.directory import meta_properties
from storage.directory.log_directory import LogDirectory
from storage.log.log import Log
from storage.producers.producer_snapshots import decode_snapshot
from tests.storage.kafka_written.archive import LOGS, PRODUCERS, Written, read_written, unpack
from tests.storage.logs import UnsyncedFiles, append, config, first_at_or_after, largest, read_all, records_of
from tidelog.model import TopicPartition
from tidelog.records import Codec, MarkerKind, decode_control_batch, iter_headers

#: A slow test has these tests judge archives that it has just made.
ARCHIVES = Path(os.environ.get("KAFKA_WRITTEN", Path(__file__).parent / "kafka_written"))
TOPICS = ("codecs", "followed", "idempotent", "transactions", "compacted", "trimmed", "stamped")
CONFIGS = {
    "compacted": config(index_interval_bytes=300, cleanup_policy="compact"),
    "stamped": config(index_interval_bytes=300, message_timestamp_type="LogAppendTime"),
}
#: If Kafka appends several batches at once, its index entry has the first one's position and the last one's offset.
SEVERAL_AT_ONCE = ("compacted", "followed")
PRODUCER = re.compile(
    r"producerId: (-?\d+) producerEpoch: (-?\d+) coordinatorEpoch: (-?\d+) "
    r"currentTxnFirstOffset: (?:OptionalLong\[(\d+)\]|OptionalLong.empty) lastTimestamp: (-?\d+) "
    r"firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (-?\d+) timestamp: (-?\d+)"
)


class Opened(NamedTuple):
    """A directory as Kafka wrote it, and our logs on a copy of it."""

    name: str
    original: Path
    written: list[Written]
    directory: LogDirectory
    logs: dict[str, Log]

    def of(self, topic: str) -> list[Written]:
        return [record for record in self.written if record.topic == topic]


def cluster_of(path: Path) -> str:
    found = re.search(r"^cluster.id=(.*)$", (path / meta_properties.FILE_NAME).read_text(), re.MULTILINE)
    assert found
    return found[1]


def config_of(topic: str) -> LogConfig:
    return CONFIGS.get(topic, config(index_interval_bytes=300))


@pytest.fixture(params=["clean", "killed"], scope="module")
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    tmp_path = tmp_path_factory.mktemp(request.param)
    original = unpack(ARCHIVES / f"{request.param}.tar.xz", tmp_path / "original")
    path = unpack(ARCHIVES / f"{request.param}.tar.xz", tmp_path / "copy") / LOGS
    directory = LogDirectory.open(path, UnsyncedFiles(), 1, cluster_of(path), "this boot")
    logs = {tp.topic: directory.open_log(tp, config_of(tp.topic)) for tp in directory.found()}
    yield Opened(request.param, original / LOGS, read_written(original), directory, logs)
    directory.close(clean=False)


def as_written(log: Log) -> list[Written]:
    """Return the users' records in the log, without the markers of transactions."""
    topic = log.directory.name.rpartition("-")[0]
    data = read_all(log)
    markers = {offset for _, h in iter_headers(data) if h.is_control for offset in range(h.base_offset, h.next_offset)}
    return [
        Written(topic, record.offset, record.timestamp, record.key, record.value, record.headers)
        for record, _ in records_of(log)
        if record.offset not in markers
    ]


def test_every_topic_is_found_with_kafkas_own(opened: Opened) -> None:
    assert {*TOPICS, "__transaction_state"} <= opened.logs.keys()
    assert opened.directory.previous_shutdown.clean == (opened.name == "clean")


@pytest.mark.parametrize("topic", sorted(set(TOPICS) - {"compacted", "trimmed"}))
def test_every_record_equals_the_one_that_the_client_wrote(opened: Opened, topic: str) -> None:
    log = opened.logs[topic]
    assert as_written(log) == opened.of(topic)
    assert log.recovered.cut_bytes == log.recovered.removed_segments == 0


def test_trimmed_log_starts_at_kafkas_log_start(opened: Opened) -> None:
    log = opened.logs["trimmed"]
    start = read_offsets(UnsyncedFiles(), opened.original / "log-start-offset-checkpoint")[TopicPartition("trimmed", 0)]
    assert log.log_start_offset == start > log.segment_base_offsets[0] > 0
    assert as_written(log) == [record for record in opened.of("trimmed") if record.offset >= start]


def test_compacted_log_holds_the_last_record_of_each_key_only(opened: Opened) -> None:
    log, written = opened.logs["compacted"], opened.of("compacted")
    kept = as_written(log)
    assert len(kept) < len(written) / 2
    assert set(kept) <= set(written)
    assert set({record.key: record for record in written}.values()) <= set(kept)
    assert log.log_end_offset == written[-1].offset + 1
    attributes = {header.attributes for _, header in iter_headers(read_all(log))}
    assert any(bits & 1 << 6 for bits in attributes), "no batch has a delete horizon"


def test_compaction_gaps_are_no_loss_after_a_change_of_policy(opened: Opened, tmp_path: Path) -> None:
    path = unpack(ARCHIVES / f"{opened.name}.tar.xz", tmp_path) / LOGS
    directory = LogDirectory.open(path, UnsyncedFiles(), 1, cluster_of(path), "this boot")
    log = directory.open_log(TopicPartition("compacted", 0), config(cleanup_policy="delete"))
    assert as_written(log) == as_written(opened.logs["compacted"])
    assert log.recovered.removed_segments == 0
    directory.close(clean=False)


def test_all_codecs_and_several_segments_are_there(opened: Opened) -> None:
    assert len(opened.logs["codecs"].segment_base_offsets) > 1
    used = {header.codec for _, header in iter_headers(read_all(opened.logs["codecs"]))}
    assert used == set(Codec)


def test_markers_of_transactions_are_read(opened: Opened) -> None:
    data = read_all(opened.logs["transactions"])
    markers = [decode_control_batch(data, at) for at, header in iter_headers(data) if header.is_control]
    assert {marker.kind for marker in markers} == {MarkerKind.COMMIT, MarkerKind.ABORT}


@pytest.mark.parametrize("topic", TOPICS)
def test_look_up_by_time_agrees_with_a_scan(opened: Opened, topic: str) -> None:
    log = opened.logs[topic]
    records = records_of(log)
    stamps = sorted({record.timestamp for record, _ in records})
    for timestamp in (0, *stamps[::7], *(stamp + 1 for stamp in stamps[::11]), stamps[-1], stamps[-1] + 1):
        for bound in (log.log_end_offset, log.log_end_offset - 20):
            assert log.offset_for_timestamp(timestamp, bound) == first_at_or_after(records, timestamp, bound)
    assert log.offset_of_max_timestamp(log.log_end_offset) == largest(records, log.log_end_offset)


@pytest.mark.parametrize("topic", TOPICS)
def test_indexes_finished_by_kafka_are_confirmed_without_a_rebuild(opened: Opened, topic: str) -> None:
    log = opened.logs[topic]
    test_look_up_by_time_agrees_with_a_scan(opened, topic)
    directory = opened.original / f"{topic}-0"
    sealed = [f"{base:020}" for base in log.segment_base_offsets[: -1 if opened.name == "killed" else None]]
    indexes = [directory / f"{stem}{suffix}" for stem in sealed for suffix in (".index", ".timeindex")]
    changed = [path.name for path in indexes if (log.directory / path.name).read_bytes() != path.read_bytes()]
    assert topic in SEVERAL_AT_ONCE or changed == []
    assert len(sealed) * 2 > len(changed)


def test_index_padding_of_a_killed_kafka_is_not_an_entry(opened: Opened) -> None:
    log = opened.logs["codecs"]
    log.segments[-1].flush()  # its rebuilt indexes are in memory only
    name = f"{log.segment_base_offsets[-1]:020}"
    padded = opened.name == "killed"
    for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
        before = (opened.original / "codecs-0" / (name + suffix)).read_bytes()
        after = (log.directory / (name + suffix)).read_bytes()
        assert before.endswith(bytes(10 * entry_bytes)) == padded
        assert not after.endswith(bytes(entry_bytes))
        assert after and before.startswith(after[: -entry_bytes if padded else None])


def test_the_checkpoints_are_read(opened: Opened) -> None:
    files = UnsyncedFiles()
    points = read_offsets(files, opened.original / "recovery-point-offset-checkpoint")
    marks = read_offsets(files, opened.original / "replication-offset-checkpoint")
    assert opened.directory.checkpoints.high_watermarks() == marks
    for topic in TOPICS:
        log, tp = opened.logs[topic], TopicPartition(topic, 0)
        assert log.recovery_point == points[tp]
        assert marks[tp] <= log.log_end_offset
        if opened.name == "clean":
            assert points[tp] == log.log_end_offset
    compacted = TopicPartition("compacted", 0)
    assert opened.directory.checkpoints.cleaner_offset(compacted) == opened.logs["compacted"].segment_base_offsets[-1]


def test_leader_epochs_and_topic_ids_are_read(opened: Opened) -> None:
    for topic in TOPICS:
        log, directory = opened.logs[topic], opened.original / f"{topic}-0"
        lines = (directory / "leader-epoch-checkpoint").read_text().splitlines()[2:]
        epochs = [tuple(map(int, line.split())) for line in lines]
        assert [tuple(epoch) for epoch in log.epochs] == [epoch for epoch in epochs if epoch[1] < log.log_end_offset]
        assert (directory / "partition.metadata").read_text().split() == ["version:", "0", "topic_id:", log.topic_id]
    assert len(opened.logs["codecs"].epochs) == (2 if opened.name == "killed" else 1)


def test_producers_are_read_as_kafkas_tool_reads_them(opened: Opened) -> None:
    reported: dict[str, list[tuple[int, ...]]] = {}
    for line in (opened.original.parent / PRODUCERS).read_text().splitlines():
        if line.startswith("Dumping "):
            entries = reported.setdefault(line.removeprefix("Dumping "), [])
        else:
            match = PRODUCER.fullmatch(line.strip())
            assert match, line
            entries.append(tuple(int(number or -1) for number in match.groups()))
    assert sum(map(len, reported.values())) > 5
    for name, expected in reported.items():
        state = decode_snapshot((opened.original / name).read_bytes())
        assert state is not None
        read = []
        for producer_id, producer in state.producers.items():
            [batch] = producer.batches
            outline = (producer_id, producer.epoch, producer.coordinator_epoch, producer.transaction_start)
            sequences = (batch.base_sequence, batch.last_sequence)
            read.append((*outline, producer.timestamp, *sequences, *batch[1:]))
        assert sorted(read) == sorted(expected), name


def test_log_written_by_kafka_accepts_appends(opened: Opened) -> None:
    log = opened.logs["codecs"]
    end = log.log_end_offset
    assert append(log, leader_epoch=9) == end
    assert as_written(log)[:-1] == opened.of("codecs")
    assert log.epochs[-1] == (9, end)
