"""The line producer with a client that answers at once, later, from another thread, or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tidelog import Producer, RecordMetadata
from tools.demo.counts.plain_count import PlainCount
from tools.demo.feed.journal import Journal, digest_of
from tools.demo.feed.line_producer import LineProducer
from tools.demo.feed.pace import Pace, Stage
from tools.demo.lines.line_splitter import Line
from tools.demo.lines.read_ahead import ReadAhead

ALL = Stage("all", None, 0)


class Answer:
    """A record's future, which has an outcome at once or gets it by `settle`."""

    def __init__(self, where: RecordMetadata, error: Exception | None, settled: bool) -> None:
        self._where = where
        self._error = error
        self._settled = settled
        self._waiting: list[Callable[[], object]] = []

    def add_callback(self, function: Callable[..., object], *arguments: object) -> None:
        if self._error is None:
            self._when_settled(lambda: function(*arguments, self._where))

    def add_errback(self, function: Callable[..., object], *arguments: object) -> None:
        if self._error is not None:
            self._when_settled(lambda: function(*arguments, self._error))

    def settle(self) -> None:
        self._settled = True
        for waiting in self._waiting:
            waiting()

    def _when_settled(self, call: Callable[[], object]) -> None:
        if self._settled:
            call()
        else:
            self._waiting.append(call)


class Client:
    """Assigns offsets as a cluster does. `answered` decides which records have their outcome before `send` returns."""

    def __init__(self, answered: Callable[[int], bool] = lambda number: True, error: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.open: list[Answer] = []
        self._answered = answered
        self._error = error
        self._ends: dict[int, int] = {}

    def send(self, topic: str, value: bytes, *, key: bytes, partition: int, timestamp_ms: int) -> Answer:
        offset = self._ends.get(partition, 0)
        self._ends[partition] = offset + 1
        self.sent.append({"value": value, "key": key, "partition": partition, "timestamp_ms": timestamp_ms})
        settled = self._answered(len(self.sent))
        answer = Answer(RecordMetadata(topic, partition, offset, timestamp_ms), self._error, settled)
        if not settled:
            self.open.append(answer)
        return answer


class Work:
    """A line producer and all that it needs."""

    def __init__(self, directory: Path, client: Client, lines: Iterator[Line], stage: Stage = ALL) -> None:
        self.client = client
        self.ahead = ReadAhead(lines)
        self.journal = Journal(directory / "journal.jsonl", "lines")
        self.count = PlainCount()
        self.count.start_from(0)
        self.feed = LineProducer(cast(Producer, client), "lines", 3, self.ahead, self.journal, self.count, Pace(stage))

    def to_the_end(self) -> None:
        self.feed.start()
        self.feed.finish()
        assert self.feed.finished.wait(30)

    def rows(self) -> list[dict[str, Any]]:
        self.journal.close()
        return [json.loads(line) for line in self.journal.path.read_text().splitlines()]


def numbered(count: int, stamp_ms: int | None = 60_000) -> Iterator[Line]:
    return (Line("a", b"%d" % number, stamp_ms) for number in range(count))


def test_every_line_is_sent_journaled_and_counted_once(tmp_path: Path) -> None:
    work = Work(tmp_path, Client(), numbered(1000))
    work.to_the_end()
    assert [sent["value"] for sent in work.client.sent] == [b"%d" % number for number in range(1000)]
    assert {sent["key"] for sent in work.client.sent} == {b"a"}
    assert (work.feed.sent, work.feed.acks.acked, work.feed.in_flight) == (1000, 1000, 0)
    assert work.count.counts == {"a": {1: 1000}}
    rows = work.rows()
    assert sorted(row["digest"] for row in rows) == sorted(digest_of(b"%d" % number) for number in range(1000))
    assert len({(row["partition"], row["offset"]) for row in rows}) == 1000
    assert all(row["acked"] and row["topic"] == "lines" for row in rows)


def test_line_without_a_time_gets_the_time_of_its_arrival(tmp_path: Path) -> None:
    work = Work(tmp_path, Client(), numbered(3, stamp_ms=None))
    work.to_the_end()
    assert work.feed.stamped_by_arrival == 3
    assert all(sent["timestamp_ms"] > 1_700_000_000_000 for sent in work.client.sent)


def test_failed_record_is_journaled_as_unacknowledged(tmp_path: Path) -> None:
    work = Work(tmp_path, Client(error=TimeoutError("no outcome")), numbered(2))
    work.to_the_end()
    assert (work.feed.acks.acked, work.feed.acks.failed) == (0, 2)
    assert [(row["offset"], row["acked"]) for row in work.rows()] == [(-1, False), (-1, False)]


def test_outcomes_from_two_threads_keep_the_journal_intact(tmp_path: Path) -> None:
    total = 60_000
    client = Client(answered=lambda number: number % 2 == 0)
    work = Work(tmp_path, client, numbered(total))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        work.feed.start()
        work.feed.finish()
        settled = 0
        while not work.feed.finished.is_set() or settled < len(client.open):
            while settled < len(client.open):
                client.open[settled].settle()
                settled += 1
    finally:
        sys.setswitchinterval(before)
    assert work.feed.acks.acked == total
    rows = work.rows()
    assert len(rows) == total
    assert {row["digest"] for row in rows} == {digest_of(b"%d" % number) for number in range(total)}


def test_callback_behind_a_burst_finds_records_in_flight(tmp_path: Path) -> None:
    work = Work(tmp_path, Client(answered=lambda number: False), numbered(1000), Stage("still", 0.0, 400))
    assert work.ahead.wait_filled(10)
    found: list[int] = []
    work.feed.start()
    work.feed.between_records(lambda: found.extend(map(work.feed.unacknowledged, range(3))), behind_burst=True)
    work.feed.stop()
    assert sum(found) == work.feed.sent > 0
    assert min(found) > 0
    assert len(work.ahead) >= 400


def test_chosen_partitions_get_the_next_records_before_the_others(tmp_path: Path) -> None:
    work = Work(tmp_path, Client(), numbered(6))
    work.feed.send_next_to([2, 1])
    work.to_the_end()
    assert [sent["partition"] for sent in work.client.sent] == [2, 1, 0, 1, 2, 0]


def test_error_of_a_callback_is_raised_to_its_caller(tmp_path: Path) -> None:
    def fails() -> None:
        raise ProcessLookupError("the broker's process has ended by itself")

    work = Work(tmp_path, Client(), numbered(1), Stage("still", 0.0, 1))
    work.feed.start()
    with pytest.raises(ProcessLookupError):
        work.feed.between_records(fails)
    work.feed.stop()


def test_kept_lines_are_sent_after_finish(tmp_path: Path) -> None:
    work = Work(tmp_path, Client(), numbered(10), Stage("still", 0.0, 10))
    assert work.ahead.wait_filled(10)
    work.feed.start()
    assert not work.feed.finished.wait(0.05)
    assert work.feed.sent == 0
    work.feed.finish()
    assert work.feed.finished.wait(10)
    assert work.feed.sent == 10


def test_failing_input_ends_the_producer_with_its_error(tmp_path: Path) -> None:
    def failing() -> Iterator[Line]:
        yield Line("a", b"one", 1)
        raise OSError("Input/output error")

    work = Work(tmp_path, Client(), failing())
    work.to_the_end()
    assert isinstance(work.feed.error, OSError)
