"""A consumer that reads all the while: what it once saw must stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.processes.harness.background import Background
from tests.processes.harness.workload import numbered
from tidelog import Consumer, TopicPartition


class Witness(Background):
    """Reads `tps` from their beginning, from `with` to its end."""

    def __init__(self, bootstrap_servers: str | Sequence[str], tps: Sequence[TopicPartition]) -> None:
        super().__init__("witness")
        self._servers = bootstrap_servers
        self._seen: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in tps}
        self._consumer: Consumer | None = None

    def once(self) -> None:
        if self._consumer is None:
            self._consumer = Consumer(bootstrap_servers=self._servers, client_id="witness", auto_offset_reset="none")
            self._consumer.assign(list(self._seen))
            for tp in self._seen:
                self._consumer.seek(tp, 0)
        for tp, records in self._consumer.poll(timeout_ms=200, max_records=10_000).items():
            self._seen[tp] += numbered(records)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    @property
    def records(self) -> int:
        """Return the number of records seen so far."""
        return sum(map(len, self._seen.values()))

    def check(self, log: Mapping[TopicPartition, Sequence[tuple[int, int]]]) -> None:
        """Nothing was read that is not in the log at the end, at its place; nothing was skipped or read twice."""
        for tp, seen in self._seen.items():
            check_reading(tp, seen, log[tp])


def check_reading(tp: TopicPartition, seen: Sequence[tuple[int, int]], log: Sequence[tuple[int, int]]) -> None:
    """Assert that the seen records are a prefix of the log."""
    for then, now in zip(seen, log, strict=False):
        assert then == now, f"{tp}: {then} was read where {now} is now"
    assert len(seen) <= len(log), f"{tp}: {len(seen)} records were read, {len(log)} remain"
