"""Implement F55: producers whose records have unusual timestamps."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterable, Iterator, Mapping

from tidelog.aio import Producer
from tidelog.errors import InvalidTimestampError, TidelogError, error_for
from tidelog.history.history_files import SUFFIX, HistoryWriter
from tidelog.history.operations import Client, ProduceFailed, ProduceInvoked, ProduceOk, ProduceUnknown
from tidelog.model import NO_TIMESTAMP, TopicPartition
from tidelog.protocol.messages import ProducePartition, ProduceRequest, ProduceResponse
from tidelog.records.encode import BatchBuilder
from verify.chaos.clients.support.lines import Line, Lines
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.support.client_endpoints import client_endpoints
from verify.chaos.faults.support.fault_base import FaultBase, Timing, leaders, of
from verify.chaos.payload import make_id, payload
from verify.checker.outcomes import Outcome, error_name, produce_outcome

_HOUR_MS = 3_600_000
_YEAR_MS = 365 * 24 * _HOUR_MS
#: Above the numbers of the producers of a load, of which there are a few dozen.
_FIRST_PRODUCER = 1 << 22
_TIMEOUT_MS = 15_000
_VALUE_BYTES, _MOST_BYTES = 40, 1 << 16
_ACKS_ALL = -1
_PARTITIONS = 4


class OddTimestamps(FaultBase):
    """Records with timestamps in the far past, in the far future (which a topic refuses by its limit, unless it stamps
    records itself), equal, unordered and missing ones.

    The records belong to the run like all others, because the fault writes a history. Our producer stamps records
    without a timestamp (−1), so the fault sends such a record to the leader in a request of its own.
    """

    row, name = "F55", "odd timestamps"
    needs = frozenset[Need]()
    lasts_ms = (0, 500)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._stored = self._refused = self._timeless = 0

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.undisturbed_ms)

    async def inject(self, target: Target, rng: random.Random) -> str:
        number = _FIRST_PRODUCER + rng.randrange(1 << 22)
        name = f"odd-timestamps-{number}"
        header = Client(name, request_timeout_ms=_TIMEOUT_MS, t=time.monotonic_ns())
        tried = rng.sample(target.tps, min(len(target.tps), _PARTITIONS))  # some stamp records themselves
        with HistoryWriter(target.histories / f"{name}{SUFFIX}", header) as history:
            ids = (make_id(number, sequence) for sequence in itertools.count())
            async with Producer(target.bootstrap_servers, delivery_timeout_ms=_TIMEOUT_MS) as producer:
                for tp in tried:
                    for timestamp in odd_times(time.time_ns() // 1_000_000, rng):
                        await self._produce(producer, history, tp, next(ids), timestamp)
            led, endpoints = leaders(await target.view()), await client_endpoints(target)
            addresses = {broker: str(endpoint) for broker, endpoint in endpoints.items()}
            for tp, address in reachable_leaders(tried, led, addresses):
                async with Lines([address]) as lines:
                    await self._produce_timeless(lines.to(address), history, tp, next(ids))
        return f"records with odd times to {', '.join(map(of, tried))}"

    async def _produce(
        self, producer: Producer, history: HistoryWriter, tp: TopicPartition, record_id: int, timestamp: int
    ) -> None:
        history.write(ProduceInvoked(tp, [record_id], [timestamp], [time.monotonic_ns()]))
        value, key = payload(record_id, _VALUE_BYTES), b"%d" % record_id
        future = None
        try:
            future = await producer.send(tp.topic, value, key=key, partition=tp.partition, timestamp_ms=timestamp)
            stored = await future
        except TidelogError as error:
            self._refused += isinstance(error, InvalidTimestampError)
            names, t = [error_name(error)], [time.monotonic_ns()]
            hidden = future is not None and future.may_be_stored()
            definite = produce_outcome(names) is Outcome.FAILED and not hidden
            history.write((ProduceFailed if definite else ProduceUnknown)(tp, [record_id], names, t))
        else:
            self._stored += 1
            history.write(ProduceOk(tp, [record_id], [stored.offset], [time.monotonic_ns()]))

    async def _produce_timeless(self, line: Line, history: HistoryWriter, tp: TopicPartition, record_id: int) -> None:
        """Send a record without a timestamp in one request, without retries, and write its outcome to the history."""
        history.write(ProduceInvoked(tp, [record_id], [NO_TIMESTAMP], [time.monotonic_ns()]))
        batch = timeless(b"%d" % record_id, payload(record_id, _VALUE_BYTES))
        try:
            request = ProduceRequest(_ACKS_ALL, _TIMEOUT_MS, (ProducePartition(tp.topic, tp.partition, batch),))
            answer = await line.ask(request, _TIMEOUT_MS)
            assert isinstance(answer, ProduceResponse)
            (stored,) = answer.partitions
            if refusal := error_for(stored.error_code, stored.error_message or ""):
                raise refusal
        except TidelogError as error:
            names = [error_name(error)]
            event = ProduceFailed if produce_outcome(names) is Outcome.FAILED else ProduceUnknown
            history.write(event(tp, [record_id], names, [time.monotonic_ns()]))
        else:
            self._timeless += 1
            history.write(ProduceOk(tp, [record_id], [stored.base_offset], [time.monotonic_ns()]))

    def bit(self, evidence: Evidence) -> str | None:
        if not (self._stored and self._refused and self._timeless):
            return None
        return (
            f"{self._stored} records were stored, {self._timeless} without a timestamp, "
            f"{self._refused} refused because of their timestamp"
        )


def reachable_leaders(
    tps: Iterable[TopicPartition], led: Mapping[TopicPartition, int], addresses: Mapping[int, str]
) -> Iterator[tuple[TopicPartition, str]]:
    """Yield the partitions that have a leader whose address is known, each with the address."""
    for tp in tps:
        address = addresses.get(led[tp]) if tp in led else None
        if address is not None:
            yield tp, address


def timeless(key: bytes, value: bytes) -> bytes:
    """Return a batch of one record without a timestamp. Raise ValueError if the batch would exceed 64 KiB."""
    builder = BatchBuilder(_MOST_BYTES)
    if builder.try_append(NO_TIMESTAMP, key, value) is None:
        raise ValueError(f"a value of {len(value)} bytes does not fit into a batch")
    return builder.build()


def odd_times(now_ms: int, rng: random.Random) -> list[int]:
    """Return 29 timestamps in milliseconds, in random order. Two of them are more than an hour in the future."""
    odd = [0, 1, now_ms - 10 * _YEAR_MS, now_ms - _YEAR_MS, now_ms + _HOUR_MS // 2, now_ms, now_ms]
    refused = [now_ms + 2 * _HOUR_MS, now_ms + 10 * _YEAR_MS]
    near = [now_ms + rng.randrange(-_HOUR_MS, _HOUR_MS // 2) for _ in range(20)]
    return rng.sample(odd + refused + near, len(odd) + len(refused) + len(near))
