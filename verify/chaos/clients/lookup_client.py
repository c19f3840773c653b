"""Look up offsets by time, and request first and last offsets, as any program does.

Half of the times that are looked up are timestamps of records that were acknowledged just before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidelog.errors import TidelogError
from tidelog.history.operations import EarliestFailed, EarliestOk, LatestFailed, LatestOk, LookUpFailed, LookUpOk
from tidelog.model import TopicPartition
from verify.chaos.clients.client_context import ClientContext
from verify.chaos.clients.support.interfaces import RecordConsumer
from verify.checker.outcomes import error_name

_DAY_MS = 86_400_000
_NEAR_MS = 5_000
#: The share of calls that query all partitions at once.
_ALL_AT_ONCE = 0.3


class LookupClient:
    """A client that sends one call at a time through a consumer: look-ups by time, and requests for first and last
    offsets.

    open_consumer   opens the consumer, with its name; None: our own
    """

    def __init__(
        self,
        context: ClientContext,
        name: str,
        *,
        pause_s: float = 0.02,
        open_consumer: Callable[..., RecordConsumer] | None = None,
    ) -> None:
        self.name = name
        self._context = context
        self._pause_s = pause_s
        self._open_consumer = open_consumer or context.consumer
        self._history = context.history(name)

    async def run(self) -> None:
        """Look up offsets of one random partition or of all, and record each answer or error, with pauses of at most
        twice `pause_s`.

        When `context.stopping` is set, finish the current call, close the history and return.
        """
        context = self._context
        try:
            async with self._open_consumer(self.name) as consumer:
                while not context.stopping.is_set():
                    tps = context.tps if context.rng.random() < _ALL_AT_ONCE else [context.rng.choice(context.tps)]
                    ask = context.rng.choice((self._look_up, self._look_up, self._latest, self._earliest))
                    await ask(consumer, tps)
                    await context.pause(0, 2 * self._pause_s)
        finally:
            self._history.close()

    async def _look_up(self, consumer: RecordConsumer, tps: Sequence[TopicPartition]) -> None:
        now_ns, history = self._context.now_ns, self._history
        targets, t0 = {tp: self._target(tp) for tp in tps}, now_ns()
        try:
            with self._context.noticed(history, "look-up", tps):
                results = await consumer.offsets_for_times(targets)
        except TidelogError as error:
            name, t1 = error_name(error), now_ns()
            for tp, target in targets.items():
                history.write(LookUpFailed(tp, target, name, t0, t1))
            return
        t1 = now_ns()
        for tp, target in targets.items():
            found = results[tp]
            offset, ts, epoch = (-1, None, None) if found is None else found
            history.write(LookUpOk(tp, target, offset, t0, t1, ts, epoch))

    async def _latest(self, consumer: RecordConsumer, tps: Sequence[TopicPartition]) -> None:
        await self._end(consumer.end_offsets, LatestOk, LatestFailed, tps)

    async def _earliest(self, consumer: RecordConsumer, tps: Sequence[TopicPartition]) -> None:
        await self._end(consumer.beginning_offsets, EarliestOk, EarliestFailed, tps)

    async def _end(
        self,
        ask: Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
        ok: type[LatestOk | EarliestOk],
        failed: type[LatestFailed | EarliestFailed],
        tps: Sequence[TopicPartition],
    ) -> None:
        t0 = self._context.now_ns()
        try:
            with self._context.noticed(self._history, "request for an end offset", tps):
                offsets = await ask(tps)
        except TidelogError as error:
            name, t1 = error_name(error), self._context.now_ns()
            for tp in tps:
                self._history.write(failed(tp, name, t0, t1))
            return
        t1 = self._context.now_ns()
        for tp in tps:
            self._history.write(ok(tp, offsets[tp], t0, t1))

    def _target(self, tp: TopicPartition) -> int:
        """Return a timestamp in ms, at least 0: of a record acknowledged just before, near that of an acknowledged
        record, near now, or far from all records.
        """
        context, rng = self._context, self._context.rng
        known, now_ms, kind = context.acknowledged.get(tp), context.clock.now_ms(), rng.random()
        if known and kind < 0.5:
            return max(known[-1 - rng.randrange(min(8, len(known)))].timestamp, 0)
        if known and kind < 0.75:
            return max(rng.choice(known).timestamp + rng.choice((-1, 0, 1)), 0)
        if kind < 0.9:
            return now_ms + rng.randrange(-_NEAR_MS, _NEAR_MS)
        return rng.choice((0, now_ms - _DAY_MS, now_ms + _DAY_MS))
