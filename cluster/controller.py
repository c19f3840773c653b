"""The controller: a pure state machine over brokers, topics and partition states.

Events are methods; each returns the effects that the shell performs. Its picture of a partition is a cache of the
state znode, and nothing is decided on it alone: a write stands on the version that was seen, and where that has
moved on (`WriteRefused`) the choice is made again from what was found.

At most one write of a partition is in flight. Whatever happens meanwhile is looked at when its outcome is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from cluster.election import initial_state, next_state, preferred_state, renewed_state
from cluster.state import NO_VERSION, BrokerRegistration, PartitionState, TopicAssignment, VersionedState
from tidelog.control_messages import BrokerInfo, ListenerAddress, PartitionStateMessage, StopReplicaPartition, TopicInfo
from tidelog.model import TopicPartition

UNCLEAN_ELECTION = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class WriteState:
    """Write a state under the controller's fence and on this version; answer with `Written` or `WriteRefused`."""

    tp: TopicPartition
    state: PartitionState
    expected: int


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """To one broker, until it answers."""

    broker_id: int
    partitions: tuple[PartitionStateMessage, ...]


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """To one broker, until it answers; then `replicas_stopped`."""

    broker_id: int
    partitions: tuple[StopReplicaPartition, ...]


@dataclass(frozen=True, slots=True)
class SendMetadata:
    """To these brokers, until they answer: the live brokers as of now, these partitions, these topics gone."""

    broker_ids: tuple[int, ...]
    partitions: tuple[PartitionStateMessage, ...] = ()
    deleted_topics: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """No live broker holds the topic any more: remove its znodes; answer with `topic_removed`."""

    topic: str


@dataclass(frozen=True, slots=True)
class OpenChannel:
    """A broker has come: talk to this registration, and to no earlier one of the same id."""

    broker: BrokerRegistration


@dataclass(frozen=True, slots=True)
class CloseChannel:
    """A broker is gone, and what it was still to be told with it."""

    broker_id: int


Effect = WriteState | SendLeaderAndIsr | SendStopReplica | SendMetadata | RemoveTopic | OpenChannel | CloseChannel


@dataclass(frozen=True, slots=True)
class Written:
    """The state stands, with this version."""

    tp: TopicPartition
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """The version had moved on; `actual` is what stands there (None: nothing)."""

    tp: TopicPartition
    actual: VersionedState | None


WriteOutcome = Written | WriteRefused


@dataclass(slots=True)
class _Deletion:
    """A topic on its way out, and the live replicas that have yet to say that they are rid of it."""

    waiting: set[tuple[int, TopicPartition]] = field(default_factory=set)
    removing: bool = False


class Controller:
    """One reign: `controller_id` under `epoch`. Thrown away when the seat is lost.

    brokers   live and admitted ones, by id
    leaving   those of them in a controlled shutdown
    offline   replicas below which the disk has failed, by broker
    topics    all assignments
    states    the last seen state of each partition that has one
    """

    def __init__(self, controller_id: int, epoch: int, *, unclean_by_default: bool = False) -> None:
        self.controller_id = controller_id
        self.epoch = epoch
        self.brokers: dict[int, BrokerRegistration] = {}
        self.leaving: set[int] = set()
        self.offline: dict[int, set[TopicPartition]] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[TopicPartition, VersionedState] = {}
        self._unclean = "true" if unclean_by_default else "false"
        self._hosted: dict[int, set[TopicPartition]] = {}
        self._in_flight: dict[TopicPartition, PartitionState] = {}
        self._arriving: dict[int, BrokerRegistration] = {}
        self._deletions: dict[str, _Deletion] = {}

    # --- events --------------------------------------------------------------------------------------

    def begin(
        self,
        brokers: Mapping[int, BrokerRegistration],
        topics: Mapping[str, TopicAssignment],
        states: Mapping[TopicPartition, VersionedState],
        deletions: Iterable[str] = (),
    ) -> list[Effect]:
        """The whole picture, read after the seat was won. Everybody is told everything."""
        self.brokers = dict(brokers)
        for assignment in topics.values():
            self._adopt(assignment)
        self.states = {tp: state for tp, state in states.items() if tp.topic in self.topics}
        effects: list[Effect] = [OpenChannel(broker) for _, broker in sorted(self.brokers.items())]
        effects += self.deletions_wanted(deletions)
        writes = self._reconsider(self._all_partitions()) + self._renew()
        told = {tp: state for tp, state in self.states.items() if tp not in self._in_flight and self._stays(tp)}
        return effects + self._tell(told) + writes

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> list[Effect]:
        """The registrations as they are now.

        A broker with another epoch has died and come back: its death is dealt with first, and only when every
        state that it had a part in is rewritten is it admitted again.
        """
        effects: list[Effect] = []
        known = self.brokers | self._arriving
        gone = {b for b in known if b not in brokers or brokers[b].epoch != known[b].epoch}
        for broker_id in sorted(gone):
            effects += self._bury(broker_id)
        self._arriving |= {b: broker for b, broker in brokers.items() if b not in known or b in gone}
        effects += self._reconsider(sorted(tp for broker_id in gone for tp in self._hosted.get(broker_id, ())))
        if gone and self.brokers:
            effects.append(SendMetadata(tuple(sorted(self.brokers))))
        return effects + self._admit() + self._deletions_done()

    def topics_changed(
        self, topics: Mapping[str, TopicAssignment], states: Mapping[TopicPartition, VersionedState]
    ) -> list[Effect]:
        """All topics as they are now, with the states of those that were unknown so far."""
        for topic in sorted(set(self.topics) - set(topics)):
            if topic not in self._deletions:
                self._forget(topic)
        fresh = [assignment for name, assignment in sorted(topics.items()) if name not in self.topics]
        return self.topics_created(fresh, states)

    def topics_created(
        self, assignments: Iterable[TopicAssignment], states: Mapping[TopicPartition, VersionedState] | None = None
    ) -> list[Effect]:
        """Topics whose assignment has been written."""
        partitions: list[TopicPartition] = []
        for assignment in assignments:
            if assignment.topic in self.topics:
                continue
            self._adopt(assignment)
            partitions += assignment.topic_partitions()
        found = {tp: (states or {})[tp] for tp in partitions if tp in (states or {})}
        self.states |= found
        return (self._tell(found) if found else []) + self._reconsider(partitions)

    def states_written(self, outcomes: Iterable[WriteOutcome]) -> list[Effect]:
        """What became of `WriteState`s."""
        changed: dict[TopicPartition, VersionedState] = {}
        again: list[TopicPartition] = []
        for outcome in outcomes:
            tp = outcome.tp
            state = self._in_flight.pop(tp, None)
            if state is None or tp.topic not in self.topics:
                continue
            if isinstance(outcome, Written):
                changed[tp] = VersionedState(state, outcome.partition_epoch)
            elif outcome.actual is not None:
                changed[tp] = outcome.actual
            else:
                # The state of a topic that exists has vanished. To invent epoch 0 again would fence nobody.
                self.states.pop(tp, None)
                continue
            again.append(tp)
        self.states |= changed
        told = {tp: state for tp, state in changed.items() if self._stays(tp)}
        effects = self._tell(told) if told else []
        return effects + self._reconsider(again) + self._admit() + self._deletions_done()

    def states_read(self, states: Mapping[TopicPartition, VersionedState]) -> list[Effect]:
        """States that leaders have changed, as a notification told us to read them."""
        newer = {
            tp: state
            for tp, state in states.items()
            if tp.topic in self.topics
            and tp not in self._in_flight
            and (tp not in self.states or state.partition_epoch > self.states[tp].partition_epoch)
        }
        self.states |= newer
        if not newer:
            return []
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)), self._messages(newer))]
        return effects + self._reconsider(newer)

    def configs_changed(self, configs: Mapping[str, Mapping[str, str]]) -> list[Effect]:
        """Topics' own settings as they are now. Everybody is told those that are news, and they hold at once."""
        fresh = [
            topic for topic in sorted(configs.keys() & self.topics) if configs[topic] != self.topics[topic].configs
        ]
        for topic in fresh:
            self.topics[topic] = replace(self.topics[topic], configs=dict(configs[topic]))
        tps = [tp for topic in fresh for tp in self.topics[topic].topic_partitions()]
        # One that is being written is told with its settings as soon as it is.
        told = {tp: self.states[tp] for tp in tps if tp in self.states and self._stays(tp)}
        if not told:
            return []
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)), self._messages(told))]
        return effects + self._reconsider(tps)

    def log_directory_failed(self, broker_ids: Iterable[int]) -> list[Effect]:
        """Brokers whose disk has failed: each is asked for all that it hosts, and answers which of it is offline."""
        effects: list[Effect] = []
        for broker_id in sorted(self.brokers.keys() & set(broker_ids)):
            hosted = self._hosted.get(broker_id, set())
            states = {tp: self.states[tp] for tp in hosted if tp in self.states and self._stays(tp)}
            effects += self._leader_and_isr(states, [broker_id])
        return effects

    def replicas_answered(
        self, broker_id: int, online: Collection[TopicPartition], offline: Collection[TopicPartition]
    ) -> list[Effect]:
        """A broker took its part in `online`; in `offline` it cannot, so there it neither leads nor is in sync."""
        known = self.offline.setdefault(broker_id, set())
        changed = (known & set(online)) | (set(offline) - known)
        known.difference_update(online)
        known.update(offline)
        return self._reconsider(sorted(changed))

    def shutdown_wanted(self, broker_id: int) -> list[Effect]:
        """A broker wants to leave: it gives up what others can lead, and its places in the ISRs."""
        if broker_id not in self.brokers:
            return []
        self.leaving.add(broker_id)
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)))]
        return effects + self._reconsider(sorted(self._hosted.get(broker_id, ())), evict_leaving=True)

    def preferred_wanted(self, tps: Iterable[TopicPartition]) -> list[Effect]:
        """Give these partitions back to their preferred leaders, where those are in sync."""
        effects: list[Effect] = []
        for tp in tps:
            known = self.states.get(tp)
            if known is not None and tp not in self._in_flight and self._stays(tp):
                staying = self._online(tp) - self.leaving
                effects += self._write(tp, preferred_state(known.state, self._replicas(tp), staying, self.epoch))
        return effects

    def deletions_wanted(self, topics: Iterable[str]) -> list[Effect]:
        """Topics to be deleted. Those that do not exist only lose the wish."""
        effects: list[Effect] = []
        everybody = tuple(sorted(self.brokers))
        for topic in topics:
            if topic in self._deletions:
                continue
            deletion = self._deletions[topic] = _Deletion()
            if topic not in self.topics:
                continue
            tps = self.topics[topic].topic_partitions()
            effects.append(SendMetadata(everybody, deleted_topics=(topic,)))
            for broker_id in everybody:
                mine = [tp for tp in tps if broker_id in self._replicas(tp)]
                deletion.waiting |= {(broker_id, tp) for tp in mine}
                effects += self._stop(broker_id, mine)
        return effects + self._deletions_done()

    def replicas_stopped(self, broker_id: int, tps: Iterable[TopicPartition]) -> list[Effect]:
        """A broker has deleted its replicas of these."""
        for tp in tps:
            if tp.topic in self._deletions:
                self._deletions[tp.topic].waiting.discard((broker_id, tp))
        return self._deletions_done()

    def topic_removed(self, topic: str) -> list[Effect]:
        """The topic's znodes are gone."""
        self._deletions.pop(topic, None)
        self._forget(topic)
        return []

    # --- what the shell asks -------------------------------------------------------------------------

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        """What a broker leads, as far as is known."""
        hosted = self._hosted.get(broker_id, ())
        return sorted(tp for tp in hosted if tp in self.states and self.states[tp].state.leader == broker_id)

    def busy_with(self, broker_id: int) -> bool:
        """Whether a write is in flight of a partition of this broker."""
        return any(tp in self._in_flight for tp in self._hosted.get(broker_id, ()))

    def live_brokers(self) -> tuple[BrokerInfo, ...]:
        """The live brokers in the messages' form."""
        return tuple(
            BrokerInfo(
                b.broker_id,
                b.epoch,
                tuple(ListenerAddress(name, at.host, at.port) for name, at in sorted(b.listeners.items())),
                id_ in self.leaving,
            )
            for id_, b in sorted(self.brokers.items())
        )

    def topic_infos(self, topics: Iterable[str]) -> tuple[TopicInfo, ...]:
        """Identity and settings of those topics that exist."""
        known = (self.topics[topic] for topic in sorted(set(topics)) if topic in self.topics)
        return tuple(TopicInfo(topic.topic, topic.topic_id, dict(topic.configs)) for topic in known)

    # --- inside --------------------------------------------------------------------------------------

    def _reconsider(self, tps: Iterable[TopicPartition], *, evict_leaving: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for tp in tps:
            if tp in self._in_flight or tp.topic not in self.topics or not self._stays(tp):
                continue
            known = self.states.get(tp)
            replicas = self._replicas(tp)
            if known is None:
                wanted = initial_state(replicas, self._online(tp) - self.leaving, self.epoch)
            else:
                wanted = next_state(
                    known.state,
                    replicas,
                    self._online(tp),
                    self.epoch,
                    leaving=self.leaving,
                    evict_leaving=evict_leaving,
                    unclean=self.topics[tp.topic].configs.get(UNCLEAN_ELECTION, self._unclean).lower() == "true",
                )
            effects += self._write(tp, wanted)
        return effects

    def _renew(self) -> list[Effect]:
        """Leaders that registered after their state was written: they came back while nobody reigned."""
        effects: list[Effect] = []
        for tp, known in sorted(self.states.items(), key=lambda item: item[0]):
            leader = self.brokers.get(known.state.leader)
            came_back = leader is not None and -1 < known.mzxid < leader.epoch
            if came_back and tp not in self._in_flight and self._stays(tp):
                effects += self._write(tp, renewed_state(known.state, self.epoch))
        return effects

    def _write(self, tp: TopicPartition, wanted: PartitionState | None) -> list[Effect]:
        if wanted is None:
            return []
        known = self.states.get(tp)
        self._in_flight[tp] = wanted
        return [WriteState(tp, wanted, NO_VERSION if known is None else known.partition_epoch)]

    def _bury(self, broker_id: int) -> list[Effect]:
        self._arriving.pop(broker_id, None)
        self.leaving.discard(broker_id)
        self.offline.pop(broker_id, None)
        for deletion in self._deletions.values():
            deletion.waiting = {entry for entry in deletion.waiting if entry[0] != broker_id}
        return [CloseChannel(broker_id)] if self.brokers.pop(broker_id, None) else []

    def _admit(self) -> list[Effect]:
        """Lets in the brokers whose past is dealt with: all they host, and all that clients may ask them for."""
        ready = [broker_id for broker_id in sorted(self._arriving) if not self.busy_with(broker_id)]
        if not ready:
            return []
        before = tuple(sorted(self.brokers))
        effects: list[Effect] = []
        for broker_id in ready:
            self.brokers[broker_id] = self._arriving.pop(broker_id)
            effects.append(OpenChannel(self.brokers[broker_id]))
        if before:
            effects.append(SendMetadata(before))
        everything = {tp: state for tp, state in self.states.items() if self._stays(tp)}
        effects += self._leader_and_isr(everything, ready)
        effects.append(SendMetadata(tuple(ready), self._messages(everything)))
        for topic, deletion in self._deletions.items():
            for broker_id in ready:
                mine = [tp for tp in self._hosted.get(broker_id, ()) if tp.topic == topic and not deletion.removing]
                deletion.waiting |= {(broker_id, tp) for tp in mine}
                effects += self._stop(broker_id, sorted(mine))
        return effects + self._reconsider(sorted(tp for broker_id in ready for tp in self._hosted.get(broker_id, ())))

    def _tell(self, states: Mapping[TopicPartition, VersionedState]) -> list[Effect]:
        everybody = tuple(sorted(self.brokers))
        if not everybody:
            return []
        return [*self._leader_and_isr(states, everybody), SendMetadata(everybody, self._messages(states))]

    def _leader_and_isr(
        self, states: Mapping[TopicPartition, VersionedState], broker_ids: Iterable[int]
    ) -> list[Effect]:
        effects: list[Effect] = []
        for broker_id in broker_ids:
            hosted = self._hosted.get(broker_id, set())
            mine = {tp: state for tp, state in states.items() if tp in hosted}
            if mine:
                effects.append(SendLeaderAndIsr(broker_id, self._messages(mine)))
        return effects

    def _messages(self, states: Mapping[TopicPartition, VersionedState]) -> tuple[PartitionStateMessage, ...]:
        return tuple(self._message(tp, known) for tp, known in sorted(states.items()))

    def _message(self, tp: TopicPartition, known: VersionedState) -> PartitionStateMessage:
        state = known.state
        return PartitionStateMessage(
            topic=tp.topic,
            partition=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=known.partition_epoch,
            replicas=self._replicas(tp),
        )

    def _stop(self, broker_id: int, tps: list[TopicPartition]) -> list[Effect]:
        partitions = tuple(
            StopReplicaPartition(tp.topic, tp.partition, self.states[tp].state.leader_epoch, delete=True)
            if tp in self.states
            else StopReplicaPartition(tp.topic, tp.partition, 0, delete=True)
            for tp in tps
        )
        return [SendStopReplica(broker_id, partitions)] if partitions else []

    def _deletions_done(self) -> list[Effect]:
        """A topic's znodes may go when no live replica is left and no write of it is on its way."""
        effects: list[Effect] = []
        for topic, deletion in self._deletions.items():
            writing = any(tp.topic == topic for tp in self._in_flight)
            if not deletion.waiting and not deletion.removing and not writing:
                deletion.removing = True
                effects.append(RemoveTopic(topic))
        return effects

    def _adopt(self, assignment: TopicAssignment) -> None:
        self.topics[assignment.topic] = assignment
        for partition, replicas in assignment.partitions.items():
            for broker_id in replicas:
                self._hosted.setdefault(broker_id, set()).add(TopicPartition(assignment.topic, partition))

    def _forget(self, topic: str) -> None:
        assignment = self.topics.pop(topic, None)
        for tp in assignment.topic_partitions() if assignment else ():
            self.states.pop(tp, None)
            self._in_flight.pop(tp, None)
            for replicas in (*self._hosted.values(), *self.offline.values()):
                replicas.discard(tp)

    def _online(self, tp: TopicPartition) -> set[int]:
        """The live brokers but those that have said that they cannot serve this partition."""
        return {broker_id for broker_id in self.brokers if tp not in self.offline.get(broker_id, ())}

    def _stays(self, tp: TopicPartition) -> bool:
        return tp.topic not in self._deletions

    def _replicas(self, tp: TopicPartition) -> tuple[int, ...]:
        return self.topics[tp.topic].partitions[tp.partition]

    def _all_partitions(self) -> list[TopicPartition]:
        return [tp for _, assignment in sorted(self.topics.items()) for tp in assignment.topic_partitions()]
