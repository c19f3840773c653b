"""Read with consumers that assign partitions to themselves.

TailReader        reads everything from the first record on
RandomSeekReader  reads parts again, from random positions
ResetReader       begins where `auto_offset_reset` leads, also from offsets that do not exist
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import ClassVar

from tidelog.aio import Consumer
from tidelog.errors import LogTruncationError, OffsetOutOfRangeError, TidelogError
from tidelog.history.operations import EarliestOk, LatestOk
from tidelog.model import TopicPartition
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.observing import Sessions
from verify.chaos.clients.support.interfaces import RecordConsumer

#: The pause between two polls, so that one line of a history has many records.
_PAUSE_S = 0.05
_MOST_AT_ONCE = 2_000
#: The number of polls at one position.
_POLLS_OF_A_VISIT = 4
#: An offset that no run reaches.
_NOWHERE = 1 << 40


class Reader(ABC):
    """A reader with its own history, which its constructor opens and `run` closes.

    moves   whether its consumer may be moved by `auto_offset_reset`
    """

    moves: ClassVar[bool] = False

    def __init__(self, context: ClientContext, name: str) -> None:
        self.name = name
        self._context = context
        self._history = context.history(name)
        self._sessions = Sessions(self._history, context, moves=self.moves)

    async def run(self) -> None:
        """Read until `context.stopping` is set, and close the history at the end, also after an exception.

        Records are written to the history; which errors are written depends on the reader.
        """
        try:
            await self._read()
        finally:
            self._history.close()

    @abstractmethod
    async def _read(self) -> None:
        """Read, and record records and errors. Return when `context.stopping` is set."""

    async def _stay(self, consumer: Consumer, tp: TopicPartition) -> None:
        """Poll four times from the consumer's current position in its only partition, and record the batches."""
        for _ in range(_POLLS_OF_A_VISIT):
            polled = await self._sessions.polled(consumer.poll_batches(self._context.poll_ms))
            for fetched in polled.values():
                self._sessions.read_batches(tp, fetched)


class TailReader(Reader):
    """A reader of everything; with `batches` it records whole batches, which have the high watermark too.

    After an offset out of range the reader seeks to the first offset, and after a log truncation to the divergent
    offset if known. Each error of a partition is recorded, and each such seek begins a new session.

    open_consumer   opens the consumer of a reader without `batches`, with its name and settings; None: our own
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        *,
        batches: bool,
        open_consumer: Callable[..., RecordConsumer] | None = None,
    ) -> None:
        super().__init__(context, name)
        self._batches = batches
        self._open_consumer = open_consumer or context.consumer

    async def _read(self) -> None:
        if self._batches:
            async with self._context.consumer(self.name, auto_offset_reset="none") as own:
                await self._read_all(own, partial(self._take_batches, own))
        else:
            async with self._open_consumer(self.name, auto_offset_reset="none") as consumer:
                await self._read_all(consumer, partial(self._take_records, consumer))

    async def _read_all(self, consumer: RecordConsumer, take: Callable[[], Awaitable[None]]) -> None:
        context = self._context
        consumer.assign(context.tps)
        for tp in context.tps:
            self._sessions.begin(tp)
        consumer.seek_to_beginning()
        while not context.stopping.is_set():
            try:
                await take()
            except TidelogError as error:
                self._recover(consumer, error)
                await context.pause(0.1)
            await context.pause(_PAUSE_S)

    async def _take_batches(self, consumer: Consumer) -> None:
        polled = await self._sessions.polled(consumer.poll_batches(self._context.poll_ms))
        for tp, fetched in polled.items():
            self._sessions.read_batches(tp, fetched)

    async def _take_records(self, consumer: RecordConsumer) -> None:
        polled = await self._sessions.polled(consumer.poll(self._context.poll_ms, _MOST_AT_ONCE))
        for tp, records in polled.items():
            self._sessions.read(tp, records)

    def _recover(self, consumer: RecordConsumer, error: TidelogError) -> None:
        tp = partition_of(error, self._context.tps)
        if tp is None:
            return
        self._sessions.failed(tp, error)
        if isinstance(error, LogTruncationError) and error.divergent_offset >= 0:
            consumer.seek(tp, error.divergent_offset)
        elif isinstance(error, OffsetOutOfRangeError):
            consumer.seek_to_beginning(tp)
        else:
            return
        self._sessions.begin(tp)


class RandomSeekReader(Reader):
    """A reader of parts of the logs: a few polls from a random position of a random partition, then from another
    position.
    """

    def __init__(self, context: ClientContext, name: str, *, pause_s: float = 0.15) -> None:
        super().__init__(context, name)
        self._pause_s = pause_s

    async def _read(self) -> None:
        context = self._context
        async with context.consumer(self.name, auto_offset_reset="none") as consumer:
            while not context.stopping.is_set():
                tp = context.rng.choice(context.tps)
                try:
                    await self._visit(consumer, tp)
                except TidelogError as error:
                    if partition_of(error, (tp,)) is not None:
                        self._sessions.failed(tp, error)
                await context.pause(0, 2 * self._pause_s)

    async def _visit(self, consumer: Consumer, tp: TopicPartition) -> None:
        context, known = self._context, self._context.acknowledged.get(tp)
        self._sessions.polling()
        consumer.assign([tp])
        if known and context.rng.random() < 0.3:  # the last acknowledged record must be there
            consumer.seek(tp, known[-1].offset)
        elif known and context.rng.random() < 0.3:
            with context.noticed(self._history, "look-up", (tp,)):
                await consumer.seek_to_time(context.rng.choice(known).timestamp, tp)
        else:
            with context.noticed(self._history, "request for the first offset", (tp,)):
                begin = (await consumer.beginning_offsets([tp]))[tp]
            with context.noticed(self._history, "request for the last offset", (tp,)):
                end = (await consumer.end_offsets([tp]))[tp]
            # two leaders may have answered, and the second one may have the shorter log
            consumer.seek(tp, context.rng.randint(*sorted((begin, end))))
        self._sessions.begin(tp)
        await self._stay(consumer, tp)


class ResetReader(Reader):
    """A reader whose position is missing or does not exist, so that its reset policy moves it.

    The new position is recorded as an answer about the first or last offset of the partition, like the answer to a
    request.
    """

    moves = True

    async def _read(self) -> None:
        context = self._context
        while not context.stopping.is_set():
            policy = context.rng.choice(("earliest", "latest"))
            with suppress(TidelogError):
                async with context.consumer(self.name, auto_offset_reset=policy) as consumer:
                    await self._visit(consumer, context.rng.choice(context.tps), policy)
            await context.pause(0.5, 2)

    async def _visit(self, consumer: Consumer, tp: TopicPartition, policy: str) -> None:
        context = self._context
        since = context.now_ns()
        consumer.assign([tp])
        if context.rng.random() < 0.5:
            consumer.seek(tp, _NOWHERE)
            while await self._position(consumer, tp) == _NOWHERE and not context.stopping.is_set():
                await context.pause(0.02)
        self._sessions.begin(tp)
        offset = await self._position(consumer, tp)
        # A sequence of several calls does not show that one of them took too long.
        if offset != _NOWHERE and context.now_ns() - since <= context.timeout_ms * 1_000_000:
            answer = EarliestOk if policy == "earliest" else LatestOk
            self._history.write(answer(tp, offset, since, context.now_ns()))
        await self._stay(consumer, tp)

    async def _position(self, consumer: Consumer, tp: TopicPartition) -> int:
        with self._context.noticed(self._history, "request for a position", (tp,)):
            return await consumer.position(tp)


def partition_of(error: TidelogError, tps: tuple[TopicPartition, ...] | list[TopicPartition]) -> TopicPartition | None:
    """Return the partition that the error is about; None if there is none.

    An OffsetOutOfRangeError has a field for the partition, which need not be one of `tps`. The text of another error
    begins with the partition, which must be one of `tps`.
    """
    if isinstance(error, OffsetOutOfRangeError) and error.topic_partition is not None:
        return error.topic_partition
    text = str(error)
    return next((tp for tp in tps if text.startswith((f"{tp}:", f"{tp} "))), None)
