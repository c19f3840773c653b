"""One reign: the time between winning the controller's seat and losing it.

The pure `Controller` decides; this shell reads what watches announce, performs the effects, and ends at the first
sign that somebody else reigns. Watches only mark what has to be read again, so any number of them costs one read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from cluster.controller.controller import Controller
from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CloseChannel,
    CompleteReassignment,
    Effect,
    OpenChannel,
    RemoveTopic,
    SendLeaderAndIsr,
    SendMetadata,
    SendStopReplica,
    WriteOutcome,
    WriteRefused,
    WriteState,
    Written,
)
from cluster.controller.preferred_leaders import Rebalancing
from cluster.controller.unclean_recovery import LogEnd
from cluster.state import BrokerRegistration, ControllerLease, TopicAssignment
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.store import NodeChanged, SessionChanged, SessionState, StoreError, StoreEvent
from cluster.zookeeper.write_conflicts import AssignmentConflict, ControllerFenced, StateConflict
from node.controller.controller_channel import ControllerChannel, ControllerMessage, OpenConnection
from node.controller.failure_detector import FailureDetector, FenceLimiter, ProbeOutcome, probe
from node.controller.outbox import Batch, QuestionBatch, StateBatch, StopBatch
from node.runtime.condition import Condition
from tidelog.clock import Clock
from tidelog.errors import IneligibleReplicaError, NotControllerError, NotLeaderOrFollowerError, StorageError
from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.control_messages import LeaderAndIsrResponse, LogEndsResponse, StopReplicaResponse
from tidelog.protocol.messages import Request, Response

log = logging.getLogger(__name__)

#: How long an answer waits, at most, until every broker tells its clients the same.
_PROPAGATION_MS = 500
#: So many writes have one outcome: the brokers hear of them while the next are under way.
_WRITES = 250
#: How often it is looked whether those who may have lost records have been waited for long enough.
_DOUBT_CHECK_S = 1.0
#: How often topics that could not be read are looked at again: nothing else tells that they have been mended.
_UNREAD_CHECK_S = 10.0


class ControllerTerm:
    """Ends when `run` returns; then the seat is to be looked at again.

    controller   the pure state, to be read by others and changed only in here
    refused      whose door was found refusing when the seat was won: the first to be fenced
    topics_lock  held while the set of topics is read or changed, so that no late reading undoes a change
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
        rebalancing: Rebalancing | None = None,
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
        #: Made whenever a state was written, a broker has answered, or a topic is gone.
        self._progress = Condition()
        self._zk_client = zk_client
        self._clock = clock
        self._detector = FailureDetector(clock, limiter, self._fence, probe)
        self._open_connection = open_connection
        self._rebalancing = rebalancing
        self._channels: dict[int, ControllerChannel] = {}
        self._led: dict[TopicPartition, tuple[int, int]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        # What is watched, in the order in which it is read anew.
        self._readers: dict[str, Callable[[], Awaitable[None]]] = {
            znodes.CONTROLLER: self._read_seat,
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

    @property
    def ended(self) -> bool:
        """Whether this reign is over; nothing it says counts any more."""
        return bool(self._ended)

    async def run(self) -> str:
        """Reigns; returns why it ended."""
        unsubscribe = self._zk_client.store.subscribe(self._on_event)
        log.info("broker %d is the controller, epoch %d", self.lease.controller_id, self.lease.epoch)
        try:
            await self._begin()
            self._spawn(self._watch_doubts())
            self._spawn(self._watch_unread())
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
        log.info("broker %d no longer is the controller: %s", self.lease.controller_id, self._ended)
        return self._ended

    def end(self, reason: str) -> None:
        """Somebody else reigns, or may. Whoever waits for something of this reign is woken."""
        self._ended = self._ended or reason
        self._wake.set()
        self._progress.made()

    # --- commands, for the shell ---------------------------------------------------------------------

    def perform(self, effects: Sequence[Effect]) -> None:
        """Starts everything at once; the writes are pipelined in their order, and each `_WRITES` of them one event."""
        if self._ended:
            return
        writes: list[WriteState] = []
        for effect in effects:
            match effect:
                case WriteState():
                    writes.append(effect)
                case OpenChannel(broker):
                    self._channels[broker.broker_id] = ControllerChannel(broker, self._open_connection, self)
                case CloseChannel(broker_id):
                    if channel := self._channels.pop(broker_id, None):
                        channel.close()
                case SendLeaderAndIsr(broker_id) | SendStopReplica(broker_id) | AskLogEnds(broker_id):
                    self._tell(broker_id, effect)
                case SendMetadata(broker_ids):
                    for broker_id in broker_ids:
                        self._tell(broker_id, effect)
                case RemoveTopic(topic):
                    self._spawn(self._remove_topic(topic))
                case ClearPossiblyShort(broker):
                    self._spawn(self._absolve(broker))
                case CompleteReassignment(topic):
                    self._spawn(self._settle_assignment(topic))
        for first in range(0, len(writes), _WRITES):
            self._spawn(self._write(writes[first : first + _WRITES]))

    def _tell(self, broker_id: int, word: ControllerMessage) -> None:
        if channel := self._channels.get(broker_id):
            channel.tell(word)

    async def create_topic(self, assignment: TopicAssignment) -> bool:
        """Writes the topic and begins to elect its leaders. False: it exists. The caller holds `topics_lock`."""
        if not await self._zk_client.create_topic(assignment, self.lease.epoch_version):
            return False
        self.perform(self.controller.topics_created([replace(assignment, version=0)]))
        return True

    async def change_assignment(self, assignment: TopicAssignment) -> bool:
        """Writes a known topic's replicas and begins to make it so. False: somebody else wrote; what stands is taken.

        The caller holds `topics_lock`, and made the assignment from the controller's own. Where nobody knows what
        became of the write, this reign ends: it may stand there, or come to stand there later; the next one reads all.
        So it does where nothing stands there that can be read: NotControllerError.
        """
        try:
            written = await self._zk_client.write_assignment(assignment, self.lease.epoch_version)
        except AssignmentConflict as conflict:
            log.warning("%s", conflict)
            if conflict.actual is None:
                self.end(str(conflict))
                raise NotControllerError(
                    f"{assignment.topic} is not in ZooKeeper as it was: all is read anew"
                ) from None
            self.perform(self.controller.assignment_written(conflict.actual))
            return False
        except StoreError as error:
            self.end(repr(error))
            raise
        self.perform(self.controller.assignment_written(written))
        return True

    async def delete_topic(self, topic: str) -> None:
        """Writes the wish down and begins to fulfil it. The caller holds `topics_lock`."""
        await self._zk_client.request_deletion(topic, self.lease.epoch_version)
        self.perform(self.controller.deletions_wanted([topic]))

    def is_led(self, tp: TopicPartition) -> bool:
        """Whether the partition has a leader that has said that it knows."""
        known = self.controller.states.get(tp)
        if known is None or known.state.leader == NO_LEADER:
            return False
        broker_id, leader_epoch = self._led.get(tp, (NO_LEADER, -1))
        return broker_id == known.state.leader and leader_epoch == known.state.leader_epoch

    async def until(self, condition: Callable[[], bool], deadline_ms: int) -> None:
        """Returns when the condition holds, the time is over, or this reign is."""
        left_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        await self._progress.until(lambda: self.ended or condition(), left_ms)

    async def until_led(self, tps: Collection[TopicPartition], deadline_ms: int) -> None:
        """Until every one of these is led, as `until`."""
        await self.until(lambda: all(map(self.is_led, tps)), deadline_ms)

    async def until_told(self, deadline_ms: int) -> None:
        """Until every broker tells its clients the same; what is done is done, so nobody waits for long."""
        await self.until(self._all_told, min(deadline_ms, self._clock.monotonic_ms() + _PROPAGATION_MS))

    def _all_told(self) -> bool:
        return all(channel.outbox.empty for channel in self._channels.values())

    async def _rebalance(self, rebalancing: Rebalancing) -> None:
        while True:
            await asyncio.sleep(rebalancing.interval_s)
            effects = self.controller.rebalance_wanted(rebalancing.percentage)
            if effects:
                log.info("%d partitions go back to their preferred leaders", len(effects))
                self.perform(effects)

    async def _watch_doubts(self) -> None:
        while True:
            await asyncio.sleep(_DOUBT_CHECK_S)
            self.perform(self.controller.time_passed(self._clock.monotonic_ms()))

    async def _watch_unread(self) -> None:
        while True:
            await asyncio.sleep(_UNREAD_CHECK_S)
            if self.controller.unreadable_topics:
                self._dirty.add(znodes.BROKER_TOPICS)
                self._wake.set()

    # --- reading -------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        zk_client = self._zk_client
        if (await zk_client.read_controller(watch=True)).owner != self.lease.owner:
            raise ControllerFenced("the seat was lost before the reign began")
        if self._refused is not None:
            await self._detector.fence_now(self._refused)  # before it is read, so that one look deals with its death
        async with self.topics_lock:
            brokers = await zk_client.read_brokers(watch=True)
            names = await zk_client.topic_names(watch=True)
            topics, states = await zk_client.read_topics_with_states(names)
            self.controller.unreadable_topics = set(names) - topics.keys()
            deletions = await zk_client.topics_to_delete(watch=True)
            self.perform(self.controller.begin(brokers, topics, states, deletions))
        await self._read_config_changes()
        await self._read_isr_changes()
        await self._read_log_dir_failures()

    async def _read_seat(self) -> None:
        lease = await self._zk_client.read_controller(watch=True)
        if lease.owner != self.lease.owner or lease.epoch_version != self.lease.epoch_version:
            self.end(f"broker {lease.controller_id} holds the seat (epoch {lease.epoch})")

    async def _read_brokers(self) -> None:
        self.perform(self.controller.brokers_changed(await self._zk_client.read_brokers(watch=True)))
        self._progress.made()

    async def _read_topics(self) -> None:
        zk_client, known = self._zk_client, self.controller.topics
        async with self.topics_lock:
            names = await zk_client.topic_names(watch=True)
            fresh, states = await zk_client.read_topics_with_states(name for name in names if name not in known)
            still_there = {name: known[name] for name in names if name in known}
            self.controller.unreadable_topics = set(names) - still_there.keys() - fresh.keys()
            self.perform(self.controller.topics_changed(still_there | fresh, states))

    async def _read_deletions(self) -> None:
        async with self.topics_lock:
            self.perform(self.controller.deletions_wanted(await self._zk_client.topics_to_delete(watch=True)))

    async def _read_config_changes(self) -> None:
        zk_client = self._zk_client
        async with self.topics_lock:
            changes = await zk_client.read_config_changes(watch=True)
            configs = await zk_client.topic_configs.read_all(filter(None, changes.values()))
            self.perform(self.controller.configs_changed(configs))
        await zk_client.drop_notifications(changes, self.lease.epoch_version)

    async def _read_isr_changes(self) -> None:
        zk_client = self._zk_client
        changes = await zk_client.read_isr_changes(watch=True)
        named = {tp for tps in changes.values() for tp in tps}
        topic_ids = self.controller.topic_ids
        states, _ = await zk_client.read_states(named)
        self.perform(self.controller.states_read(states, topic_ids))
        await zk_client.drop_notifications(changes, self.lease.epoch_version)

    async def _read_log_dir_failures(self) -> None:
        failures = await self._zk_client.read_log_dir_failures(watch=True)
        named = {broker_id for broker_id in failures.values() if broker_id is not None}
        self.perform(self.controller.log_directory_failed(named))
        await self._zk_client.drop_notifications(failures, self.lease.epoch_version)

    def _on_event(self, event: StoreEvent) -> None:
        match event:
            case NodeChanged(path):
                self._dirty.add(path)
            case SessionChanged(SessionState.EXPIRED):
                self.end("the session with ZooKeeper has ended")
            case SessionChanged(SessionState.CONNECTED):
                # The watches of the old connection are gone, and with them whatever happened meanwhile.
                self._dirty |= self._readers.keys()
            case _:
                return
        self._wake.set()

    # --- writing -------------------------------------------------------------------------------------

    async def _write(self, writes: Sequence[WriteState]) -> None:
        outcomes = await asyncio.gather(*map(self._write_one, writes))
        if not self._ended:
            self.perform(self.controller.states_written(outcomes))
            self._progress.made()

    async def _write_one(self, write: WriteState) -> WriteOutcome:
        try:
            version = await self._zk_client.write_state(write.tp, write.state, write.expected, self.lease.epoch_version)
        except StateConflict as conflict:
            log.debug("%s: expected version %d, found %s", write.tp, write.expected, conflict.actual)
            return WriteRefused(write.tp, conflict.actual)
        return Written(write.tp, version)

    async def _remove_topic(self, topic: str) -> None:
        more = True
        while more:
            # In pieces: what is watched is read under the same lock, and a broker that dies meanwhile is not to wait.
            async with self.topics_lock:
                more = await self._zk_client.remove_some(topic, self.lease.epoch_version)
                if not more:
                    self.perform(self.controller.topic_removed(topic))
                    self._led = {tp: led for tp, led in self._led.items() if tp.topic != topic}
        self._progress.made()

    async def _absolve(self, broker: BrokerRegistration) -> None:
        log.info("broker %d may be counted upon again, whatever its machine has lost", broker.broker_id)
        await self._zk_client.clear_possibly_short(broker.broker_id, broker.epoch, self.lease.epoch_version)

    async def _settle_assignment(self, topic: str) -> None:
        async with self.topics_lock:
            settled = self.controller.replica_deletion.completed_assignment(topic)
            if settled is not None and await self.change_assignment(settled):
                log.info("%s: a reassignment has come to its end", topic)
        self._progress.made()

    async def _fence(self, broker: BrokerRegistration) -> bool:
        fenced = await self._zk_client.fence_broker(broker.broker_id, broker.epoch, self.lease.epoch_version)
        if fenced:
            # The watch says the same a little later; nobody should wait for it.
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
            # What became of a write is not known, or it was refused for ever: whoever comes next reads everything.
            if not isinstance(error, (StoreError, ControllerFenced, NotControllerError)):
                log.error("the controller failed", exc_info=error)
            self.end(repr(error))

    # --- what channels tell --------------------------------------------------------------------------

    @property
    def moment(self) -> int:
        return self.controller.liveness.epoch

    def build(self, batch: Batch) -> Request:
        return batch.request(self.controller)

    def on_answer(self, broker: BrokerRegistration, batch: Batch, response: Response, asked: int) -> None:
        self.perform(self.controller.broker_answered(broker.broker_id, asked))
        match batch, response:
            case StateBatch(entries), LeaderAndIsrResponse():
                codes = {TopicPartition(p.topic, p.partition): p.error_code for p in response.partitions}
                failed = {tp for tp, code in codes.items() if code}
                for tp in failed:
                    log.warning("broker %d could not take its part in %s (code %d)", broker.broker_id, tp, codes[tp])
                for tp, message in entries.items():
                    if message.leader == broker.broker_id and tp not in failed:
                        self._led[tp] = (broker.broker_id, message.leader_epoch)
                offline = {tp for tp, code in codes.items() if code == StorageError.code}
                lacking = {tp for tp, code in codes.items() if code == IneligibleReplicaError.code}
                not_led = {tp for tp, code in codes.items() if code == NotLeaderOrFollowerError.code}
                over = {tp: message.leader_epoch for tp, message in entries.items() if tp in not_led}
                online = codes.keys() - failed
                self.perform(self.controller.replicas_answered(broker.broker_id, online, offline, lacking))
                self.perform(self.controller.leadership_ended(broker.broker_id, over))
            case StopBatch(stops), StopReplicaResponse():
                if any(p.error_code for p in response.partitions):
                    # Its log has the id of a topic that is gone: it is set aside should the name come back.
                    log.warning("broker %d could not delete all its replicas", broker.broker_id)
                deleted = [tp for tp, stop in stops.items() if stop.delete]
                self.perform(self.controller.replicas_stopped(broker.broker_id, deleted))
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
                log.info("broker %d tells how far its logs reach: %s", broker.broker_id, ends)
                self.perform(self.controller.log_ends_reported(broker.broker_id, ends, asked))
            case _:
                pass
        self._progress.made()

    def on_gone(self, broker: BrokerRegistration) -> None:
        # Our own door may be closed while we stop; our session says the rest.
        if broker.broker_id != self.lease.controller_id and not self._ended:
            self._detector.suspect(broker)

    def on_replaced(self, broker: BrokerRegistration) -> None:
        if not self._ended:
            self._spawn(self._detector.fence_now(broker))

    def on_fenced(self) -> None:
        """A broker knows a later controller. The seat says whether that is so."""
        self._dirty.add(znodes.CONTROLLER)
        self._wake.set()

    def on_failed(self, error: BaseException) -> None:
        log.error("the controller failed", exc_info=error)
        self.end(repr(error))
