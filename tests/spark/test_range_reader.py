from __future__ import annotations

from typing import cast

import pytest
from file_cluster import FileCluster, FileConsumer, HandClock, OneConsumer

from tidelog import Consumer
from tidelog.arrow.offset_range import OffsetRange
from tidelog.errors import (
    DataLossError,
    DisconnectedError,
    LogTruncationError,
    NoBrokersError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    TimeoutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from tidelog.model import TopicPartition
from tidelog.records import encode_batch
from tidelog.spark.columns import kafka_schema
from tidelog.spark.range_reader import RangeReader

T0 = TopicPartition("t", 0)


@pytest.fixture
def consumer(cluster: FileCluster) -> FileConsumer:
    cluster.create_topic("t", 1)
    for base in range(0, 100, 10):
        cluster.append_values(T0, map(str, range(base, base + 10)))
    return FileConsumer(cluster)


def offsets(
    consumer: FileConsumer, start: int, until: int, *, fail_on_data_loss: bool = True, clock: HandClock | None = None
) -> list[int]:
    reader = RangeReader(OneConsumer(only=consumer), kafka_schema(include_headers=False), fail_on_data_loss, 5_000)
    clock = clock or HandClock()
    consumer._wait = clock.pause
    span = OffsetRange(T0, start, until)
    return [
        offset
        for batch in reader.read_with(cast(Consumer, consumer), span, clock)
        for offset in batch["offset"].to_pylist()
    ]


def test_a_task_reads_exactly_its_range(consumer: FileConsumer) -> None:
    assert offsets(consumer, 13, 58) == list(range(13, 58))


def test_moved_leader_only_delays_the_task(consumer: FileConsumer) -> None:
    consumer.faults = [NotLeaderOrFollowerError("moved"), DisconnectedError("gone"), TimeoutError("slow")]
    assert offsets(consumer, 0, 100) == list(range(100))


def test_another_error_fails_the_task(consumer: FileConsumer) -> None:
    consumer.faults = [UnknownServerError("broken")]
    with pytest.raises(UnknownServerError):
        offsets(consumer, 0, 100)


def test_deleted_records_are_reported_as_loss(consumer: FileConsumer) -> None:
    consumer.cluster.set_start(T0, 30)
    with pytest.raises(DataLossError, match=r"t-0 \[10, 30\).*failOnDataLoss"):
        offsets(consumer, 10, 50)


def test_data_loss_can_be_allowed(consumer: FileConsumer, caplog: pytest.LogCaptureFixture) -> None:
    consumer.cluster.set_start(T0, 30)
    assert offsets(consumer, 10, 50, fail_on_data_loss=False) == list(range(30, 50))
    assert "t-0 [10, 30)" in caplog.text


@pytest.mark.parametrize(("divergent", "lost"), [(15, r"t-0 \[15, 30\)"), (-1, r"t-0 \[10, 30\)")])
def test_records_truncated_by_an_unclean_election_are_loss(consumer: FileConsumer, divergent: int, lost: str) -> None:
    class Cut(FileConsumer):
        def poll_batches(self, timeout_ms: int) -> dict[TopicPartition, object]:  # type: ignore[override]
            if self._positions[T0] == 30 and "poll_batches" in self.calls:
                self.calls.clear()
                raise LogTruncationError("another log", topic_partition=T0, offset=30, divergent_offset=divergent)
            return super().poll_batches(timeout_ms)  # type: ignore[return-value]

    with pytest.raises(DataLossError, match=lost):
        offsets(Cut(consumer.cluster), 10, 50)
    assert offsets(Cut(consumer.cluster), 10, 50, fail_on_data_loss=False) == list(range(10, 50))


def test_task_reads_nothing_from_a_recreated_topic(consumer: FileConsumer) -> None:
    class MadeAnew(FileConsumer):
        """The new topic has other records at the same offsets."""

        def poll_batches(self, timeout_ms: int) -> dict[TopicPartition, object]:  # type: ignore[override]
            if self._positions[T0] == 30 and "poll_batches" in self.calls:
                self.calls.clear()
                raise OffsetOutOfRangeError("made anew", topic_partition=T0, offset=30, made_anew=True)
            return super().poll_batches(timeout_ms)  # type: ignore[return-value]

    with pytest.raises(DataLossError, match=r"t-0 \[30, 50\)"):
        offsets(MadeAnew(consumer.cluster), 10, 50)
    assert offsets(MadeAnew(consumer.cluster), 10, 50, fail_on_data_loss=False) == list(range(10, 30))


def test_compacted_records_are_no_loss(consumer: FileConsumer) -> None:
    consumer.cluster.append_batch(T0, encode_batch([(1000, b"k", b"v", ())], base_offset=150))
    assert offsets(consumer, 95, 151) == [*range(95, 100), 150]


def test_fully_deleted_range_ends_at_once(consumer: FileConsumer) -> None:
    consumer.cluster.set_start(T0, 90)
    assert offsets(consumer, 10, 50, fail_on_data_loss=False) == []


def test_a_log_that_ends_before_the_range_is_loss(consumer: FileConsumer) -> None:
    with pytest.raises(DataLossError, match=r"t-0 \[100, 120\)"):
        offsets(consumer, 90, 120)
    assert offsets(consumer, 90, 120, fail_on_data_loss=False) == list(range(90, 100))


def test_range_of_a_deleted_topic_is_loss(consumer: FileConsumer, caplog: pytest.LogCaptureFixture) -> None:
    consumer.cluster.delete_topic("t")
    with pytest.raises(DataLossError, match=r"t-0 \[10, 50\)"):
        offsets(consumer, 10, 50)
    assert offsets(consumer, 10, 50, fail_on_data_loss=False) == []
    assert "t-0 [10, 50)" in caplog.text


def test_range_of_an_unlisted_topic_is_read(consumer: FileConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer.faults = [UnknownTopicOrPartitionError("it has just come to lead it")]
    monkeypatch.setattr(consumer, "topics", lambda: set[str]())  # as of the cluster's own, or one that is behind
    assert offsets(consumer, 10, 50) == list(range(10, 50))


def test_range_of_a_topic_unknown_to_restarted_brokers_is_retried(consumer: FileConsumer) -> None:
    consumer.faults = [UnknownTopicOrPartitionError("all were restarted"), NoBrokersError("none knows all topics")]
    assert offsets(consumer, 10, 50, fail_on_data_loss=False) == list(range(10, 50))


def test_task_fails_after_its_poll_timeout_with_the_reason(consumer: FileConsumer) -> None:
    clock = HandClock()

    class Down(FileConsumer):
        def poll_batches(self, timeout_ms: int) -> dict[TopicPartition, object]:  # type: ignore[override]
            clock.pause(timeout_ms / 1000)
            raise DisconnectedError("no broker there")

    with pytest.raises(TimeoutError, match=r"t-0 \[0, 9\): no record at offset 0 in 5000 ms .*no broker there"):
        offsets(Down(consumer.cluster), 0, 9, clock=clock)


def test_task_that_ends_early_clears_its_assignment(consumer: FileConsumer) -> None:
    reader = RangeReader(OneConsumer(only=consumer), kafka_schema(include_headers=False), True, 5_000)
    batches = reader.read(OffsetRange(T0, 0, 100))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert consumer._positions == {}
