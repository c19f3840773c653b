"""Count what one client does: its requests and, once for each batch or answer, its records. No I/O; time is passed in.

The client's event loop is the only writer, so that no counter needs a lock. Any thread may read a counter at any time.
"""

from __future__ import annotations

from collections.abc import Collection
from math import nan
from typing import Protocol

from tidelog.protocol.messages import ApiKey


class Measure:
    """The number, the sum and the largest of the values that were measured; the values are 0 or more.

    largest   NaN before the first value
    """

    __slots__ = ("count", "largest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.largest = nan

    def add(self, value: float) -> None:
        """Count one more value."""
        self.count += 1
        self.total += value
        if not value <= self.largest:  # this is also true for the first value, because `largest` is NaN then
            self.largest = value

    @property
    def average(self) -> float:
        """Return the mean of all values; NaN before the first."""
        return self.total / self.count if self.count else nan


class AnsweredRequests:
    """The requests of one API that were answered.

    latency_ms    the time from each request to its answer
    answered_ms   when the last answer arrived, on the monotonic clock; NaN before the first
    """

    __slots__ = ("answered_ms", "latency_ms")

    def __init__(self) -> None:
        self.latency_ms = Measure()
        self.answered_ms = nan


class OpenPeer(Protocol):
    """The part of a connection that the counters look at."""

    @property
    def closed(self) -> bool: ...


class ClientMetrics:
    """The counters of one client.

    connections_created       how many connections were opened, handshake included
    requests, answers         how many requests were sent, and how many of them were answered
    in_flight                 how many requests have neither an answer nor an error yet
    latency_ms                of all answered requests
    longest_throttle_ms       the longest time for which a broker has throttled this client; 0: never
    fetched_bytes             the bytes of records in each answer to a fetch
    records_consumed          how many records the user has got
    rebalances                how many assignments of its group this consumer has adopted
    """

    __slots__ = (
        "_by_api",
        "_peers",
        "answers",
        "connections_created",
        "fetched_bytes",
        "in_flight",
        "latency_ms",
        "longest_throttle_ms",
        "rebalances",
        "records_consumed",
        "requests",
    )

    def __init__(self) -> None:
        self.connections_created = self.requests = self.answers = self.in_flight = 0
        self.latency_ms = Measure()
        self.longest_throttle_ms = 0
        self.fetched_bytes = Measure()
        self.records_consumed = self.rebalances = 0
        self._by_api: dict[ApiKey, AnsweredRequests] = {}
        self._peers: Collection[OpenPeer] = ()

    def of(self, api: ApiKey) -> AnsweredRequests:
        """Return the counters of the answered requests of one API, all of them empty if there were none."""
        return self._by_api.get(api) or AnsweredRequests()

    @property
    def connections(self) -> int:
        """Return the number of open connections."""
        return sum(not peer.closed for peer in self._peers)

    def on_connected(self, peer: OpenPeer) -> None:
        """Count a connection that was opened, and forget those that were closed."""
        self.connections_created += 1
        self._peers = (*(each for each in self._peers if not each.closed), peer)

    def on_sent(self, *, expects_answer: bool = True) -> None:
        """Count a request. If it expects an answer, a call of `on_ended` must follow."""
        self.requests += 1
        self.in_flight += expects_answer

    def on_ended(self) -> None:
        """Note that a request has an answer or an error, or that its caller has stopped waiting."""
        self.in_flight -= 1

    def on_answer(self, api: ApiKey, latency_ms: float, now_ms: int, longest_throttle_ms: int) -> None:
        """Count an answer, and note the longest time for which its connection was throttled so far."""
        self.answers += 1
        self.latency_ms.add(latency_ms)
        answered = self._by_api.get(api)
        if answered is None:
            answered = self._by_api[api] = AnsweredRequests()
        answered.latency_ms.add(latency_ms)
        answered.answered_ms = now_ms
        if longest_throttle_ms > self.longest_throttle_ms:
            self.longest_throttle_ms = longest_throttle_ms


class ProducerMetrics:
    """The counters of a producer's records; each changes once for a batch.

    records_sent      the records of all attempts to send a batch, repetitions included
    records_retried   the records that were put back after an attempt, to be sent again
    records_failed    the records whose future has an error
    splits            how many batches were split, because a broker refused their size
    batch_bytes       the size of each batch that was sent, compressed
    queue_time_ms     the time of each batch between its first record and its first attempt
    compression       for each batch that was sent, its size divided by its size without compression
    """

    __slots__ = (
        "batch_bytes",
        "compression",
        "queue_time_ms",
        "records_failed",
        "records_retried",
        "records_sent",
        "splits",
    )

    def __init__(self) -> None:
        self.records_sent = self.records_retried = self.records_failed = self.splits = 0
        self.batch_bytes = Measure()
        self.queue_time_ms = Measure()
        self.compression = Measure()

    def on_sent(self, records: int, batch_bytes: int, uncompressed_bytes: int) -> None:
        """Count an attempt to send a batch of this size, whose records have this size without compression."""
        self.records_sent += records
        self.batch_bytes.add(batch_bytes)
        self.compression.add(batch_bytes / uncompressed_bytes)
