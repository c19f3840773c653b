"""Finding dead processes faster than their sessions end.

A closed connection is a suspicion. A *plain* TCP connect that is refused confirms it: the host is up and nobody
listens there. (ZeroMQ hides refusals.) Silence confirms nothing, since a hung or cut-off process may come back;
there the session decides. All this is evidence and not proof: a living process may refuse too, so safety rests
on epochs alone, and nobody is fenced more than once per session timeout.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from enum import Enum

from cluster.state import BrokerRegistration
from tidelog.clock import Clock
from tidelog.errors import TidelogError
from tidelog.model import Endpoint
from tidelog.protocol.addresses import resolve

log = logging.getLogger(__name__)

PROBE_TIMEOUT_MS = 500


class ProbeOutcome(Enum):
    """What a plain connect found."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"


async def probe(endpoint: Endpoint, timeout_ms: int = PROBE_TIMEOUT_MS) -> ProbeOutcome:
    """One TCP connect, closed at once."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            address, *_ = await resolve(endpoint.host)
            _, writer = await asyncio.open_connection(address, endpoint.port)
    except OSError as error:  # TimeoutError is one too
        refused = isinstance(error, ConnectionRefusedError) or error.errno == errno.ECONNREFUSED
        return ProbeOutcome.REFUSED if refused else ProbeOutcome.SILENT
    writer.close()
    return ProbeOutcome.ACCEPTED


class FenceLimiter:
    """Pure: at most one fence per broker and session timeout."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._fenced_at_ms: dict[int, int] = {}

    def allows(self, broker_id: int, now_ms: int) -> bool:
        """Whether the broker may be fenced now."""
        last_ms = self._fenced_at_ms.get(broker_id)
        return last_ms is None or now_ms - last_ms >= self._interval_ms

    def fenced(self, broker_id: int, now_ms: int) -> None:
        """It was."""
        self._fenced_at_ms[broker_id] = now_ms


class FailureDetector:
    """Turns suspicions into fences. `fence(registration)` says whether it removed the registration.

    At most one probe per broker is under way, whatever the number of suspicions.
    """

    def __init__(
        self,
        clock: Clock,
        limiter: FenceLimiter,
        fence: Callable[[BrokerRegistration], Awaitable[bool]],
        probe: Callable[[Endpoint], Awaitable[ProbeOutcome]] = probe,
    ) -> None:
        self._clock = clock
        self._limiter = limiter
        self._fence = fence
        self._probe = probe
        self._probing: dict[int, asyncio.Task[None]] = {}

    def suspect(self, broker: BrokerRegistration) -> None:
        """The connection to a registered broker has closed, or could not be opened."""
        if broker.broker_id not in self._probing and self._limiter.allows(broker.broker_id, self._clock.monotonic_ms()):
            task = asyncio.create_task(self._investigate(broker))
            self._probing[broker.broker_id] = task
            task.add_done_callback(lambda _: self._probing.pop(broker.broker_id, None))

    async def fence_now(self, broker: BrokerRegistration) -> None:
        """Evidence is at hand: the broker refuses, or a later life of it has answered."""
        if not self._limiter.allows(broker.broker_id, self._clock.monotonic_ms()):
            return
        if await self._fence(broker):
            # Only what was done counts: a broker that left by itself may die again right after its return.
            self._limiter.fenced(broker.broker_id, self._clock.monotonic_ms())
            log.warning("broker %d (epoch %d) is dead: fenced", broker.broker_id, broker.epoch)

    def close(self) -> None:
        """Forgets what is under way."""
        for task in list(self._probing.values()):
            task.cancel()

    async def _investigate(self, broker: BrokerRegistration) -> None:
        outcome = await self._probe(broker.replication_endpoint)
        log.info("broker %d at %s: connect %s", broker.broker_id, broker.replication_endpoint, outcome.value)
        if outcome is ProbeOutcome.REFUSED:
            try:
                await self.fence_now(broker)
            except TidelogError as error:
                # Nothing to wonder at while ZooKeeper is away too; the next failed connect is a new suspicion.
                log.info("broker %d is not fenced yet: %s", broker.broker_id, error)
            except Exception:
                log.exception("fencing broker %d failed", broker.broker_id)
