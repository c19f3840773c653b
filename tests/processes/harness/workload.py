"""A producer that never rests, and the check that nothing it was promised is missing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from tests.processes.harness.waiting import wait_bitten, wait_for
from tidelog import Consumer, ConsumerRecord, Producer, TopicPartition
from tidelog.client.producer.record_future import RecordFuture

#: The acknowledgements that must arrive in some second before a fault; otherwise the fault disturbs nothing.
LEAST_RATE = 200
#: The key of records that only make a log larger.
FILL_KEY = b"fill"
_PACE_S = 0.002
_BURST = 4


class Workload:
    """Sends numbered records to `tps` in turn, with acks=all, from `with` to its end.

    Each record's value is its number, behind zeros up to `value_bytes`; numbers rise within a partition in the order of
    sending.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        tps: Sequence[TopicPartition],
        value_bytes: int = 1,
        **options: object,
    ) -> None:
        self._tps = list(tps)
        self._value_bytes = value_bytes
        self._sent: list[tuple[TopicPartition, int, RecordFuture]] = []
        self._acknowledged: dict[TopicPartition, list[float]] = {tp: [] for tp in tps}
        self._stop = threading.Event()
        self._producer = Producer(bootstrap_servers, client_id="workload", **options)  # type: ignore[arg-type]
        self._thread = threading.Thread(target=self._run, name="workload", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self.wait_acknowledged(100)
        wait_bitten(f"{LEAST_RATE} acknowledgements a second, so that a fault meets some", self._is_busy, 60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        try:
            if error is None:
                self._producer.flush(60)
        finally:
            self._producer.close(0 if error else 10)
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                for _ in range(_BURST):
                    tp = self._tps[number % len(self._tps)]
                    future = self._producer.send(
                        tp.topic, b"%0*d" % (self._value_bytes, number), partition=tp.partition
                    )
                    times = self._acknowledged[tp]
                    future.add_callback(lambda _, times=times: times.append(time.monotonic()))
                    self._sent.append((tp, number, future))
                    number += 1
                time.sleep(_PACE_S)
        except BaseException as error:
            self._failure = error

    def _is_busy(self) -> bool:
        since = time.monotonic() - 1
        return sum(t >= since for times in self._acknowledged.values() for t in times[-LEAST_RATE:]) >= LEAST_RATE

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self._acknowledged.values()))

    def wait_acknowledged(self, more: int, timeout_s: float = 60) -> None:
        """Returns when `more` records were acknowledged from now on, on each partition."""
        goals = {tp: len(times) + max(1, more // len(self._tps)) for tp, times in self._acknowledged.items()}

        def are_acknowledged() -> bool:
            if self._failure is not None:
                raise self._failure
            return all(len(self._acknowledged[tp]) >= goal for tp, goal in goals.items())

        wait_for(f"{more} more acknowledgements", are_acknowledged, timeout_s)

    def longest_gap_s(self, tps: Sequence[TopicPartition], since: float) -> float:
        """The longest silence of acknowledgements on any of `tps` that began or lasted after `since` (monotonic)."""
        gaps = [0.0]
        for tp in tps:
            times = [t for t in self._acknowledged[tp] if t >= since]
            gaps += [after - before for before, after in zip([since, *times], times, strict=False)]
        return max(gaps)

    def check(self, bootstrap_servers: str | Sequence[str]) -> int:
        """Read everything back: each record once, in order, where its acknowledgement said. Returns how many."""
        return self.compare(read_all(bootstrap_servers, self._tps))

    def compare(self, found: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> int:
        """The same of what `read_all` found."""
        expected: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in self._tps}
        for tp, number, future in self._sent:
            expected[tp].append((future.get(60).offset, number))
        for tp in self._tps:
            check_log(tp, expected[tp], found[tp])
        return len(self._sent)


def read_all(
    bootstrap_servers: str | Sequence[str], tps: Sequence[TopicPartition], timeout_s: float = 60
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """(offset, number) of every record in the log, by partition."""
    found: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in tps}
    with Consumer(bootstrap_servers=bootstrap_servers, client_id="check", auto_offset_reset="earliest") as consumer:
        consumer.assign(list(tps))
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(list(tps))
        deadline = time.monotonic() + timeout_s
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            assert time.monotonic() < deadline, f"could not read to {ends}"
            for tp, records in consumer.poll(timeout_ms=500, max_records=10_000).items():
                found[tp] += numbered(records)
    return found


def numbered(records: Iterable[ConsumerRecord]) -> list[tuple[int, int]]:
    """Return (offset, number) of each record of a workload, without those of `FILL_KEY`."""
    return [(record.offset, int(record.value or b"-1")) for record in records if record.key != FILL_KEY]


def check_log(tp: TopicPartition, expected: Sequence[tuple[int, int]], found: Sequence[tuple[int, int]]) -> None:
    """The log has what was acknowledged, each once, where and in the order in which it was; else a line says what."""
    lost = sorted(set(expected) - set(found))
    extra = sorted(set(found) - set(expected))
    order = " order differs" if not lost and not extra else ""
    assert found == expected, f"{tp}: lost {len(lost)} {lost[:5]}, unexpected {len(extra)} {extra[:5]}{order}"
