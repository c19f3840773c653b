"""An administrator who moves leaders and replicas while the others work."""

from __future__ import annotations

from contextlib import suppress

from tidelog.aio import Admin
from tidelog.errors import TidelogError
from tidelog.protocol.partition_messages import ElectionType
from verify.chaos.clients.client_context import Surroundings

_PATIENCE_MS = 5_000


class Administrator:
    """Elects preferred leaders, and reassigns partitions; each with its own interval, 0: never. Takes nothing down."""

    def __init__(
        self, around: Surroundings, name: str, *, election_interval_ms: int = 0, reassignment_interval_ms: int = 0
    ) -> None:
        self.name = name
        self.elections = self.reassignments = 0
        self._around = around
        self._election_interval_ms = election_interval_ms
        self._reassignment_interval_ms = reassignment_interval_ms

    async def run(self) -> None:
        """Until clients are to come to an end."""
        around = self._around
        elect_at = reassign_at = around.clock.monotonic_ms()
        async with around.admin(self.name) as admin:
            while not around.stopping.is_set():
                now_ms = around.clock.monotonic_ms()
                # What a fault keeps from happening is tried again at the next turn.
                if self._election_interval_ms and now_ms >= elect_at:
                    elect_at = now_ms + self._election_interval_ms
                    with suppress(TidelogError):
                        await admin.elect_leaders(ElectionType.PREFERRED, timeout_ms=_PATIENCE_MS)
                        self.elections += 1
                if self._reassignment_interval_ms and now_ms >= reassign_at:
                    reassign_at = now_ms + self._reassignment_interval_ms
                    with suppress(TidelogError):
                        await self._reassign(admin)
                        self.reassignments += 1
                await around.pause(0.2)

    async def _reassign(self, admin: Admin) -> None:
        """As many replicas of a partition as before, on brokers and in an order that the dice choose."""
        around, tp = self._around, self._around.dice.choice(self._around.tps)
        brokers = sorted((await admin.describe_cluster(_PATIENCE_MS)).brokers)
        (topic,) = await admin.describe_topics([tp.topic], _PATIENCE_MS)
        count = len(next(each for each in topic.partitions if each.partition == tp.partition).replicas)
        if 0 < count <= len(brokers):  # none: this broker has been told nothing of it yet
            await admin.alter_partition_reassignments({tp: around.dice.sample(brokers, count)}, _PATIENCE_MS)
