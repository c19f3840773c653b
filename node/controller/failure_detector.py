"""Detect dead broker processes faster than their ZooKeeper sessions expire.

A closed connection makes a broker suspect. A *plain* TCP connect that is refused confirms the suspicion, because the
host is up and no process listens there. (ZeroMQ hides refusals.) A connect that times out confirms nothing, because a
hung or disconnected process may come back; then the session decides. A refused connect is evidence but no proof,
because a live process may refuse connections too. Therefore safety rests on epochs alone, and a broker is fenced at
most once per session timeout.
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
    """The outcome of one plain TCP connect.

    ACCEPTED   a process listens at the endpoint
    REFUSED    the host is up, and no process listens there
    SILENT     no answer came before the timeout, or the connect failed in another way
    """

    ACCEPTED = "accepted"
    REFUSED = "refused"
    SILENT = "silent"


async def probe(endpoint: Endpoint, timeout_ms: int = PROBE_TIMEOUT_MS) -> ProbeOutcome:
    """Connect to the endpoint by TCP, close the connection at once, and return the outcome. No OSError is raised."""
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
    """Allows at most one fence of a broker in `interval_ms`, the session timeout. Pure: the caller passes the time."""

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        self._fenced_at_ms: dict[int, int] = {}

    def allows(self, broker_id: int, now_ms: int) -> bool:
        """Return whether the broker was last fenced at least `interval_ms` ago, or never."""
        last_ms = self._fenced_at_ms.get(broker_id)
        return last_ms is None or now_ms - last_ms >= self._interval_ms

    def fenced(self, broker_id: int, now_ms: int) -> None:
        """Record that the broker was fenced at `now_ms`."""
        self._fenced_at_ms[broker_id] = now_ms


class FailureDetector:
    """Probes suspect brokers, and fences those that refuse connections.

    `fence(registration)` removes the registration from ZooKeeper, and returns whether it was still there. At most one
    probe per broker runs at a time.
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
        """Start a probe of the broker, because the connection to it has closed or could not be opened.

        The broker is fenced if it refuses the probe. Do nothing while a probe of this broker runs, or if it was fenced
        within the last session timeout.
        """
        if broker.broker_id not in self._probing and self._limiter.allows(broker.broker_id, self._clock.monotonic_ms()):
            task = asyncio.create_task(self._investigate(broker))
            self._probing[broker.broker_id] = task
            task.add_done_callback(lambda _: self._probing.pop(broker.broker_id, None))

    async def fence_now(self, broker: BrokerRegistration) -> None:
        """Fence the broker without a probe, because it refused a connection or a later process of it has answered.

        Do nothing if the broker was fenced within the last session timeout. Raise the errors of `fence`.
        """
        if not self._limiter.allows(broker.broker_id, self._clock.monotonic_ms()):
            return
        if await self._fence(broker):
            # Only a fence that removed the registration counts, because a broker that unregistered by itself may
            # return, and die again at once.
            self._limiter.fenced(broker.broker_id, self._clock.monotonic_ms())
            log.warning("fenced broker %d (epoch %d), because it is dead", broker.broker_id, broker.epoch)

    def close(self) -> None:
        """Cancel all probes, and the fences that follow from them. Return at once."""
        for task in list(self._probing.values()):
            task.cancel()
        del self._fence  # it refers to the owner, and the owner to this detector

    async def _investigate(self, broker: BrokerRegistration) -> None:
        outcome = await self._probe(broker.replication_endpoint)
        log.info("probe of broker %d at %s: %s", broker.broker_id, broker.replication_endpoint, outcome.value)
        if outcome is ProbeOutcome.REFUSED:
            try:
                await self.fence_now(broker)
            except TidelogError as error:
                # The error is expected if ZooKeeper is unavailable too. The next failed connect starts a new probe.
                log.info("could not fence broker %d yet: %s", broker.broker_id, error)
            except Exception:
                log.exception("fencing broker %d failed", broker.broker_id)
