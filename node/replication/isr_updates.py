"""Write ISR changes to ZooKeeper and notify the controller (the counterpart of Kafka's AlterPartitionManager).

A leader writes the ISR of its partition itself, by compare-and-set. A failed log directory is only reported, because
the controller elects other leaders for the failed replicas.
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
from node.replication.purgatories import Purgatories
from node.replication.replica import Replica
from node.replication.replica_ports import IsrStore
from tidelog.clock import Clock
from tidelog.errors import RequestTimedOutError, TidelogError
from tidelog.model import TopicPartition

log = logging.getLogger(__name__)

_RETRY_MS = 50
#: The shortest time between two notifications. Changed ISRs are reported together, because a leader that comes back may
#: have thousands of them.
_NOTIFY_INTERVAL_MS = 500


class IsrUpdates:
    """The ISR writes and notifications in flight. Call `tick` when it asked to be called, or on `purgatories.alarm`.

    apply_facts(replica, facts)     called with what follows from the outcome of a write
    note_isr(replica, state, version)
                                    records on disk which ISR was written as which partition epoch
    shrinks, expansions             how often this leader has written an ISR with fewer, or with more, members
    """

    def __init__(
        self,
        broker_id: int,
        store: IsrStore,
        purgatories: Purgatories,
        clock: Clock,
        apply_facts: Callable[[Replica, Facts], None],
        note_isr: Callable[[Replica, PartitionState, int], Awaitable[None]],
        events: Events = NO_EVENTS,
    ) -> None:
        self.shrinks = self.expansions = 0
        self._broker_id = broker_id
        self._store = store
        self._purgatories = purgatories
        self._clock = clock
        self._apply_facts = apply_facts
        self._note_isr = note_isr
        self._events = events
        self._tasks: set[asyncio.Task[None]] = set()
        self._writes: dict[asyncio.Task[None], TopicPartition] = {}
        self._changed_isrs: set[TopicPartition] = set()
        self._next_notification_ms = 0
        self._failure_unreported = False

    def propose(self, replica: Replica, proposal: IsrProposal) -> None:
        """Begin to write the proposed ISR to ZooKeeper, and return at once.

        The write is retried until its outcome is known, or until the proposal is no longer pending. The outcome then
        reaches `apply_facts`.
        """
        task = self._spawn(self._write_until_settled(replica, proposal))
        self._writes[task] = replica.topic_partition
        task.add_done_callback(self._writes.pop)

    async def wait_until_settled(self, tps: Collection[TopicPartition], deadline_ms: int) -> None:
        """Wait until the ISR writes of these partitions that are in flight now have ended.

        Raise RequestTimedOutError at `deadline_ms` (monotonic; negative: no deadline).

        A deletion must wait for this, because the next topic of the same name begins with the same znode version: a
        late write would succeed there.
        """
        writes = [task for task, tp in self._writes.items() if tp in tps]
        if writes:
            left_s = None if deadline_ms < 0 else max(0, deadline_ms - self._clock.monotonic_ms()) / 1000
            _, late = await asyncio.wait(writes, timeout=left_s)
            if late:
                raise RequestTimedOutError(f"broker {self._broker_id}: still writing an ISR to ZooKeeper")

    def replicas_failed(self) -> None:
        """Have the next `tick` notify the controller that replicas of this broker have failed.

        The controller then asks this broker about each replica, and elects new leaders for the failed ones.
        """
        self._failure_unreported = True
        self._purgatories.alarm.set()

    def tick(self, now_ms: int) -> int | None:
        """Begin to notify the controller of failed replicas at once, and of changed ISRs every `_NOTIFY_INTERVAL_MS`.

        Return when to call again (monotonic), or None if no changed ISR waits.
        """
        if self._changed_isrs and now_ms >= self._next_notification_ms:
            self._next_notification_ms = now_ms + _NOTIFY_INTERVAL_MS
            self._spawn(self._report_changed_isrs())
        if self._failure_unreported:
            self._failure_unreported = False
            self._spawn(self._report_failure())
        return self._next_notification_ms if self._changed_isrs else None

    async def close(self) -> None:
        """Cancel all writes and notifications, and wait until their tasks have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write_until_settled(self, replica: Replica, proposal: IsrProposal) -> None:
        """Write the proposed ISR, and retry until the outcome is known.

        An unknown outcome must never count as success or failure. Until the outcome is known, the larger of both ISRs
        holds the high watermark back, so giving up would block the partition.
        """
        partition, tp = replica.partition, replica.topic_partition
        backoff = Backoff(_RETRY_MS)
        while partition.pending is proposal:
            try:
                partition_epoch = await self._store.change_isr(tp, proposal.state, proposal.partition_epoch)
            except StateConflict as conflict:
                self._events.isr_cas(tp, proposal, None)
                end, now_ms = replica.log.log_end_offset, self._clock.monotonic_ms()
                self._apply_facts(replica, partition.isr_conflict(proposal, conflict.actual, end, now_ms))
                self._purgatories.mark_changed(tp)
            except TidelogError as error:
                log.warning("%s: cannot write the ISR %s yet: %s", tp, proposal.state.isr, error)
                await asyncio.sleep(backoff.next_ms() / 1000)
            except Exception:
                log.exception("%s: cannot write the ISR %s yet", tp, proposal.state.isr)
                await asyncio.sleep(backoff.next_ms() / 1000)
            else:
                shrinks = len(proposal.state.isr) < len(partition.isr)
                # Each restart of a broker expands many ISRs again. An operator must see only the ISRs that shrink.
                level = logging.INFO if shrinks else logging.DEBUG
                log.log(level, "%s: the ISR is now %s (version %d)", tp, proposal.state.isr, partition_epoch)
                self._events.isr_cas(tp, proposal, partition_epoch)
                self._changed_isrs.add(tp)
                self._purgatories.alarm.set()
                self.shrinks += shrinks
                self.expansions += len(proposal.state.isr) > len(partition.isr)
                end, now_ms = replica.log.log_end_offset, self._clock.monotonic_ms()
                self._apply_facts(replica, partition.isr_accepted(proposal, partition_epoch, end, now_ms))
                self._purgatories.mark_changed(tp)
                await self._note_isr(replica, proposal.state, partition_epoch)

    async def _report_changed_isrs(self) -> None:
        changed, self._changed_isrs = self._changed_isrs, set()
        try:
            await self._store.notify_isr_change(sorted(changed))
        except TidelogError as error:
            log.info("cannot notify the controller of %d changed ISRs yet: %s", len(changed), error)
            self._changed_isrs |= changed
            self._purgatories.alarm.set()

    async def _report_failure(self) -> None:
        try:
            await self._store.notify_log_dir_failure(self._broker_id)
        except TidelogError as error:
            log.warning("cannot notify the controller of failed replicas yet: %s", error)
            await asyncio.sleep(_RETRY_MS / 1000)
            self.replicas_failed()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
