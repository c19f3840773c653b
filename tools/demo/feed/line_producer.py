"""Takes lines at the pace of the scenario, sends them, and records their outcomes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from tidelog import Producer
from tidelog.model import RecordMetadata
from tools.demo.counts.plain_count import PlainCount
from tools.demo.feed.acknowledgements import Acknowledgements
from tools.demo.feed.journal import Journal, digest_of
from tools.demo.feed.pace import Pace, Stage
from tools.demo.lines.line_splitter import Line
from tools.demo.lines.read_ahead import ReadAhead

#: Bounds memory for inputs of any length, and is enough to keep the brokers busy.
MAX_IN_FLIGHT = 8_000
_BURST = 48
_IDLE_S = 0.005
_STOP_S = 3.0


class LineProducer:
    """Sends on a thread of its own until the input has ended after `finish`, or until `stop`.

    sent                 number of records handed to the producer, each of which ends as acknowledged or failed
    stamped_by_arrival   number of sent records whose lines have no time of their own
    sent_by_partition    number of sent records of each partition
    acks                 the outcomes
    finished             is set when no more record will be sent
    error                the error that ended the thread early, or None
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
        self.stamped_by_arrival = 0
        self.sent_by_partition = [0] * partitions
        self.acks = Acknowledgements(partitions, time.monotonic_ns)
        self.finished = threading.Event()
        self.error: Exception | None = None
        self._producer = producer
        self._topic = topic
        self._next_partition: Iterator[int] = itertools.cycle(range(partitions))
        self._ahead = ahead
        self._journal = journal
        self._count = count
        self._pace = pace
        self._keys: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._callback: _Callback | None = None
        self._finishing = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Let the thread send the rest of the input without limits, and end with it. The call does not wait."""
        self._pace.enter(Stage("the rest", None, 0))
        self._finishing = True

    def stop(self) -> None:
        """Send no more, and wait until the thread has ended, at most 3 s. Records in flight still get their outcome."""
        self._stopped = True
        if self._thread.ident is not None:
            self._thread.join(_STOP_S)

    def enter(self, stage: Stage) -> None:
        self._pace.enter(stage)

    def between_records(self, action: Callable[[], None], *, behind_burst: bool = False) -> None:
        """Run `action` on the sending thread, so that no record is sent meanwhile, and wait for its end.

        With `behind_burst` the action follows immediately after some records, if there are any, so that these are in
        flight. Raises the action's error. If the thread has ended, raises its error, or RuntimeError if it had none.
        """
        callback = _Callback(action, behind_burst)
        self._callback = callback
        while not callback.done.wait(_IDLE_S):
            if self.finished.is_set():
                raise self.error or RuntimeError("the producer has ended")
        if callback.error is not None:
            raise callback.error

    def send_next_to(self, partitions: Iterable[int]) -> None:
        """Send the next records to these partitions, one to each, before all partitions take turns again.

        Only the sending thread may call this.
        """
        self._next_partition = itertools.chain(partitions, self._next_partition)

    @property
    def in_flight(self) -> int:
        return self.sent - self.acks.acked - self.acks.failed

    @property
    def sources(self) -> int:
        """Return the number of inputs that the sent lines came from."""
        return len(self._keys)

    def unacknowledged(self, partition: int) -> int:
        """Return how many of the records sent to the partition are not acknowledged, failed ones included."""
        return self.sent_by_partition[partition] - self.acks.by_partition[partition]

    def _run(self) -> None:
        try:
            while not self._stopped:
                callback, self._callback = self._callback, None
                lines = self._ahead.take(self._allowance(callback))
                for line in lines:
                    self._send(line)
                if callback is not None:
                    callback.run()
                elif not lines:
                    if self._finishing and self._ahead.ended and not len(self._ahead):
                        break
                    time.sleep(_IDLE_S)
                while self.in_flight > MAX_IN_FLIGHT and not self._stopped:
                    time.sleep(_IDLE_S)
        except Exception as error:
            self.error = error
        finally:
            self.finished.set()

    def _allowance(self, callback: _Callback | None) -> int:
        now_ms, held = time.monotonic_ns() // 1_000_000, len(self._ahead)
        allowed = self._pace.allowance(now_ms, held, self._ahead.full)
        if callback is not None and callback.behind_burst:
            return max(allowed, min(_BURST, held - self._pace.stage.keep))
        return allowed

    def _send(self, line: Line) -> None:
        timestamp_ms = line.stamp_ms
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
            self.stamped_by_arrival += 1
        key = self._keys.get(line.source)
        if key is None:
            key = self._keys[line.source] = line.source.encode()
        partition = next(self._next_partition)
        digest = digest_of(line.value)
        sent_ns = time.monotonic_ns()
        future = self._producer.send(self._topic, line.value, key=key, partition=partition, timestamp_ms=timestamp_ms)
        self.sent += 1
        self.sent_by_partition[partition] += 1
        self._count.add(timestamp_ms, line.source)
        future.add_callback(self._acknowledged, digest, sent_ns)
        future.add_errback(self._failed, partition, digest)

    # The client's thread reports an outcome, or this thread if the outcome was known before the callback was added.

    def _acknowledged(self, digest: str, sent_ns: int, where: RecordMetadata) -> None:
        with self._lock:
            self._journal.acknowledged(where.partition, where.offset, digest)
            self.acks.succeeded(where.partition, where.offset, sent_ns)

    def _failed(self, partition: int, digest: str, error: Exception) -> None:
        with self._lock:
            self._journal.unacknowledged(partition, digest)
            self.acks.failed_with(error)


class _Callback:
    def __init__(self, action: Callable[[], None], behind_burst: bool) -> None:
        self.behind_burst = behind_burst
        self.done = threading.Event()
        self.error: Exception | None = None
        self._action = action

    def run(self) -> None:
        try:
            self._action()
        except Exception as error:
            self.error = error
        self.done.set()
