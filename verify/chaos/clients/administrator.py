"""Move leaders and replicas while the other clients work."""

from __future__ import annotations

from contextlib import suppress

from tidelog.aio import Admin
from tidelog.errors import TidelogError
from tidelog.protocol.partition_messages import ElectionType
from verify.chaos.clients.client_context import ClientContext

_TIMEOUT_MS = 5_000


class Administrator:
    """The administrator, which elects preferred leaders and reassigns partitions, each in its own interval (0: never).

    The administrator writes no history. `elections` and `reassignments` count the attempts without an error, also those
    that changed nothing.
    """

    def __init__(
        self, context: ClientContext, name: str, *, election_interval_ms: int = 0, reassignment_interval_ms: int = 0
    ) -> None:
        self.name = name
        self.elections = self.reassignments = 0
        self._context = context
        self._election_interval_ms = election_interval_ms
        self._reassignment_interval_ms = reassignment_interval_ms

    async def run(self) -> None:
        """Elect the preferred leaders of all partitions and reassign a random partition, at once and then in their
        intervals.

        Return when `context.stopping` is set. After a failure, the next attempt is made when the interval has passed.
        """
        context = self._context
        elect_at = reassign_at = context.clock.monotonic_ms()
        async with context.admin(self.name) as admin:
            while not context.stopping.is_set():
                now_ms = context.clock.monotonic_ms()
                # an operation that a fault prevents is tried again in the next interval
                if self._election_interval_ms and now_ms >= elect_at:
                    elect_at = now_ms + self._election_interval_ms
                    with suppress(TidelogError):
                        await admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_TIMEOUT_MS)
                        self.elections += 1
                if self._reassignment_interval_ms and now_ms >= reassign_at:
                    reassign_at = now_ms + self._reassignment_interval_ms
                    with suppress(TidelogError):
                        await self._reassign(admin)
                        self.reassignments += 1
                await context.pause(0.2)

    async def _reassign(self, admin: Admin) -> None:
        """Reassign a random partition to random brokers, with the same number of replicas. Do nothing if the broker
        that answers does not know the partition yet, or if too few brokers run.
        """
        context, tp = self._context, self._context.rng.choice(self._context.tps)
        brokers = sorted((await admin.describe_cluster(_TIMEOUT_MS)).brokers)
        (topic,) = await admin.describe_topics([tp.topic], _TIMEOUT_MS)
        known = next((each for each in topic.partitions if each.partition == tp.partition), None)
        count = 0 if known is None else len(known.replicas)
        if 0 < count <= len(brokers):  # otherwise this broker does not know the partition yet
            await admin.alter_partition_reassignments({tp: context.rng.sample(brokers, count)}, _TIMEOUT_MS)
