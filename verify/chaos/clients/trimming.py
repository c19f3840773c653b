"""Delete records up to random offsets: within batches, at both ends of a log, while other clients read."""

from __future__ import annotations

from tidelog.aio import Admin, Consumer
from tidelog.errors import TidelogError
from tidelog.history.operations import TrimInvoked, TrimOk, TrimUnknown
from tidelog.model import TopicPartition
from verify.chaos.clients.client_context import Surroundings
from verify.checker.outcomes import error_name


class Trimmer:
    """A client that trims one partition at a time, `pause_s` apart on average, from `run` to its end."""

    def __init__(self, around: Surroundings, name: str, *, pause_s: float = 5.0) -> None:
        self.name = name
        self._around = around
        self._pause_s = pause_s
        self._history = around.history(name)

    async def run(self) -> None:
        """Run until the clients are asked to stop."""
        around = self._around
        try:
            async with around.consumer(self.name) as consumer, around.admin(self.name) as admin:
                await around.pause(0, 2 * self._pause_s)
                while not around.stopping.is_set():
                    await self._trim(consumer, admin, around.dice.choice(around.tps))
                    await around.pause(0, 2 * self._pause_s)
        finally:
            self._history.close()

    async def _trim(self, consumer: Consumer, admin: Admin, tp: TopicPartition) -> None:
        around = self._around
        try:
            begin, end = await consumer.beginning_offsets([tp]), await consumer.end_offsets([tp])
        except TidelogError:
            return  # there is nothing to delete yet
        offset = around.dice.randint(begin[tp], max(begin[tp], end[tp]))
        t0 = around.now_ns()
        self._history.write(TrimInvoked(tp, offset, t0))
        try:
            with around.noticed(self._history, "trim", [tp]):
                await admin.delete_records({tp: offset}, around.timeout_ms)
        except TidelogError as error:
            self._history.write(TrimUnknown(tp, offset, error_name(error), t0, around.now_ns()))
        else:
            self._history.write(TrimOk(tp, offset, t0, around.now_ns()))
