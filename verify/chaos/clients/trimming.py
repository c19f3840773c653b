"""Delete records up to random offsets: within batches, at both ends of a log, while other clients read."""

from __future__ import annotations

from tidelog.aio import Admin, Consumer
from tidelog.errors import TidelogError
from tidelog.history.operations import TrimInvoked, TrimOk, TrimUnknown
from tidelog.model import TopicPartition
from verify.chaos.clients.client_context import ClientContext
from verify.checker.outcomes import error_name


class Trimmer:
    """A client that deletes records in one random partition at a time, `pause_s` apart on average."""

    def __init__(self, context: ClientContext, name: str, *, pause_s: float = 5.0) -> None:
        self.name = name
        self._context = context
        self._pause_s = pause_s
        self._history = context.history(name)

    async def run(self) -> None:
        """Delete records up to random offsets, and record each call with its outcome.

        When `context.stopping` is set, finish the current call, close the history and return.
        """
        context = self._context
        try:
            async with context.consumer(self.name) as consumer, context.admin(self.name) as admin:
                await context.pause(0, 2 * self._pause_s)
                while not context.stopping.is_set():
                    await self._trim(consumer, admin, context.rng.choice(context.tps))
                    await context.pause(0, 2 * self._pause_s)
        finally:
            self._history.close()

    async def _trim(self, consumer: Consumer, admin: Admin, tp: TopicPartition) -> None:
        context = self._context
        try:
            begin, end = await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])
        except TidelogError:
            return  # there is nothing to delete yet
        offset = context.rng.randint(begin[tp], max(begin[tp], end[tp]))
        t0 = context.now_ns()
        self._history.write(TrimInvoked(tp, offset, t0))
        try:
            with context.noticed(self._history, "trim", [tp]):
                await admin.delete_records({tp: offset}, context.timeout_ms)
        except TidelogError as error:
            self._history.write(TrimUnknown(tp, offset, error_name(error), t0, context.now_ns()))
        else:
            self._history.write(TrimOk(tp, offset, t0, context.now_ns()))
