"""A consumer that reads all the while: what it once saw must stay."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from tidelog import Consumer, TopicPartition


class Witness:
    """Reads `tps` from their beginning, from `with` to its end."""

    def __init__(self, bootstrap_servers: str | Sequence[str], tps: Sequence[TopicPartition]) -> None:
        self._servers = bootstrap_servers
        self._seen: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in tps}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(60)
        if error is None and self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with Consumer(self._servers, client_id="witness", auto_offset_reset="none") as consumer:
                consumer.assign(list(self._seen))
                for tp in self._seen:
                    consumer.seek(tp, 0)
                while not self._stop.is_set():
                    for tp, records in consumer.poll(timeout_ms=200, max_records=10_000).items():
                        self._seen[tp] += [(record.offset, int(record.value or b"-1")) for record in records]
        except BaseException as error:
            self._failure = error

    @property
    def records(self) -> int:
        """How many were seen by now."""
        return sum(map(len, self._seen.values()))

    def check(self, log: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> None:
        """Nothing was read that is not in the log at the end, at its place; nothing was skipped or read twice."""
        for tp, seen in self._seen.items():
            check_reading(tp, seen, log[tp])


def check_reading(tp: TopicPartition, seen: Sequence[tuple[int, int]], log: Sequence[tuple[int, int]]) -> None:
    """What was seen is how the log begins."""
    for then, now in zip(seen, log, strict=False):
        assert then == now, f"{tp}: {then} was read where {now} is now"
    assert len(seen) <= len(log), f"{tp}: {len(seen)} records were read, {len(log)} remain"
