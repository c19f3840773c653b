"""Runs a producer and a consumer without pause and records their times, from which gaps are computed."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from tidelog import Consumer, Producer, RecordFuture, TopicPartition
from tools.bench.environment import wait_for
from tools.bench.results import NotMeasured

_VALUE_BYTES = 100


class AcknowledgedRecord(NamedTuple):
    """The times of one acknowledged record, in seconds of the monotonic clock."""

    sent: float
    acknowledged: float


class ProbeProducer:
    """Sends a record to each partition every `pace_s` seconds, on a thread of its own, while its context is open.

    Entering the context waits for 101 acknowledgements on every partition. Leaving it waits for the records in flight,
    and raises the error with which the sending has ended, if any. Neither happens after an error of the block.

    records   the acknowledged records of each partition so far
    """

    def __init__(self, bootstrap_servers: str, tps: Sequence[TopicPartition], pace_s: float) -> None:
        self.records: dict[TopicPartition, list[AcknowledgedRecord]] = {tp: [] for tp in tps}
        self._pace_s = pace_s
        self._producer = Producer(bootstrap_servers, client_id="bench")
        self._last: list[RecordFuture] = []
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for("acknowledgements on every partition", lambda: all(len(each) > 100 for each in self.records.values()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        self._producer.close(0 if error else 60)
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        value = os.urandom(_VALUE_BYTES)
        try:
            while not self._stop.wait(self._pace_s):
                for tp, records in self.records.items():
                    now = time.monotonic()
                    future = self._producer.send(tp.topic, value, partition=tp.partition)
                    future.add_callback(
                        lambda _, records=records, now=now: records.append(AcknowledgedRecord(now, time.monotonic()))
                    )
        except BaseException as error:
            self._failure = error

    def first_acknowledgement(self, tp: TopicPartition, sent_after: float) -> float | None:
        """Return the moment of the acknowledgement of the first record that was sent after `sent_after`.

        None if no such record is acknowledged yet. Moments are seconds of the monotonic clock.
        """
        return next((record.acknowledged for record in self.records[tp] if record.sent > sent_after), None)

    def longest_silence(self, tp: TopicPartition, start: float, end: float) -> float:
        """Return the longest time in seconds without an acknowledgement on the partition between two moments.

        Computed by the function `longest_silence`.
        """
        return longest_silence([record.acknowledged for record in self.records[tp]], start, end)


class Reader:
    """Consumes new records on a thread of its own while its context is open, and notes when they arrived.

    Entering the context waits until 101 polls have returned records of every partition.

    arrivals   the moments of polls that returned records of each partition, in seconds of the monotonic clock
    """

    def __init__(self, bootstrap_servers: str, tps: Sequence[TopicPartition]) -> None:
        self.arrivals: dict[TopicPartition, list[float]] = {tp: [] for tp in tps}
        self._consumer = Consumer(bootstrap_servers=bootstrap_servers, client_id="bench", auto_offset_reset="latest")
        self._consumer.assign(tps)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for("records of every partition", lambda: all(len(each) > 100 for each in self.arrivals.values()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        self._consumer.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            records = self._consumer.poll(timeout_ms=200)
            now = time.monotonic()
            for tp in records:
                self.arrivals[tp].append(now)

    def longest_silence(self, tp: TopicPartition, start: float, end: float) -> float:
        """Return the longest gap in seconds between reads of records of the partition, as `longest_silence` does."""
        return longest_silence(self.arrivals[tp], start, end)


def longest_silence(times: Sequence[float], start: float, end: float) -> float:
    """Return the longest gap (s) between events. The last event before `start` begins the first gap, and `end` ends the
    last one, so that a gap that began before `start` counts in full.

    Raises NotMeasured if there is no event before `start`, or none from `start` to `end`.
    """
    before = [moment for moment in times if moment < start]
    within = [moment for moment in times if start <= moment <= end]
    if not before or not within:
        raise NotMeasured("no record was acknowledged or read before the measured time, or within it")
    marks = [before[-1], *within, end]
    return max(after - earlier for earlier, after in itertools.pairwise(marks))
