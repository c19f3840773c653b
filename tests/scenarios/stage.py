"""A cluster with one partition, made of the production rules: Controller, Partition and Following, without any I/O.

Every event is a method. `take_events` returns the lines that tell what happened since the last call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from cluster.controller.controller import Controller
from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CompleteReassignment,
    Effect,
    SendLeaderAndIsr,
    SendMetadata,
    SendStopReplica,
    WriteRefused,
    Written,
)
from cluster.controller.unclean_recovery import LogEnd
from cluster.replication.follower import UNKNOWN_EPOCH, Following, Phase
from cluster.replication.partition import Facts, IsrProposal, Partition, Role
from cluster.state import NO_VERSION, BrokerRegistration, PartitionState, TopicAssignment, VersionedState, WriteState
from tidelog.errors import OffsetOutOfRangeError
from tidelog.model import NO_LEADER, Endpoint, TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage
from tidelog.protocol.listeners import BROKERS, CLIENTS

TP = TopicPartition("t", 0)
MAX_LAG_MS = 10_000
_LISTENERS = {CLIENTS: Endpoint("h", 1), BROKERS: Endpoint("h", 2)}
_CONTROLLER_ID = 0


class RecordLog:
    """A log as a list of (leader epoch, value), with the start offset of each epoch."""

    log_start_offset = 0

    def __init__(self) -> None:
        self.records: list[tuple[int, str]] = []
        self.epochs: list[tuple[int, int]] = []

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs[-1][0] if self.epochs else None

    def begin_epoch(self, epoch: int) -> None:
        if self.latest_epoch is None or self.latest_epoch < epoch:
            self.epochs = [(known, start) for known, start in self.epochs if start < self.log_end_offset]
            self.epochs.append((epoch, self.log_end_offset))

    def append(self, epoch: int, value: str) -> None:
        self.begin_epoch(epoch)
        self.records.append((epoch, value))

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        if self.latest_epoch is None or epoch > self.latest_epoch:
            return None
        older = [known for known, _ in self.epochs if known <= epoch]
        later = [start for known, start in self.epochs if known > epoch]
        return (older[-1] if older else UNKNOWN_EPOCH), (later[0] if later else self.log_end_offset)

    def truncate_to(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < self.log_end_offset]


@dataclass(slots=True)
class Broker:
    """One broker: its log outlives its process.

    unacknowledged   values of a producer with acks=all, each with the required offset and the leader epoch
    """

    broker_id: int
    partition: Partition
    log: RecordLog = field(default_factory=RecordLog)
    following: Following | None = None
    is_alive: bool = True
    is_cut_off: bool = False
    unacknowledged: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def is_reachable(self) -> bool:
        return self.is_alive and not self.is_cut_off


class Stage:
    """The brokers, ZooKeeper and the controller of one partition."""

    def __init__(self, replicas: tuple[int, ...], brokers: int, min_isr: int, *, unclean: bool) -> None:
        self.now_ms = 0
        self._events: list[str] = []
        self._min_isr = min_isr
        self._next_epoch = 1
        self._registered: dict[int, BrokerRegistration] = {}
        self.brokers = {number: self._new_broker(number) for number in range(1, brokers + 1)}
        self._state: VersionedState | None = None
        self._effects: deque[Effect] = deque()
        self._undelivered: dict[int, PartitionStateMessage] = {}
        self._held: list[tuple[Broker, IsrProposal]] | None = None
        self._controller = Controller(
            _CONTROLLER_ID, 1, unclean_by_default=unclean, min_insync_by_default=min_isr, recovery_timeout_ms=60_000
        )
        for number in self.brokers:
            self._register(number)
        self._play(self._controller.begin(self._registered, {}, {}))
        self._events.clear()
        assignment = TopicAssignment(TP.topic, "id", {TP.partition: replicas}, version=0)
        self._assignment = assignment
        self._play(self._controller.topics_created([assignment]))

    def take_events(self) -> list[str]:
        events, self._events = self._events, []
        return events

    # --- clients --------------------------------------------------------------------------------------------

    def append(self, value: str, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        partition = broker.partition
        if not broker.is_alive:
            self._report(f"append {value}: broker {broker_id} refuses connections")
        elif not partition.is_leader:
            self._report(f"append {value}: NOT_LEADER_OR_FOLLOWER from broker {broker_id}")
        elif not partition.is_at_least_min_isr:
            self._report(f"append {value}: NOT_ENOUGH_REPLICAS from broker {broker_id}")
        else:
            broker.log.append(partition.leader_epoch, value)
            broker.unacknowledged.append((value, broker.log.log_end_offset, partition.leader_epoch))
            self._report(f"append {value}: offset {broker.log.log_end_offset - 1} on broker {broker_id}")
            partition.appended(broker.log.log_end_offset, self.now_ms)
            self._answer_producers()

    def leader(self) -> int:
        """Return the leader in ZooKeeper's state."""
        assert self._state is not None
        return self._state.state.leader

    # --- replication ----------------------------------------------------------------------------------------

    def fetch(self, broker_id: int, *, reports_all: bool = False) -> bool:
        """Have a follower ask its leader once. Return whether its log, its high watermark or its phase changed.

        With `reports_all` an event tells even that nothing is new.
        """
        broker = self.brokers[broker_id]
        following, partition = broker.following, broker.partition
        if not broker.is_alive or partition.role is not Role.FOLLOWER or following is None:
            return False
        leader = self.brokers.get(partition.leader)
        if leader is None or not leader.is_reachable or broker.is_cut_off:
            self._report(f"fetch {broker_id}: broker {partition.leader} is not reachable")
            return False
        theirs = leader.partition
        if not theirs.is_leader or theirs.leader_epoch != partition.leader_epoch:
            reason = "FENCED_LEADER_EPOCH" if theirs.leader_epoch > partition.leader_epoch else "UNKNOWN_LEADER_EPOCH"
            self._report(f"fetch {broker_id}: {reason} from broker {leader.broker_id}")
            return False
        if following.phase is Phase.ALIGNING:
            return self._align(broker, leader, following)
        changed = self._fetch(broker, leader, following)
        if reports_all and not self._events:
            self._report(f"fetch {broker_id}: nothing new from offset {broker.log.log_end_offset}")
        return changed

    def _align(self, broker: Broker, leader: Broker, following: Following) -> bool:
        asked = following.asked_epoch
        answered = leader.log.end_offset_for_epoch(asked) or (UNKNOWN_EPOCH, -1)
        if asked == leader.partition.leader_epoch:
            answered = (asked, leader.log.log_end_offset)
        decision = following.epoch_answered(broker.log, *answered, self.now_ms)
        if decision is None:
            return False
        before = broker.log.log_end_offset
        broker.log.truncate_to(decision.offset)
        broker.partition.truncated(broker.log.log_start_offset, broker.log.log_end_offset)
        following.truncated(decision, broker.log)
        result = (
            f"truncates its log from {before} to {decision.offset}" if decision.offset < before else "keeps its log"
        )
        epoch, end = answered
        self._report(f"fetch {broker.broker_id}: epoch {epoch} ends at {end} on broker {leader.broker_id}, {result}")
        return True

    def _fetch(self, broker: Broker, leader: Broker, following: Following) -> bool:
        offset, end = broker.log.log_end_offset, leader.log.log_end_offset
        if offset > end:
            following.failed(OffsetOutOfRangeError(), leader.log.log_start_offset, broker.log, self.now_ms)
            self._report(f"fetch {broker.broker_id}: OFFSET_OUT_OF_RANGE, aligns again")
            return True
        epoch = self._registered[broker.broker_id].epoch
        facts = leader.partition.follower_fetched(broker.broker_id, offset, epoch, end, self.now_ms, 0)
        self._act(leader, facts)
        following.fetched()
        for record_epoch, value in leader.log.records[offset:]:
            broker.log.append(record_epoch, value)
        if end > offset:
            values = " ".join(value for _, value in leader.log.records[offset:])
            self._report(f"fetch {broker.broker_id}: {values} from offset {offset}")
        rose = broker.partition.leader_reported(leader.partition.high_watermark, broker.log.log_end_offset)
        return end > offset or rose or facts.high_watermark_advanced

    def late_fetch(self, broker_id: int, registration: int, offset: int) -> None:
        """A fetch of an earlier process of the broker reaches the leader."""
        leader = self.brokers[self.leader()]
        end = leader.log.log_end_offset
        facts = leader.partition.follower_fetched(broker_id, offset, registration, end, self.now_ms, 0)
        self._report(f"fetch of broker {broker_id}'s registration {registration} from offset {offset} arrives")
        self._act(leader, facts)

    def replicate(self) -> None:
        """Have all followers fetch until nothing changes any more."""
        for _ in range(100):
            if not any([self.fetch(number) for number, each in self.brokers.items() if self._can_fetch(each)]):
                return
        raise AssertionError("replication does not come to rest")

    def _can_fetch(self, broker: Broker) -> bool:
        leader = self.brokers.get(broker.partition.leader)
        return broker.is_reachable and leader is not None and leader.is_reachable

    def wait(self, duration_ms: int) -> None:
        """Let time pass, while live followers go on fetching and leaders check their ISR."""
        until_ms = self.now_ms + duration_ms
        while self.now_ms < until_ms:
            self.now_ms = min(until_ms, self.now_ms + MAX_LAG_MS // 2)
            self.replicate()
            for broker in self.brokers.values():
                if broker.is_alive:
                    self._act(broker, broker.partition.tick(broker.log.log_end_offset, self.now_ms))
            self._play(self._controller.time_passed(self.now_ms))

    # --- brokers --------------------------------------------------------------------------------------------

    def kill(self, broker_id: int) -> None:
        """The process dies, and the controller notices."""
        self._report(f"broker {broker_id} dies")
        self._stop(broker_id)
        self.expire(broker_id)

    def kill_all(self) -> None:
        """All processes die at once, and the controller notices one after the other."""
        self._report("all brokers die")
        for number in self.brokers:
            self._stop(number)
        for number in self.brokers:
            self._registered.pop(number)
            self._registrations_changed()

    def _stop(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        broker.is_alive = False
        broker.partition.stop()
        broker.unacknowledged.clear()

    def expire(self, broker_id: int) -> None:
        """The broker's session ends, whether its process is alive or not."""
        if self.brokers[broker_id].is_alive:
            self._report(f"the session of broker {broker_id} ends")
        self._registered.pop(broker_id, None)
        self._registrations_changed()

    def restart(self, broker_id: int, lost: int = 0) -> None:
        """The process starts again. With `lost` its machine went down, and so many records at the end are gone."""
        old = self.brokers[broker_id]
        broker = self.brokers[broker_id] = self._new_broker(broker_id)
        broker.log = old.log
        broker.log.truncate_to(broker.log.log_end_offset - lost)
        broker.partition.high_watermark = min(old.partition.high_watermark, broker.log.log_end_offset)
        self._undelivered.pop(broker_id, None)
        self._register(broker_id, possibly_short=lost > 0)
        self._registrations_changed()

    def cut_off(self, broker_id: int) -> None:
        """The broker's network fails: no broker reaches it, and it reaches none."""
        self._report(f"broker {broker_id} is cut off")
        self.brokers[broker_id].is_cut_off = True

    def heal(self, broker_id: int) -> None:
        """The network works again, and the broker gets the last message of the controller."""
        self._report(f"broker {broker_id} is reachable again")
        self.brokers[broker_id].is_cut_off = False
        if broker_id not in self._registered:
            self._register(broker_id)
            self._registrations_changed()
        elif message := self._undelivered.pop(broker_id, None):
            self._deliver(broker_id, message)

    # --- administration -------------------------------------------------------------------------------------

    def elect(self, *, unclean: bool) -> None:
        self._play(self._controller.elections_wanted([TP], unclean=unclean))

    def reassign(self, target: tuple[int, ...]) -> None:
        now = self._assignment.assigned(TP.partition)
        self._write_assignment(self._assignment.reassigned({TP.partition: now.toward(target)}))

    def hold_isr_writes(self) -> None:
        """ZooKeeper does not answer the ISR changes of leaders until `answer_isr_writes`."""
        self._report("ZooKeeper delays ISR changes")
        self._held = []

    def answer_isr_writes(self) -> None:
        self._report("ZooKeeper answers ISR changes")
        held, self._held = self._held or [], None
        for broker, proposal in held:
            self._write_isr(broker, proposal)

    # --- below ----------------------------------------------------------------------------------------------

    def _new_broker(self, number: int) -> Broker:
        partition = Partition(number, TP, max_lag_ms=MAX_LAG_MS)
        partition.min_insync_replicas = self._min_isr
        return Broker(number, partition)

    def _register(self, broker_id: int, *, possibly_short: bool = False) -> None:
        self._registered[broker_id] = BrokerRegistration(broker_id, _LISTENERS, self._next_epoch, possibly_short)
        mark = " and may lack records" if possibly_short else ""
        self._report(f"broker {broker_id} registers with epoch {self._next_epoch}{mark}")
        self._next_epoch += 1

    def _registrations_changed(self) -> None:
        self._play(self._controller.brokers_changed(dict(self._registered)))

    def _report(self, line: str) -> None:
        self._events.append(line)

    def _play(self, effects: Iterable[Effect]) -> None:
        """Carry out the controller's effects, and those that follow from the answers."""
        self._effects += effects
        while self._effects:
            self._perform(self._effects.popleft())
        live = {number: each.epoch for number, each in self._registered.items()}
        for broker in self.brokers.values():
            if broker.is_reachable:
                self._act(broker, broker.partition.brokers_changed(live, broker.log.log_end_offset, self.now_ms))
        self._answer_producers()

    def _perform(self, effect: Effect) -> None:
        controller = self._controller
        match effect:
            case WriteState(_, state, expected):
                self._write_state(state, expected)
            case SendLeaderAndIsr(broker_id, (message, *_)):
                if self.brokers[broker_id].is_reachable:
                    self._deliver(broker_id, message)
                else:
                    self._undelivered[broker_id] = message
            case SendStopReplica(broker_id, (part, *_)) if self.brokers[broker_id].is_reachable:
                broker = self.brokers[broker_id]
                broker.partition.stop()
                if part.delete:
                    self.brokers[broker_id] = self._new_broker(broker_id)
                    self._report(f"broker {broker_id} deletes its replica")
                    self._effects += controller.replicas_stopped(broker_id, [TP])
            case SendMetadata(broker_ids):
                moment = controller.liveness.epoch
                for broker_id in broker_ids:
                    if self.brokers[broker_id].is_reachable:
                        self._effects += controller.broker_answered(broker_id, moment)
            case AskLogEnds(broker_id) if self.brokers[broker_id].is_reachable:
                log = self.brokers[broker_id].log
                end = LogEnd(log.latest_epoch or 0, log.log_end_offset, epochs=tuple(log.epochs))
                self._report(
                    f"broker {broker_id} reports epoch {end.last_epoch} and log end offset {end.log_end_offset}"
                )
                self._effects += controller.log_ends_reported(broker_id, {TP: end}, controller.liveness.epoch)
            case ClearPossiblyShort(registration):
                broker_id = registration.broker_id
                self._registered[broker_id] = replace(self._registered[broker_id], possibly_short=False)
            case CompleteReassignment(topic):
                if (completed := controller.replica_deletion.completed_assignment(topic)) is not None:
                    self._report("reassignment is complete")
                    self._write_assignment(completed)
            case _:
                pass

    def _write_state(self, state: PartitionState, expected: int) -> None:
        actual = self._state
        if (NO_VERSION if actual is None else actual.partition_epoch) != expected:
            self._effects += self._controller.states_written([WriteRefused(TP, actual)])
            return
        self._state = VersionedState(state, expected + 1)
        leader = "no leader" if state.leader == NO_LEADER else f"leader {state.leader}"
        isr = ",".join(map(str, state.isr))
        self._report(f"controller writes {leader}, epoch {state.leader_epoch}, ISR {isr}")
        self._effects += self._controller.states_written([Written(TP, expected + 1)])

    def _write_assignment(self, wanted: TopicAssignment) -> None:
        self._assignment = replace(wanted, version=self._assignment.version + 1)
        self._play(self._controller.assignment_written(self._assignment))

    def _deliver(self, broker_id: int, message: PartitionStateMessage) -> None:
        broker = self.brokers[broker_id]
        partition = broker.partition
        state = PartitionState(message.leader, message.leader_epoch, message.isr, message.controller_epoch)
        versioned = VersionedState(state, message.partition_epoch)
        if not partition.is_stale(versioned):
            if message.leader == broker_id:
                live = {number: each.epoch for number, each in self._registered.items()}
                end = broker.log.log_end_offset
                if not partition.is_leader or message.leader_epoch > partition.leader_epoch:
                    broker.log.begin_epoch(message.leader_epoch)
                self._act(broker, partition.make_leader(versioned, message.replicas, live, end, self.now_ms))
            elif partition.make_follower(versioned, message.replicas):
                broker.following = Following(message.leader_epoch, broker.log)
        self._effects += self._controller.replicas_answered(broker_id, {TP}, ())

    def _act(self, broker: Broker, facts: Facts) -> None:
        if facts.proposal is not None:
            isr = ",".join(map(str, facts.proposal.state.isr))
            self._report(f"broker {broker.broker_id} proposes ISR {isr}")
            if self._held is None:
                self._write_isr(broker, facts.proposal)
            else:
                self._held.append((broker, facts.proposal))
        if facts.resigned:
            self._report(f"broker {broker.broker_id} stops leading")
        self._answer_producers()

    def _write_isr(self, broker: Broker, proposal: IsrProposal) -> None:
        partition, end = broker.partition, broker.log.log_end_offset
        actual = self._state
        assert actual is not None
        if actual.partition_epoch != proposal.partition_epoch:
            self._report(f"ZooKeeper refuses the ISR of broker {broker.broker_id}: the state has changed")
            self._act(broker, partition.isr_conflict(proposal, actual, end, self.now_ms))
            return
        self._state = VersionedState(proposal.state, actual.partition_epoch + 1)
        facts = partition.isr_accepted(proposal, actual.partition_epoch + 1, end, self.now_ms)
        self._act(broker, facts)
        self._play(self._controller.states_read({TP: self._state}, self._controller.context.ids_of({TP.topic})))

    def _answer_producers(self) -> None:
        for broker in self.brokers.values():
            partition, waiting = broker.partition, broker.unacknowledged
            for value, required, epoch in list(waiting):
                if not partition.is_leader or partition.leader_epoch != epoch:
                    self._report(f"{value} fails: broker {broker.broker_id} leads no longer in epoch {epoch}")
                elif partition.high_watermark >= required:
                    self._report(f"{value} is acknowledged")
                else:
                    continue
                waiting.remove((value, required, epoch))
