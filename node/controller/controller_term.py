"""One term of the active controller: from winning the election in ZooKeeper until another broker may be the controller.

The pure `Controller` decides. `ControllerTerm` reads from ZooKeeper what its watches announce, and performs the effects
that the `Controller` yields, one event after the other. The term ends at the first sign that another broker is the
controller. A watch only marks a path as changed, so that any number of watch events costs one read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from cluster.controller.controller import Controller
from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CloseChannel,
    CompleteReassignment,
    Effect,
    MoveChannel,
    OpenChannel,
    Pause,
    RemoveTopic,
    SendLeaderAndIsr,
    SendMetadata,
    SendStopReplica,
    WriteOutcome,
    WriteRefused,
    Written,
)
from cluster.controller.preferred_leaders import LeaderImbalance
from cluster.controller.unclean_recovery import LogEnd
from cluster.state import BrokerRegistration, ControllerLease, TopicAssignment, WriteState
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import NodeChanged, SessionChanged, SessionState, StoreError, StoreEvent
from cluster.zookeeper.write_conflicts import AssignmentConflict, ControllerFenced, StateConflict
from node.controller.controller_channel import ControllerChannel, ControllerMessage, OpenConnection
from node.controller.failure_detector import FailureDetector, FenceLimiter, ProbeOutcome, probe
from node.controller.outbox import Batch, QuestionBatch, StateBatch, StopBatch
from node.runtime.condition import Condition, holds_for_each
from tidelog.clock import Clock
from tidelog.errors import IneligibleReplicaError, NotControllerError, NotLeaderOrFollowerError, StorageError
from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.control_messages import LeaderAndIsrResponse, LogEndsResponse, StopReplicaResponse
from tidelog.protocol.messages import Request, Response
from tidelog.quantities import MOST_NAMED, count_of, first_of

log = logging.getLogger(__name__)

#: The longest time for which the answer to a command waits until every broker has the new metadata.
_PROPAGATION_MS = 500
#: Writes per event: the controller sends the results of one group to the brokers while the next group is written.
_WRITES = 250
#: How often the controller checks whether an unclean recovery has waited long enough for absent replicas.
_RECOVERY_CHECK_S = 1.0
#: How often unreadable topics are read again, because no watch fires when an administrator repairs their data.
_UNREADABLE_TOPICS_CHECK_S = 10.0


class ControllerTerm:
    """One term of the controller. When `run` returns, the caller reads `/controller` again.

    controller   the pure state; other objects may read it, but only this class changes it
    refused      the registration of the previous controller, fenced first, if its endpoint refused connections
    topics_lock  held while the set of topics is read or changed, so that a delayed read does not undo a change
    """

    def __init__(
        self,
        lease: ControllerLease,
        zk_client: ZkClient,
        clock: Clock,
        limiter: FenceLimiter,
        open_connection: OpenConnection,
        *,
        unclean_by_default: bool = False,
        min_insync_by_default: int = 1,
        rebalancing: LeaderImbalance | None = None,
        recovery_timeout_ms: int = 300_000,
        refused: BrokerRegistration | None = None,
        probe: Callable[[Endpoint], Awaitable[ProbeOutcome]] = probe,
    ) -> None:
        self.lease = lease
        self._refused = refused
        self.controller = Controller(
            lease.controller_id,
            lease.epoch,
            unclean_by_default=unclean_by_default,
            min_insync_by_default=min_insync_by_default,
            recovery_timeout_ms=recovery_timeout_ms,
        )
        self.topics_lock = asyncio.Lock()
        #: Notified whenever a state was written, a broker has answered, or a topic was removed.
        self._condition = Condition()
        self._zk_client = zk_client
        self._clock = clock
        self._detector = FailureDetector(clock, limiter, self._fence, probe)
        self._open_connection = open_connection
        self._rebalancing = rebalancing
        self._channels: dict[int, ControllerChannel] = {}
        self._led: dict[TopicPartition, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: The rest of the effects of each event that has not ended, and the future that is done when it has ended.
        self._events: deque[tuple[Iterator[Effect], asyncio.Future[None]]] = deque()
        # The watched paths, in the order in which changed ones are read.
        self._readers: dict[str, Callable[[], Awaitable[None]]] = {
            znodes.CONTROLLER: self._read_controller,
            znodes.BROKER_IDS: self._read_brokers,
            znodes.BROKER_TOPICS: self._read_topics,
            znodes.DELETE_TOPICS: self._read_deletions,
            znodes.CONFIG_CHANGES: self._read_config_changes,
            znodes.ISR_CHANGE_NOTIFICATION: self._read_isr_changes,
            znodes.LOG_DIR_EVENT_NOTIFICATION: self._read_log_dir_failures,
        }
        self._dirty: set[str] = set()
        self._wake = asyncio.Event()
        self._ended = ""
        self._loaded = False

    def raise_if_loading(self) -> None:
        """Raise NotControllerError before the term knows all topics, because a list of them would lack some."""
        if not self._loaded:
            raise NotControllerError("the controller is still reading the topics; try again")

    @property
    def ended(self) -> bool:
        """Return whether this term is over. From then on `perform` does nothing."""
        return bool(self._ended)

    async def run(self) -> str:
        """Read the cluster's state, act as the controller until the term ends, and return why it ended.

        Errors end the term and are not raised. On return all channels are closed, and all tasks are cancelled.
        """
        unsubscribe = self._zk_client.store.subscribe(self._on_event)
        log.info("broker %d is the controller, epoch %d", self.lease.controller_id, self.lease.epoch)
        try:
            await self._load()
            self._spawn(self._check_recovery_timeouts())
            self._spawn(self._retry_unreadable_topics())
            if self._rebalancing is not None:
                self._spawn(self._rebalance(self._rebalancing))
            while not self._ended:
                await self._wake.wait()
                self._wake.clear()
                dirty, self._dirty = self._dirty, set()
                for path, read in self._readers.items():
                    if path in dirty and not self._ended:
                        await read()
        except ControllerFenced as error:
            self.end(str(error))
        except StoreError as error:
            self.end(f"ZooKeeper: {error!r}")
        except Exception as error:
            self.on_failed(error)
        finally:
            unsubscribe()
            self.end("stopped")
            self._detector.close()
            for channel in self._channels.values():
                channel.close()
            for task in self._tasks:
                task.cancel()
            # Both refer to this term, and this term to them. The memory of such a cycle would wait for a garbage
            # collection, and these are rare.
            self._channels.clear()
            self._readers.clear()
        log.info("broker %d is no longer the controller: %s", self.lease.controller_id, self._ended)
        return self._ended

    def end(self, reason: str) -> None:
        """End the term, so that no further effect is performed, and wake every caller of `wait_until`.

        If the term has ended already, the first `reason` stays.
        """
        self._ended = self._ended or reason
        while self._events:
            self._end_event()
        self._wake.set()
        self._condition.notify()

    # --- commands ------------------------------------------------------------------------------------

    def perform(self, event: Iterable[Effect]) -> asyncio.Future[None]:
        """Start the effects of an event of the controller after those of all earlier events.

        Effects are started at once up to the first pause of an event, and the rest in later turns of the event loop.
        The returned future is done when all effects are started, or the term has ended. Nothing is started after the
        end of the term.

        Writes are sent in order. The outcomes of up to `_WRITES` writes reach the controller together. A write that
        fails ends the term, except for a version conflict, about which the controller decides again.
        """
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._events.append((iter(event), started))
        if self._ended:
            self._end_event()
        elif len(self._events) == 1:
            self._start_effects()
        return started

    def while_registered(self, broker: BrokerRegistration, event: Iterator[Effect]) -> Iterator[Effect]:
        """Yield the effects of an event that concerns this registration, or none if the registration has ended before
        the event begins.
        """
        known = self.controller.context.brokers.get(broker.broker_id)
        if known is not None and known.epoch == broker.epoch:
            yield from event

    def _start_effects(self) -> None:
        """Start the effects of the events in order, up to the next pause."""
        try:
            while self._events:
                if self._start_until_pause(self._events[0][0]):
                    asyncio.get_running_loop().call_soon(self._go_on)
                    return
                self._end_event()
        except Exception as error:
            self.on_failed(error)

    def _go_on(self) -> None:
        self._start_effects()
        self._condition.notify()

    def _end_event(self) -> None:
        _, started = self._events.popleft()
        if not started.done():  # a cancelled waiter has cancelled it
            started.set_result(None)

    def _start_until_pause(self, effects: Iterator[Effect]) -> bool:
        """Start effects up to the next pause; return whether there was one."""
        writes: list[WriteState] = []
        pauses = False
        for effect in effects:
            match effect:
                case Pause():
                    pauses = True
                    break
                case WriteState():
                    writes.append(effect)
                case OpenChannel(broker):
                    self._channels[broker.broker_id] = ControllerChannel(broker, self._open_connection, self)
                case MoveChannel(broker):
                    if channel := self._channels.get(broker.broker_id):
                        channel.move(broker)
                case CloseChannel(broker_id):
                    if channel := self._channels.pop(broker_id, None):
                        channel.close()
                case SendLeaderAndIsr(broker_id) | SendStopReplica(broker_id) | AskLogEnds(broker_id):
                    self._enqueue(broker_id, effect)
                case SendMetadata(broker_ids):
                    for broker_id in broker_ids:
                        self._enqueue(broker_id, effect)
                case RemoveTopic(topic):
                    self._spawn(self._remove_topic(topic))
                case ClearPossiblyShort(broker):
                    self._spawn(self._clear_possibly_short(broker))
                case CompleteReassignment(topic):
                    self._spawn(self._complete_reassignment(topic))
        for first in range(0, len(writes), _WRITES):
            self._spawn(self._write(writes[first : first + _WRITES]))
        return pauses

    def _enqueue(self, broker_id: int, message: ControllerMessage) -> None:
        if channel := self._channels.get(broker_id):
            channel.enqueue(message)

    async def create_topic(self, assignment: TopicAssignment) -> bool:
        """Write the topic and start to elect its leaders. Return False, and change nothing, if the topic exists.

        The caller holds `topics_lock`. Raise StoreError or ControllerFenced if ZooKeeper does not confirm the write.
        """
        if not await self._zk_client.create_topic(assignment, self.lease.epoch_version):
            return False
        await self.perform(self.controller.topics_created([replace(assignment, version=0)]))
        return True

    async def change_assignment(self, assignment: TopicAssignment) -> bool:
        """Write the assignment of a known topic, and start what it changes. Return False if another client wrote first.

        In that case the controller adopts the assignment that it finds in ZooKeeper. The caller holds `topics_lock`
        and derived `assignment` from the controller's own. If the outcome of the write is unknown, the term ends,
        because the write may be applied now or later; the next term reads everything again. Raise NotControllerError,
        and end the term too, if the topic has no readable assignment in ZooKeeper. Raise StoreError if the outcome is
        unknown, and ControllerFenced.
        """
        try:
            written = await self._zk_client.write_assignment(assignment, self.lease.epoch_version)
        except AssignmentConflict as conflict:
            log.warning("%s", conflict)
            if conflict.actual is None:
                self.end(str(conflict))
                raise NotControllerError(
                    f"topic {assignment.topic!r}: its assignment in ZooKeeper is gone or unreadable; try again when"
                    " the next controller has read everything"
                ) from None
            await self.perform(self.controller.assignment_written(conflict.actual))
            return False
        except StoreError as error:
            self.end(repr(error))
            raise
        await self.perform(self.controller.assignment_written(written))
        return True

    async def delete_topic(self, topic: str) -> None:
        """Write the deletion request to ZooKeeper and start the deletion, without waiting for it.

        The caller holds `topics_lock`. Raise StoreError or ControllerFenced if ZooKeeper does not confirm the write.
        """
        await self._zk_client.request_deletion(topic, self.lease.epoch_version)
        await self.perform(self.controller.deletions_wanted([topic]))

    def is_led(self, tp: TopicPartition) -> bool:
        """Return whether the partition has a leader that has confirmed its current leader epoch."""
        state = self.controller.context.state_of(tp)
        if state is None or state.leader == NO_LEADER:
            return False
        broker_id, leader_epoch = self._led.get(tp, (NO_LEADER, -1))
        return broker_id == state.leader and leader_epoch == state.leader_epoch

    async def wait_until(self, condition: Callable[[], bool], deadline_ms: int) -> None:
        """Return when the condition holds, the deadline (monotonic) has passed, or the term has ended.

        The condition is checked after each write, answer of a broker, and removal of a topic.
        """
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        await self._condition.until(lambda: self.ended or condition(), left_ms)

    async def wait_until_led(self, tps: Collection[TopicPartition], deadline_ms: int) -> None:
        """Wait, as `wait_until` does, until `is_led` holds for each of these partitions."""
        await self.wait_until(holds_for_each(tps, self.is_led), deadline_ms)

    async def wait_until_propagated(self, deadline_ms: int) -> None:
        """Wait until every broker has confirmed all messages, so that all brokers give clients the same metadata.

        Return after `_PROPAGATION_MS` in any case, because the command has already been carried out.
        """
        await self.wait_until(self._all_outboxes_empty, min(deadline_ms, self._clock.monotonic_ms() + _PROPAGATION_MS))

    def _all_outboxes_empty(self) -> bool:
        return not self._events and all(channel.outbox.empty for channel in self._channels.values())

    async def _rebalance(self, rebalancing: LeaderImbalance) -> None:
        while True:
            await asyncio.sleep(rebalancing.interval_s)
            tps = self.controller.away_from_preferred(rebalancing.percentage)
            if tps:
                log.info("moving leadership of %d partitions back to their preferred leaders", len(tps))
                await self.perform(self.controller.elections_wanted(tps))

    async def _check_recovery_timeouts(self) -> None:
        while True:
            await asyncio.sleep(_RECOVERY_CHECK_S)
            await self.perform(self.controller.time_passed(self._clock.monotonic_ms()))

    async def _retry_unreadable_topics(self) -> None:
        while True:
            await asyncio.sleep(_UNREADABLE_TOPICS_CHECK_S)
            if self.controller.context.unreadable_topics:
                self._dirty.add(znodes.BROKER_TOPICS)
                self._wake.set()

    # --- reading -------------------------------------------------------------------------------------

    async def _load(self) -> None:
        zk_client = self._zk_client
        if (await zk_client.read_controller(watch=True)).owner != self.lease.owner:
            raise ControllerFenced("another broker became the controller before this term began")
        if self._refused is not None:
            # The old controller is fenced before the brokers are read, so that one read already reflects its failure.
            await self._detector.fence_now(self._refused)
        async with self.topics_lock:
            brokers = await zk_client.read_brokers(watch=True)
            names = await zk_client.topic_names(watch=True)
            topics, states = await zk_client.read_topics_with_states(names)
            deletions = await zk_client.topics_to_delete(watch=True)
            unreadable = set(names) - topics.keys()
            await self.perform(self.controller.begin(brokers, topics, states, deletions, unreadable))
        self._loaded = True
        await self._read_config_changes()
        await self._read_isr_changes()
        await self._read_log_dir_failures()

    async def _read_controller(self) -> None:
        lease = await self._zk_client.read_controller(watch=True)
        if lease.owner != self.lease.owner or lease.epoch_version != self.lease.epoch_version:
            self.end(f"broker {lease.controller_id} is the controller (epoch {lease.epoch})")

    async def _read_brokers(self) -> None:
        await self.perform(self.controller.brokers_changed(await self._zk_client.read_brokers(watch=True)))
        self._condition.notify()

    async def _read_topics(self) -> None:
        zk_client, known = self._zk_client, self.controller.context.topics
        async with self.topics_lock:
            names = await zk_client.topic_names(watch=True)
            fresh, states = await zk_client.read_topics_with_states(name for name in names if name not in known)
            still_there = {name: known[name] for name in names if name in known}
            unreadable = set(names) - still_there.keys() - fresh.keys()
            await self.perform(self.controller.topics_changed(still_there | fresh, states, unreadable))

    async def _read_deletions(self) -> None:
        async with self.topics_lock:
            await self.perform(self.controller.deletions_wanted(await self._zk_client.topics_to_delete(watch=True)))

    async def _read_config_changes(self) -> None:
        zk_client = self._zk_client
        async with self.topics_lock:
            changes = await zk_client.read_config_changes(watch=True)
            configs = await zk_client.topic_configs.read_all(filter(None, changes.values()))
            await self.perform(self.controller.configs_changed(configs))
        await zk_client.drop_notifications(changes, self.lease.epoch_version)

    async def _read_isr_changes(self) -> None:
        zk_client = self._zk_client
        changes = await zk_client.read_isr_changes(watch=True)
        named = {tp for tps in changes.values() for tp in tps}
        topic_ids = self.controller.context.ids_of({tp.topic for tp in named})
        states, _ = await zk_client.read_states(named)
        await self.perform(self.controller.states_read(states, topic_ids))
        await zk_client.drop_notifications(changes, self.lease.epoch_version)

    async def _read_log_dir_failures(self) -> None:
        failures = await self._zk_client.read_log_dir_failures(watch=True)
        named = {broker_id for broker_id in failures.values() if broker_id is not None}
        await self.perform(self.controller.log_directory_failed(named))
        await self._zk_client.drop_notifications(failures, self.lease.epoch_version)

    def _on_event(self, event: StoreEvent) -> None:
        match event:
            case NodeChanged(path):
                is_broker = path.startswith(f"{znodes.BROKER_IDS}/")
                self._dirty.add(znodes.BROKER_IDS if is_broker else path)
            case SessionChanged(SessionState.EXPIRED):
                self.end("the session with ZooKeeper has ended")
            case SessionChanged(SessionState.CONNECTED):
                # The watches of the old connection are lost, and so are the changes of the meantime: read everything.
                self._dirty |= self._readers.keys()
            case _:
                return
        self._wake.set()

    # --- writing -------------------------------------------------------------------------------------

    async def _write(self, writes: Sequence[WriteState]) -> None:
        found = await self._zk_client.write_states(writes, self.lease.epoch_version)
        if not self._ended:
            await self.perform(self.controller.states_written(map(_outcome_of, writes, found)))
            self._condition.notify()

    async def _remove_topic(self, topic: str) -> None:
        more = True
        while more:
            # The lock is released between pieces, because watched paths are read under the same lock. The reaction to
            # a failed broker must not wait until a large topic is removed.
            async with self.topics_lock:
                more = await self._zk_client.remove_some(topic, self.lease.epoch_version)
                if not more:
                    removed = self.controller.context.topics.get(topic)
                    await self.perform(self.controller.topic_removed(topic))
                    for tp in removed.topic_partitions() if removed else ():
                        self._led.pop(tp, None)
        self._condition.notify()

    async def _clear_possibly_short(self, broker: BrokerRegistration) -> None:
        log.info("broker %d: no partition depends any more on records that its machine may have lost", broker.broker_id)
        await self._zk_client.clear_possibly_short(broker.broker_id, broker.epoch, self.lease.epoch_version)

    async def _complete_reassignment(self, topic: str) -> None:
        async with self.topics_lock:
            completed = self.controller.replica_deletion.completed_assignment(topic)
            if completed is not None and await self.change_assignment(completed):
                log.info("topic %r: a reassignment is complete", topic)
        self._condition.notify()

    async def _fence(self, broker: BrokerRegistration) -> bool:
        fenced = await self._zk_client.fence_broker(
            broker.broker_id, broker.epoch, self.lease.epoch_version, found_dead_at=broker.replication_endpoint
        )
        if fenced:
            # The brokers are read at once, because the watch of this removal fires only a little later.
            self._dirty.add(znodes.BROKER_IDS)
            self._wake.set()
        return fenced

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The outcome of a write is unknown, or ZooKeeper will always refuse it. The next term reads everything.
            if not isinstance(error, (StoreError, ControllerFenced, NotControllerError)):
                log.error("the controller failed", exc_info=error)
            self.end(repr(error))

    # --- ChannelOwner: callbacks of the channels -----------------------------------------------------

    @property
    def liveness_epoch(self) -> int:
        return self.controller.liveness.epoch

    def build(self, batch: Batch) -> Request:
        return batch.request(self.controller)

    def on_answer(self, broker: BrokerRegistration, batch: Batch, response: Response, asked: int) -> None:
        self.perform(self.while_registered(broker, self.controller.broker_answered(broker.broker_id, asked)))
        match batch, response:
            case StateBatch(entries), LeaderAndIsrResponse():
                codes = {TopicPartition(p.topic, p.partition): p.error_code for p in response.partitions}
                failed = {tp for tp, code in codes.items() if code}
                for tp in failed:
                    log.warning("broker %d: LeaderAndIsr failed for %s (error %d)", broker.broker_id, tp, codes[tp])
                for tp, message in entries.items():
                    if message.leader == broker.broker_id and tp not in failed:
                        self._led[tp] = (broker.broker_id, message.leader_epoch)
                offline = {tp for tp, code in codes.items() if code == StorageError.code}
                lacking = {tp for tp, code in codes.items() if code == IneligibleReplicaError.code}
                not_led = {tp for tp, code in codes.items() if code == NotLeaderOrFollowerError.code}
                over = {tp: message.leader_epoch for tp, message in entries.items() if tp in not_led}
                online = codes.keys() - failed
                answered = self.controller.replicas_answered(broker.broker_id, online, offline, lacking)
                self.perform(self.while_registered(broker, answered))
                ended = self.controller.leadership_ended(broker.broker_id, over)
                self.perform(self.while_registered(broker, ended))
            case StopBatch(stops), StopReplicaResponse():
                if any(p.error_code for p in response.partitions):
                    # A log that stays has the id of the deleted topic. If a topic of the same name is created, the
                    # broker sets the old log aside.
                    log.warning("broker %d could not delete all its replicas of deleted topics", broker.broker_id)
                deleted = [tp for tp, stop in stops.items() if stop.delete]
                stopped = self.controller.replicas_stopped(broker.broker_id, deleted)
                self.perform(self.while_registered(broker, stopped))
            case QuestionBatch(), LogEndsResponse():
                ends = {
                    TopicPartition(p.topic, p.partition): LogEnd(
                        p.last_epoch,
                        p.log_end_offset,
                        bool(p.error_code),
                        tuple((each.epoch, each.start_offset) for each in p.epochs),
                    )
                    for p in response.partitions
                }
                log.info(
                    "broker %d reports %s: %s", broker.broker_id, count_of(len(ends), "log end"),
                    first_of([f"{tp}: {end}" for tp, end in ends.items()], MOST_NAMED),
                )  # fmt: skip
                reported = self.controller.log_ends_reported(broker.broker_id, ends, asked)
                self.perform(self.while_registered(broker, reported))
            case _:
                pass
        self._condition.notify()

    def on_gone(self, broker: BrokerRegistration) -> None:
        # This broker's own listener may be closed while it stops. Its session with ZooKeeper decides then.
        if broker.broker_id != self.lease.controller_id and not self._ended:
            self._detector.suspect(broker)

    def on_replaced(self, broker: BrokerRegistration) -> None:
        if not self._ended:
            self._spawn(self._detector.fence_now(broker))

    def on_fenced(self) -> None:
        """Have `run` read `/controller` again, because a broker has refused this controller's epoch as too old."""
        self._dirty.add(znodes.CONTROLLER)
        self._wake.set()

    def on_failed(self, error: BaseException) -> None:
        log.error("the controller failed", exc_info=error)
        self.end(repr(error))


def _outcome_of(write: WriteState, found: int | StateConflict) -> WriteOutcome:
    if isinstance(found, StateConflict):
        log.debug("%s: expected version %d, found %s", write.tp, write.expected, found.actual)
        return WriteRefused(write.tp, found.actual)
    return Written(write.tp, found)
