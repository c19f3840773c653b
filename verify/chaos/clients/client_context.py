"""The environment of every client: the cluster, clocks, a random generator, and the histories.

A run uses the real ones; a simulation gives the same clients virtual ones.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tidelog.aio import Admin, Consumer, Producer
from tidelog.client.connections import Opener, open_connection
from tidelog.client.environment import ClientEnvironment
from tidelog.client.tasks.async_event import Flag
from tidelog.clock import Clock, SystemClock
from tidelog.history.events import Event
from tidelog.history.operations import Client, Overdue
from tidelog.model import TopicPartition
from verify.chaos.load import LoadTopic
from verify.checker.invariants.records.operation_outcomes import GRACE_NS

#: The number of acknowledged records per partition that other clients can look up.
_REMEMBERED = 512
#: The time after its timeout within which an operation must end, with a small margin.
_LATE_S = GRACE_NS / 1e9 + 0.1
_LOOK_AGAIN_S = 1.0


class History(Protocol):
    """A writer of events, such as `tidelog.history.history_files.HistoryWriter`."""

    def write(self, event: Event) -> None: ...

    def close(self) -> None: ...


class AcknowledgedRecord(NamedTuple):
    """The offset and timestamp (ms) of an acknowledged record."""

    offset: int
    timestamp: int


@dataclass(slots=True)
class ClientContext:
    """The environment of all clients of a process; it belongs to the process's event loop.

    servers            the bootstrap servers
    topics             the topics that the clients use
    open_history       opens the history of a client
    timeout_ms         the time limit of each operation, including retries
    poll_ms            how long a poll waits for records
    fetch_wait_ms      how long a broker waits for records before it answers a consumer's fetch
    commit_copies_ms   `commit_copies_ms` of the clients' histories (`tidelog.history.operations.Client`)
    stopping           set when the clients are asked to stop
    acknowledged       the last 512 acknowledged records of each partition, from the producers of this process with
                       acks=all
    """

    servers: str
    topics: Sequence[LoadTopic]
    open_history: Callable[[Client], History]
    rng: random.Random = field(default_factory=random.Random)
    clock: Clock = field(default_factory=SystemClock)
    now_ns: Callable[[], int] = time.monotonic_ns
    opener: Opener = open_connection
    timeout_ms: int = 15_000
    poll_ms: int = 200
    fetch_wait_ms: int = 500
    commit_copies_ms: int = -1
    stopping: Flag = field(default_factory=Flag)
    acknowledged: dict[TopicPartition, deque[AcknowledgedRecord]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=_REMEMBERED))
    )

    @property
    def tps(self) -> list[TopicPartition]:
        return [tp for topic in self.topics for tp in topic.tps]

    def history(self, name: str, *, acks: int = -1, idempotent: bool = True) -> History:
        """Open the history of the client of this name, beginning with a header, and return it. The caller closes it.
        `acks` and `idempotent` describe a producer.
        """
        header = Client(name, acks, idempotent, self.timeout_ms, self.now_ns(), self.commit_copies_ms)
        return self.open_history(header)

    def producer(self, name: str, *, opener: Opener | None = None, **options: Any) -> Producer:
        return self._environment(opener).create(Producer, self.servers, client_id=name, **options)

    def consumer(self, name: str, **options: Any) -> Consumer:
        options = {"default_api_timeout_ms": self.timeout_ms, "fetch_max_wait_ms": self.fetch_wait_ms, **options}
        return self._environment().create(Consumer, self.servers, client_id=name, **options)

    def admin(self, name: str) -> Admin:
        return self._environment().create(Admin, self.servers, client_id=name, default_api_timeout_ms=self.timeout_ms)

    @contextmanager
    def noticed(self, history: History, what: str, tps: Iterable[TopicPartition]) -> Iterator[None]:
        """Write an Overdue event for each of `tps` if the operation in this context still runs well after `timeout_ms`.

        The operation, called `what` in the event, is not interrupted. The events are written once, while the operation
        hangs.
        """
        loop, t0 = asyncio.get_running_loop(), self.now_ns()

        def report() -> None:
            for tp in tps:
                history.write(Overdue(what, tp, t0, self.now_ns()))

        def look_again() -> None:
            # After a process was stopped, all its timers are due at once, so only an operation that is still open later
            # hangs.
            timers.append(loop.call_later(_LOOK_AGAIN_S, report))

        timers = [loop.call_later(self.timeout_ms / 1000 + _LATE_S, look_again)]
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()

    async def pause(self, least_s: float, most_s: float | None = None) -> None:
        """Sleep for `least_s`, or with `most_s` for a random time between both. Return early if the clients are asked
        to stop.
        """
        seconds = least_s if most_s is None else self.rng.uniform(least_s, most_s)
        await self.stopping.wait(seconds)

    def _environment(self, opener: Opener | None = None) -> ClientEnvironment:
        rng = random.Random(self.rng.random())
        return ClientEnvironment(clock=self.clock, opener=opener or self.opener, rng=rng)
