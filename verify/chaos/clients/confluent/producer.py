"""A producer of confluent-kafka with the interface of ours, as far as a producing client needs it."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tidelog.errors import BufferExhaustedError, TidelogError, TimeoutError
from tidelog.model import RecordMetadata
from verify.chaos.clients.confluent.errors import error_of, error_of_exception

#: The interval in which outcomes are taken from librdkafka.
_POLL_S: Final = 0.01
#: librdkafka looks for records whose time is over once a second.
_LATE_MS: Final = 1_500
#: The number that makes librdkafka choose the partition.
_BY_KEY: Final = -1
#: The time in which a closed producer gets the outcomes of purged records.
_PURGE_S: Final = 2.0


class FatalProducerError(Exception):
    """librdkafka cannot go on without a new producer, because it cannot guarantee idempotence any more."""


class ConfluentRecord:
    """One record that was handed to librdkafka. `settle` calls its callbacks; callbacks added later are called at
    once.
    """

    def __init__(self) -> None:
        self._place: RecordMetadata | None = None
        self._error: TidelogError | None = None
        self._on_ok: list[Callable[[RecordMetadata], Any]] = []
        self._on_error: list[Callable[[TidelogError], Any]] = []

    def add_callback(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args, metadata)` when the record is acknowledged."""
        self._on_ok.append(partial(function, *args))
        if self._place is not None:
            function(*args, self._place)

    def add_errback(self, function: Callable[..., Any], *args: Any) -> None:
        """Call `function(*args, error)` when the record fails."""
        self._on_error.append(partial(function, *args))
        if self._error is not None:
            function(*args, self._error)

    def may_be_stored(self) -> bool:
        """Return True for every record, because confluent-kafka tells only the last error of a record.

        An earlier attempt may have been appended, even if the last one was refused.
        """
        return True

    def settle(self, error: KafkaError | None, message: Message) -> None:
        """Take the outcome from librdkafka's delivery report."""
        if error is not None:
            self._error = error_of(error)
            for fail in self._on_error:
                fail(self._error)
            return
        offset = message.offset()
        # A negative offset: the broker recognized a repetition without knowing its offset.
        known = offset if offset is not None and offset >= 0 else -1
        self._place = RecordMetadata(message.topic() or "", message.partition() or 0, known, message.timestamp()[1])
        for succeed in self._on_ok:
            succeed(self._place)


class ConfluentProducer:
    """An idempotent producer of confluent-kafka on an event loop. `send` starts the task that takes outcomes from
    librdkafka.

    delivery_timeout_ms   the time limit of each record
    request_timeout_ms    the time limit of each request
    """

    def __init__(self, servers: str, name: str, *, delivery_timeout_ms: int, request_timeout_ms: int) -> None:
        self._request_timeout_s = request_timeout_ms / 1000
        self._fatal: KafkaError | None = None
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": name,
                "acks": "all",
                "enable.idempotence": True,
                # With more, librdkafka 2.16 begins a new producer epoch when a request overtakes one that timed out,
                # and may then store records of other partitions twice (confluentinc/librdkafka#4953).
                "max.in.flight": 1,
                "partitioner": "murmur2_random",  # chooses the same partition of a key as our partitioner
                "delivery.timeout.ms": max(1_000, delivery_timeout_ms - _LATE_MS),
                "request.timeout.ms": request_timeout_ms,
                "socket.timeout.ms": request_timeout_ms + 1_000,
                "error_cb": self._failed,
            }
        )
        self._taking: asyncio.Task[None] | None = None
        #: The number of records without an outcome. The length of librdkafka's producer counts its log lines too.
        self._open = 0

    async def partitions_for(self, topic: str) -> set[int]:
        """Return the partitions of the topic. Raise a TidelogError if no broker knows the topic."""
        try:
            found = await asyncio.to_thread(self._producer.list_topics, topic, self._request_timeout_s)
        except KafkaException as exception:
            raise error_of_exception(exception) from None
        if (error := found.topics[topic].error) is not None:
            raise error_of(error)
        return set(found.topics[topic].partitions)

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> ConfluentRecord:
        """Hand a record to librdkafka, and return it without waiting for its outcome.

        Raise a TidelogError if librdkafka refuses the record, which is then never sent, and FatalProducerError after a
        fatal error.
        """
        if self._fatal is not None:
            raise FatalProducerError(f"{self._fatal.name()}: {self._fatal.str()}")
        if self._taking is None:
            self._taking = asyncio.create_task(self._take_outcomes())
        record = ConfluentRecord()
        where = _BY_KEY if partition is None else partition
        try:
            self._producer.produce(
                topic, value, key, where, on_delivery=partial(self._settle, record), timestamp=timestamp_ms or 0
            )
        except BufferError:
            raise BufferExhaustedError("librdkafka's queue is full") from None
        except KafkaException as exception:
            raise error_of_exception(exception) from None
        self._open += 1
        return record

    async def flush(self, timeout_s: float) -> None:
        """Wait until each sent record has its outcome. Raise TimeoutError after `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._until_settled()
        except builtins.TimeoutError:
            raise TimeoutError(f"{self._open} records have no outcome after {timeout_s:g} s") from None

    async def close(self, timeout_ms: int) -> None:
        """Wait up to `timeout_ms` for outcomes. Then give up the other records, which get an error as their outcome."""
        with suppress(TimeoutError):
            await self.flush(timeout_ms / 1000)
        self._producer.purge(blocking=False)
        with suppress(TimeoutError):
            await self.flush(_PURGE_S)
        if self._taking is not None:
            self._taking.cancel()
            await asyncio.wait({self._taking})

    def _settle(self, record: ConfluentRecord, error: KafkaError | None, message: Message) -> None:
        self._open -= 1
        record.settle(error, message)

    async def _until_settled(self) -> None:
        while self._open:
            self._producer.poll(0)
            await asyncio.sleep(_POLL_S)

    async def _take_outcomes(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(_POLL_S)

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self._fatal = error
