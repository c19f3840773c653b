"""The producer at work: takes lines at the pace of the story, sends them, and keeps the books."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from mainjob.acknowledgements import Acknowledgements
from mainjob.journal import Journal, digest_of
from mainjob.lines import Line
from mainjob.pace import Pace, Stage
from mainjob.plain_count import PlainCount
from mainjob.read_ahead import ReadAhead

from tidelog import Producer
from tidelog.model import RecordMetadata

#: Bounds memory, whatever the length of the input, and stays above what the brokers need to be busy.
MAX_IN_FLIGHT = 8_000
_BURST = 48
_IDLE_S = 0.005


class Feed:
    """Sends on a thread of its own until the input has ended, or `stop`.

    sent           records handed to the producer; each ends as acknowledged or given up
    sent_by_partition
    finished       set once nothing more will be sent
    error          what ended it early
    """

    def __init__(
        self,
        producer: Producer,
        topic: str,
        partitions: int,
        ahead: ReadAhead,
        journal: Journal,
        count: PlainCount,
        pace: Pace,
    ) -> None:
        self.sent = 0
        self.sent_by_partition = [0] * partitions
        self.acks = Acknowledgements(partitions, time.monotonic_ns)
        self.finished = threading.Event()
        self.error: Exception | None = None
        self._producer = producer
        self._topic = topic
        self._next_partition = itertools.cycle(range(partitions))
        self._ahead = ahead
        self._journal = journal
        self._count = count
        self._pace = pace
        self._keys: dict[str, bytes] = {}
        self._strike: Callable[[], None] | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Sends no more; what was sent still gets its outcome."""
        self._stopped = True
        self._thread.join()

    def enter(self, stage: Stage) -> None:
        self._pace.enter(stage)

    def strike(self, blow: Callable[[], None]) -> None:
        """Has `blow` done by the sending thread, right behind a burst of records, so that some are on their way."""
        self._strike = blow

    @property
    def unsettled(self) -> int:
        return self.sent - self.acks.acked - self.acks.failed

    def unacknowledged(self, partition: int) -> int:
        """Records of the partition that were sent and not acknowledged."""
        return self.sent_by_partition[partition] - self.acks.by_partition[partition]

    def _run(self) -> None:
        try:
            while not self._stopped:
                blow, self._strike = self._strike, None
                allowed = self._pace.allowance(time.monotonic_ns() // 1_000_000, len(self._ahead), self._ahead.full)
                lines = self._ahead.take(max(allowed, _BURST) if blow else allowed)
                for line in lines:
                    self._send(line)
                if blow is not None:
                    blow()
                elif not lines:
                    if self._ahead.ended and not len(self._ahead):
                        break
                    time.sleep(_IDLE_S)
                while self.unsettled > MAX_IN_FLIGHT and not self._stopped:
                    time.sleep(_IDLE_S)
        except Exception as error:
            self.error = error
        finally:
            self.finished.set()

    def _send(self, line: Line) -> None:
        timestamp_ms = line.stamp_ms
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        key = self._keys.get(line.source)
        if key is None:
            key = self._keys[line.source] = line.source.encode(errors="surrogateescape")
        partition = next(self._next_partition)
        digest = digest_of(line.value)
        sent_ns = time.monotonic_ns()
        future = self._producer.send(self._topic, line.value, key=key, partition=partition, timestamp_ms=timestamp_ms)
        self.sent += 1
        self.sent_by_partition[partition] += 1
        self._count.add(timestamp_ms, line.source)
        future.add_callback(self._acknowledged, digest, sent_ns)
        future.add_errback(self._gave_up, partition, digest)

    def _acknowledged(self, digest: str, sent_ns: int, where: RecordMetadata) -> None:
        self._journal.acknowledged(where.partition, where.offset, digest)
        self.acks.succeeded(where.partition, sent_ns)

    def _gave_up(self, partition: int, digest: str, error: Exception) -> None:
        self._journal.unacknowledged(partition, digest)
        self.acks.gave_up(error)
