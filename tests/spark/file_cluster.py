"""A cluster for tests that is a directory: real record batches in files, shared by every process of a Spark job.

`FileConsumer` and `FileProducer` have the faces of `tidelog.Consumer` and `tidelog.Producer`, as far as the Spark
source uses them. `FileSource` is the production data source over them, under the name `tidelog-file`.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from tidelog.model import OffsetAndTimestamp, TopicPartition
from tidelog.records import decode_records, encode_batch, iter_headers
from tidelog.spark.clients import Clients
from tidelog.spark.source import TidelogSource

Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]  # timestamp, key, value, headers


class FileBatches(NamedTuple):
    records: memoryview
    fetch_offset: int
    next_offset: int
    high_watermark: int
    log_start_offset: int


class FileCluster:
    """Topics are directories, partitions files of record batches; `.start` and `.end` override their bounds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create_topic(self, topic: str, partitions: int) -> list[TopicPartition]:
        (self.directory / topic).mkdir(exist_ok=True)
        for partition in range(partitions):
            (self.directory / topic / str(partition)).touch()
        return [TopicPartition(topic, partition) for partition in range(partitions)]

    def delete_topic(self, topic: str) -> None:
        (self.directory / topic).rename(self.directory / f".{topic}-deleted")

    def topics(self) -> set[str]:
        return {path.name for path in self.directory.iterdir() if path.is_dir() and not path.name.startswith(".")}

    def partitions(self, topic: str) -> set[int]:
        if topic not in self.topics():
            raise UnknownTopicOrPartitionError(topic)
        return {int(path.name) for path in (self.directory / topic).iterdir() if path.name.isdigit()}

    def append(self, partition: TopicPartition, rows: Iterable[Row]) -> int:
        """Append one batch. Return its base offset."""
        with self._log(partition).open("ab") as log:
            fcntl.flock(log, fcntl.LOCK_EX)
            base_offset = self._written_end(partition)
            os.write(log.fileno(), encode_batch(rows, base_offset=base_offset))
        return base_offset

    def append_batch(self, partition: TopicPartition, batch: bytes) -> None:
        """As it stands, with its own offsets."""
        with self._log(partition).open("ab") as log:
            log.write(batch)

    def append_values(self, partition: TopicPartition, values: Iterable[str], timestamp_ms: int = 1000) -> int:
        return self.append(partition, [(timestamp_ms, None, value.encode(), ()) for value in values])

    def lose(self, partition: TopicPartition) -> None:
        """Every record, as an unclean election may."""
        self._log(partition).write_bytes(b"")

    def set_start(self, partition: TopicPartition, offset: int) -> None:
        self._log(partition).with_suffix(".start").write_text(str(offset))

    def pretend_end(self, partition: TopicPartition, offset: int | None) -> None:
        """Set the answer to LATEST, whatever the log holds; None restores the true answer."""
        mark = self._log(partition).with_suffix(".end")
        mark.unlink(missing_ok=True) if offset is None else mark.write_text(str(offset))

    def start(self, partition: TopicPartition) -> int:
        mark = self._log(partition).with_suffix(".start")
        return int(mark.read_text()) if mark.exists() else 0

    def end(self, partition: TopicPartition) -> int:
        mark = self._log(partition).with_suffix(".end")
        return int(mark.read_text()) if mark.exists() else self._written_end(partition)

    def batches(self, partition: TopicPartition) -> bytes:
        return self._log(partition).read_bytes()

    def values(self, partition: TopicPartition) -> list[bytes | None]:
        return [record.value for record in self.records(partition)]

    def records(self, partition: TopicPartition) -> list[Any]:
        log = self.batches(partition)
        return [record for at, _ in iter_headers(log) for record in decode_records(log, at)]

    def count(self, question: str) -> None:
        with (self.directory / f".{question}").open("ab") as tally:
            tally.write(b"1")

    def questions(self, question: str) -> int:
        """How often any consumer of any process asked this."""
        tally = self.directory / f".{question}"
        return tally.stat().st_size if tally.exists() else 0

    def _written_end(self, partition: TopicPartition) -> int:
        end = 0
        for _, header in iter_headers(self.batches(partition)):
            end = header.next_offset
        return end

    def _log(self, partition: TopicPartition) -> Path:
        path = self.directory / partition.topic / str(partition.partition)
        if not path.exists():
            raise UnknownTopicOrPartitionError(str(partition))
        return path


class FileConsumer:
    """Calls are recorded; `faults` are raised first, one for each call of a method that asks the cluster."""

    def __init__(self, cluster: FileCluster, wait: Callable[[float], None] = time.sleep) -> None:
        self.cluster = cluster
        self.faults: list[Exception] = []
        self.calls: list[str] = []
        self._wait = wait
        self._positions: dict[TopicPartition, int] = {}

    def _called(self, name: str) -> None:
        self.calls.append(name)
        self.cluster.count(name)
        if self.faults:
            raise self.faults.pop(0)

    def topics(self) -> set[str]:
        self._called("topics")
        return self.cluster.topics()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        self._called("partitions_for_topic")
        return self.cluster.partitions(topic) if topic in self.cluster.topics() else None

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self._called("beginning_offsets")
        return {partition: self.cluster.start(partition) for partition in partitions}

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self._called("end_offsets")
        return {partition: self.cluster.end(partition) for partition in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        self._called("offsets_for_times")
        answers: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for partition, time_ms in times.items():
            found = [r for r in self.cluster.records(partition) if r.timestamp >= time_ms]
            answers[partition] = OffsetAndTimestamp(found[0].offset, found[0].timestamp, 0) if found else None
        return answers

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self._positions[partition] = offset

    def poll_batches(self, timeout_ms: int) -> dict[TopicPartition, FileBatches]:
        self._called("poll_batches")
        for partition, position in self._positions.items():
            start, end = self.cluster.start(partition), self.cluster.end(partition)
            if not start <= position <= end:
                raise OffsetOutOfRangeError(f"{partition}: {position} is not in [{start}, {end}]")
            log = self.cluster.batches(partition)
            for at, header in iter_headers(log):
                if header.next_offset > position and position < end:
                    self._positions[partition] = header.next_offset
                    batch = memoryview(log)[at : at + header.size_bytes]
                    return {partition: FileBatches(batch, position, header.next_offset, end, start)}
        self._wait(min(timeout_ms, 20) / 1000)
        return {}


class FileFuture:
    def add_errback(self, errback: Callable[[BaseException], None]) -> None: ...


class FileProducer:
    def __init__(self, cluster: FileCluster) -> None:
        self._cluster = cluster
        self._waiting: dict[TopicPartition, list[Row]] = {}

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
    ) -> FileFuture:
        self._cluster.partitions(topic)
        row = (int(time.time() * 1000), key, value, headers or ())
        self._waiting.setdefault(TopicPartition(topic, partition or 0), []).append(row)
        return FileFuture()

    def flush(self) -> None:
        while self._waiting:
            self._cluster.append(*self._waiting.popitem())


@dataclass(frozen=True)
class FileClients(Clients):
    """`bootstrap_servers` is not asked: the directory is the cluster."""

    bootstrap_servers: str = "localhost:1"
    settings: Mapping[str, Any] = field(default_factory=dict)
    directory: str = ""

    def consumer(self, **defaults: Any) -> Any:
        return FileConsumer(FileCluster(Path(self.directory)))

    def producer(self) -> Any:
        return FileProducer(FileCluster(Path(self.directory)))


class FileSource(TidelogSource):
    """The client id stands for the directory, since every other option is checked."""

    @classmethod
    def name(cls) -> str:
        return "tidelog-file"

    def clients(self, bootstrap_servers: str, settings: Mapping[str, Any]) -> Clients:
        return FileClients(directory=str(settings["client_id"]))


@dataclass(frozen=True)
class OneConsumer(Clients):
    """Clients for readers that are called directly. Every call returns the same consumer."""

    bootstrap_servers: str = "localhost:1"
    settings: Mapping[str, Any] = field(default_factory=dict)
    only: Any = None

    def consumer(self, **defaults: Any) -> Any:
        return self.only


class HandClock:
    """A clock that advances only when the code under test pauses."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.pauses: list[float] = []

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.ms += max(1, round(seconds * 1000))


def shaped(offsets: Mapping[str, Mapping[int, int]]) -> str:
    return json.dumps({topic: {str(p): o for p, o in each.items()} for topic, each in offsets.items()})
