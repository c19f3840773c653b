"""Produces without pause while containers come and go, and keeps what was acknowledged."""

from __future__ import annotations

import threading
import time
from itertools import pairwise
from types import TracebackType
from typing import NamedTuple, Self

from tidelog import Consumer, Producer, RecordMetadata, TopicPartition
from tools.compose_check.engine import Failed, wait_for

_PACE_S = 0.01
_END_S = 60


class Promise(NamedTuple):
    """An acknowledged record: its number, which is its value, and its offset.

    Times are seconds of the monotonic clock.
    """

    number: int
    offset: int
    sent: float
    acknowledged: float


class Load:
    """Sends a numbered record to each partition every 10 ms with acks=all, on a thread, while its context is open.

    Entering the context waits for an acknowledgement on every partition. Leaving it waits for the records in flight,
    and raises Failed if a record was refused. Neither happens after an error of the block.

    promises   the acknowledged records of each partition, in the order of the acknowledgements
    failures   the errors of refused records
    """

    def __init__(self, bootstrap_servers: str, tps: list[TopicPartition]) -> None:
        self.promises: dict[TopicPartition, list[Promise]] = {tp: [] for tp in tps}
        self.failures: list[BaseException] = []
        self._numbers = 0
        self._producer = Producer(bootstrap_servers, client_id="compose-check")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        wait_for("acknowledgements on every partition", lambda: all(map(len, self.promises.values())), _END_S)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(_END_S)
        self._producer.close(0 if error else _END_S)
        if error is None and self.failures:
            raise Failed(f"{len(self.failures)} records were refused: {self.failures[0]}")

    def _run(self) -> None:
        try:
            while not self._over.wait(_PACE_S):
                for tp, promises in self.promises.items():
                    self._send(tp, promises)
        except BaseException as error:
            self.failures.append(error)

    def _send(self, tp: TopicPartition, promises: list[Promise]) -> None:
        number, sent = self._numbers, time.monotonic()
        self._numbers += 1

        def note(place: RecordMetadata) -> None:
            promises.append(Promise(number, place.offset, sent, time.monotonic()))

        future = self._producer.send(tp.topic, b"%d" % number, partition=tp.partition)
        future.add_callback(note)
        future.add_errback(self.failures.append)

    def resumed(self, tps: list[TopicPartition], since: float) -> bool:
        """Return whether each of these partitions has acknowledged a record that was sent after the moment `since`."""
        return all(any(promise.sent > since for promise in reversed(self.promises[tp])) for tp in tps)

    def silence(self, tps: list[TopicPartition], since: float) -> float:
        """Return the longest time (s) for which one of these partitions has had no acknowledgement since `since`."""
        longest = 0.0
        for tp in tps:
            times = [since, *(p.acknowledged for p in self.promises[tp] if p.acknowledged >= since), time.monotonic()]
            longest = max(longest, *(after - before for before, after in pairwise(times)))
        return longest


def read_back(bootstrap_servers: str, promises: dict[TopicPartition, list[Promise]]) -> int:
    """Read the partitions, and return the number of acknowledged records, all of which are at their offsets.

    Raises Failed for the first that is not, or if the partitions cannot be read within a minute.
    """
    found = 0
    with Consumer(
        bootstrap_servers=bootstrap_servers, client_id="compose-check", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(list(promises))
        ends = consumer.end_offsets(list(promises))
        values: dict[TopicPartition, dict[int, bytes | None]] = {tp: {} for tp in promises}
        deadline = time.monotonic() + _END_S
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            if time.monotonic() > deadline:
                raise Failed(f"the records could not be read in {_END_S} s")
            for tp, records in consumer.poll(timeout_ms=500).items():
                values[tp] |= {record.offset: record.value for record in records}
    for tp, promised in promises.items():
        for promise in promised:
            if values[tp].get(promise.offset) != b"%d" % promise.number:
                raise Failed(f"{tp} lost record {promise.number}, acknowledged at offset {promise.offset}")
            found += 1
    return found
