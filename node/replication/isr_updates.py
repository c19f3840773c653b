"""What this broker changes of its replicas' states in ZooKeeper, and how the controller hears of it.

A leader writes its partition's ISR itself, by compare-and-set; that a disk failed is for the controller to act on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine

from cluster.backoff import Backoff
from cluster.replication.partition import Facts, IsrProposal
from cluster.state import PartitionState
from cluster.zookeeper.write_conflicts import StateConflict
from node.events.recorder import NO_EVENTS, Events
from node.purgatory.purgatories import Purgatories
from node.replication.replica import Replica
from node.replication.replica_ports import IsrStore
from tidelog.clock import Clock
from tidelog.errors import RequestTimedOutError, TidelogError
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

_RETRY_MS = 50
#: Changed ISRs are told together, at most so often: a leader that comes back may have thousands.
_NOTIFY_INTERVAL_MS = 500


class IsrUpdates:
    """All that is on its way to ZooKeeper; `tick` is due when it says, or when `waiting.alarm` is set.

    act(replica, facts)      does what follows from an outcome
    noted(replica, …)        remembers, beyond the life of this process, what was written as which partition epoch
    shrinks, expansions      how often an ISR of this leader's was written without, or with one more member
    """

    def __init__(
        self,
        broker_id: int,
        store: IsrStore,
        waiting: Purgatories,
        clock: Clock,
        act: Callable[[Replica, Facts], None],
        noted: Callable[[Replica, PartitionState, int], Awaitable[None]],
        events: Events = NO_EVENTS,
    ) -> None:
        self.shrinks = self.expansions = 0
        self._broker_id = broker_id
        self._store = store
        self._waiting = waiting
        self._clock = clock
        self._act = act
        self._noted = noted
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self._carried: dict[asyncio.Task[None], TopicPartition] = {}
        self._changed_isrs: set[TopicPartition] = set()
        self._next_notification_ms = 0
        self._failure_untold = False

    def propose(self, replica: Replica, proposal: IsrProposal) -> None:
        """Write this ISR and bring the outcome back, which is acted upon."""
        task = self._spawn(self._carry(replica, proposal))
        self._carried[task] = replica.topic_partition
        task.add_done_callback(self._carried.pop)

    async def settled(self, tps: Collection[TopicPartition], deadline_ms: int) -> None:
        """Returns when nothing that was proposed for these is on its way any more. RequestTimedOutError.

        For who has stopped them: a write that comes late would meet the next topic of the name in the same version.
        """
        carried = [task for task, tp in self._carried.items() if tp in tps]
        if carried:
            left_s = None if deadline_ms < 0 else max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
            _, late = await asyncio.wait(carried, timeout=left_s)
            if late:
                raise RequestTimedOutError("an ISR is still being written to ZooKeeper")

    def replicas_failed(self) -> None:
        """The controller is to ask each of our replicas anew, and to elect others for those that cannot go on."""
        self._failure_untold = True
        self._waiting.alarm.set()

    def tick(self, now_ms: int) -> int | None:
        """Tells the controller what has changed; returns when to be called again, None while nothing has."""
        if self._changed_isrs and now_ms >= self._next_notification_ms:
            self._next_notification_ms = now_ms + _NOTIFY_INTERVAL_MS
            self._spawn(self._tell_changed_isrs())
        if self._failure_untold:
            self._failure_untold = False
            self._spawn(self._tell_failure())
        return self._next_notification_ms if self._changed_isrs else None

    async def close(self) -> None:
        """Nothing is written any more when this returns."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, replica: Replica, proposal: IsrProposal) -> None:
        """The outcome must come, for until then the larger ISR holds the high watermark."""
        partition, tp = replica.partition, replica.topic_partition
        backoff = Backoff(_RETRY_MS)
        while partition.pending is proposal:
            try:
                partition_epoch = await self._store.change_isr(tp, proposal.state, proposal.partition_epoch)
            except StateConflict as conflict:
                self._events.isr_cas(tp, proposal, None)
                end, now_ms = replica.log.log_end_offset, self._clock.monotonic_ms()
                self._act(replica, partition.isr_conflict(proposal, conflict.actual, end, now_ms))
                self._waiting.changed(tp)
            except TidelogError as error:
                log.warning("%s: the ISR %s is not written yet: %s", tp, proposal.state.isr, error)
                await asyncio.sleep(backoff.next_ms() / 1000)
            except Exception:
                log.exception("%s: the ISR %s is not written yet", tp, proposal.state.isr)
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                shrinks = len(proposal.state.isr) < len(partition.isr)
                # Each restart brings replicas back to the ISR. An operator must see only those that leave.
                level = logging.INFO if shrinks else logging.DEBUG
                log.log(level, "%s: ISR is %s now (version %d)", tp, proposal.state.isr, partition_epoch)
                self._events.isr_cas(tp, proposal, partition_epoch)
                self._changed_isrs.add(tp)
                self._waiting.alarm.set()
                self.shrinks += shrinks
                self.expansions += len(proposal.state.isr) > len(partition.isr)
                end, now_ms = replica.log.log_end_offset, self._clock.monotonic_ms()
                self._act(replica, partition.isr_accepted(proposal, partition_epoch, end, now_ms))
                self._waiting.changed(tp)
                await self._noted(replica, proposal.state, partition_epoch)

    async def _tell_changed_isrs(self) -> None:
        changed, self._changed_isrs = self._changed_isrs, set()
        try:
            await self._store.notify_isr_change(sorted(changed))
        except TidelogError as error:
            log.info("the controller has not been told of %d changed ISRs yet: %s", len(changed), error)
            self._changed_isrs |= changed
            self._waiting.alarm.set()

    async def _tell_failure(self) -> None:
        try:
            await self._store.notify_log_dir_failure(self._broker_id)
        except TidelogError as error:
            log.warning("the controller has not been told of failed replicas yet: %s", error)
            await asyncio.sleep(_RETRY_MS / 1000)
            self.replicas_failed()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
