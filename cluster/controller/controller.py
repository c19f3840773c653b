"""The controller: a pure state machine over brokers, topics and partition states.

Events are methods; each returns the effects that the shell performs. Its picture of a partition is a cache of the
state znode, and nothing is decided on it alone: a write stands on the version that was seen, and where that has
moved on (`WriteRefused`) the choice is made again from what was found.

At most one write of a partition is in flight. Whatever happens meanwhile is looked at when its outcome is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CloseChannel,
    Effect,
    OpenChannel,
    SendMetadata,
    WriteOutcome,
    WriteRefused,
    WriteState,
    Written,
)
from cluster.controller.leader_selection import LeaderSelector
from cluster.controller.preferred_leaders import imbalanced
from cluster.controller.reassignment import ReassignmentProgress
from cluster.controller.replica_deletion import ReplicaDeletion
from cluster.controller.unclean_recovery import LogEnd
from cluster.state import NO_VERSION, BrokerRegistration, PartitionState, TopicAssignment, VersionedState
from tidelog.model import TopicPartition


class Controller(LeaderSelector):
    """One reign: `controller_id` under `epoch`. Thrown away when the seat is lost."""

    def __init__(
        self,
        controller_id: int,
        epoch: int,
        *,
        unclean_by_default: bool = False,
        min_insync_by_default: int = 1,
        recovery_timeout_ms: int = 300_000,
    ) -> None:
        super().__init__(
            controller_id,
            epoch,
            unclean_by_default=unclean_by_default,
            min_insync_by_default=min_insync_by_default,
            recovery_timeout_ms=recovery_timeout_ms,
        )
        self._in_flight: dict[TopicPartition, PartitionState] = {}
        # What was read of those meanwhile: it may be later than what is written, and nobody tells of it again.
        self._read_meanwhile: dict[TopicPartition, VersionedState] = {}
        self.departures = ReplicaDeletion(self)

    # --- events --------------------------------------------------------------------------------------

    def begin(
        self,
        brokers: Mapping[int, BrokerRegistration],
        topics: Mapping[str, TopicAssignment],
        states: Mapping[TopicPartition, VersionedState],
        deletions: Iterable[str] = (),
    ) -> list[Effect]:
        """The whole picture, read after the seat was won. Everybody is told everything."""
        self.brokers = {broker_id: broker for broker_id, broker in brokers.items() if not broker.possibly_short}
        for assignment in topics.values():
            self._adopt(assignment)
        self.states = {tp: state for tp, state in states.items() if tp.topic in self.topics}
        self._delay_registrations({broker_id: broker for broker_id, broker in brokers.items() if broker.possibly_short})
        effects: list[Effect] = [OpenChannel(broker) for _, broker in sorted(self.brokers.items())]
        effects += self.deletions_wanted(deletions)
        self.epoch_bumps |= {tp for tp in self.leaders_restarted_unnoticed() if self.departures.stays(tp)}
        writes = self._reconsider(self.partitions())
        leaderless = {tp for tp in self.held if self.states[tp].state.leader not in self.brokers}
        awaited = self._in_flight.keys() | self.epoch_bumps | leaderless
        staying = {tp: state for tp, state in self.states.items() if self.departures.stays(tp)}
        told = {tp: state for tp, state in staying.items() if tp not in awaited}
        # Clients are told of all: of a partition that waits for a leader, too, there is something to know.
        return effects + self._tell(told, to_clients=staying, whole=True) + writes + self._admit()

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> list[Effect]:
        """The registrations as they are now.

        A broker with another epoch has died and come back: its death is dealt with first, and only when every
        state that it had a part in is rewritten is it admitted again.
        """
        effects: list[Effect] = []
        known = self.brokers | self.arriving
        gone = {b for b in known if b not in brokers or brokers[b].epoch != known[b].epoch}
        for broker_id in sorted(gone):
            effects += self._broker_failed(broker_id)
        fresh = {b: broker for b, broker in brokers.items() if b not in known or b in gone}
        effects += self._lose(gone.union(b for b, broker in fresh.items() if broker.possibly_short))
        self._delay_registrations(fresh)
        affected = (
            {tp for broker_id in gone for tp in self.hosted.get(broker_id, ())} | self.epoch_bumps | set(self.held)
        )
        effects += self._reconsider(sorted(affected))
        return effects + self._admit() + self._departed()

    def broker_answered(self, broker_id: int, asked: int) -> list[Effect]:
        """A live registration has answered what was sent to it when `signs.now` was `asked`."""
        if broker_id not in self.brokers or not self.signs.answered(broker_id, asked):
            return []
        held = {tp for tp in self.held if broker_id in self.states[tp].state.isr}
        inherited = {tp for tp, move in self.moves.items() if broker_id in move.heirs and tp in self.states}
        parted = {tp for tp in self.partings if tp in self.states and self.states[tp].state.leader == broker_id}
        return self._reconsider(sorted(held | inherited | parted))

    def topics_changed(
        self, topics: Mapping[str, TopicAssignment], states: Mapping[TopicPartition, VersionedState]
    ) -> list[Effect]:
        """All topics as they are now, with the states of those that were unknown so far."""
        for topic in sorted(set(self.topics) - set(topics)):
            if not self.departures.is_deleting(topic):
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
        for broker_id, broker in (self.brokers | self.arriving).items():
            if broker.possibly_short:  # of what could not be read it has not been asked
                self.mark_suspect(broker_id, found)
        return (self._tell(found) if found else []) + self._reconsider(partitions) + self._absolve()

    def assignment_written(self, assignment: TopicAssignment) -> list[Effect]:
        """The assignment of a known topic as it stands now: with partitions added, reassigned, or settled."""
        before = self.topics.get(assignment.topic)
        if before is None or self.departures.is_deleting(assignment.topic):
            return []
        # Settings that were read with it are news only by their notification: else nobody would be told of them.
        self.topics[assignment.topic] = replace(assignment, configs=before.configs)
        changed: list[TopicPartition] = []
        for tp in assignment.topic_partitions():
            now = assignment.assigned(tp.partition)
            was = before.assigned(tp.partition) if tp.partition in before.partitions else None
            move = self.moves.get(tp)
            if now == was:
                if move is not None:
                    move.settling = False
                continue
            if was is not None and move is not None and move.shed and now == was.settled():
                del self.moves[tp]  # everybody knows already
            else:
                if was is not None:
                    self.moves[tp] = ReassignmentProgress()
                changed.append(tp)
            self.host(tp)
        return self._reconsider(changed) + self._departed()

    def states_written(self, outcomes: Iterable[WriteOutcome]) -> list[Effect]:
        """What became of `WriteState`s."""
        changed: dict[TopicPartition, VersionedState] = {}
        again: list[TopicPartition] = []
        shed: list[TopicPartition] = []
        for outcome in outcomes:
            tp = outcome.tp
            state, read = self._in_flight.pop(tp, None), self._read_meanwhile.pop(tp, None)
            if state is None or tp.topic not in self.topics:
                continue
            if isinstance(outcome, Written):
                if self.forced.get(tp) == state.leader_epoch:
                    self.lacking.get(state.leader, set()).discard(tp)  # it is to lead all the same
                changed[tp] = VersionedState(state, outcome.partition_epoch)
                if (doubt := self.doubts.get(tp)) is not None and doubt.chosen is state:
                    del self.doubts[tp]
                known, move = self.states.get(tp), self.moves.get(tp)
                begun = known is None or state.leader_epoch > known.state.leader_epoch
                if begun and move is not None and move.written(state):
                    shed.append(tp)
            elif outcome.actual is not None:
                changed[tp] = outcome.actual
            else:
                # The state of a topic that exists has vanished. To invent epoch 0 again would fence nobody.
                self.states.pop(tp, None)
                self.held.pop(tp, None)
                continue
            if read is not None and read.partition_epoch > changed[tp].partition_epoch:
                changed[tp] = read
            again.append(tp)
            if isinstance(outcome, WriteRefused) and self.departures.stays(tp) and self._awaits_short(tp):
                self.epoch_bumps.add(tp)
        self.states |= changed
        for broker_id, broker in self.arriving.items():
            if broker.possibly_short:
                self.mark_suspect(broker_id)  # its former self may have been let in meanwhile
        told = {tp: state for tp, state in changed.items() if self.departures.stays(tp)}
        effects = self._tell(told) if told else []
        effects += self.departures.halt(shed)
        return effects + self._reconsider(again) + self._admit() + self._departed()

    def states_read(
        self, states: Mapping[TopicPartition, VersionedState], topic_ids: Mapping[str, str]
    ) -> list[Effect]:
        """States that leaders have changed, as a notification told us to read them.

        `topic_ids` are those of when the reading began: what was read of a topic that has been made anew since may be
        the earlier one's.
        """
        newer: dict[TopicPartition, VersionedState] = {}
        for tp, state in states.items():
            if tp.topic in self.topics and topic_ids.get(tp.topic) == self.topics[tp.topic].topic_id:
                known = self._read_meanwhile.get(tp) or self.states.get(tp)
                if known is None or state.partition_epoch > known.partition_epoch:
                    (self._read_meanwhile if tp in self._in_flight else newer)[tp] = state
        self.states |= newer
        told = {tp: state for tp, state in newer.items() if self.departures.stays(tp)}
        if not told:
            return []
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)), self.messages(told))]
        return effects + self._reconsider(told)

    def configs_changed(self, configs: Mapping[str, Mapping[str, str]]) -> list[Effect]:
        """Topics' own settings as they are now. Everybody is told those that are news, and they hold at once."""
        fresh = [
            topic for topic in sorted(configs.keys() & self.topics) if configs[topic] != self.topics[topic].configs
        ]
        for topic in fresh:
            self.topics[topic] = replace(self.topics[topic], configs=dict(configs[topic]))
        tps = [tp for topic in fresh for tp in self.topics[topic].topic_partitions()]
        # One that is being written is told with its settings as soon as it is.
        told = {tp: self.states[tp] for tp in tps if tp in self.states and self.departures.stays(tp)}
        if not told:
            return []
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)), self.messages(told))]
        return effects + self._reconsider(tps)

    def log_ends_told(self, broker_id: int, ends: Mapping[TopicPartition, LogEnd], asked: int) -> list[Effect]:
        """How far a broker's logs reach, asked at that moment."""
        told = [tp for tp in sorted(ends) if tp in self.polls]
        for tp in told:
            self.polls[tp].tell(broker_id, ends[tp], asked)
        return self._reconsider(told)

    def time_passed(self, now_ms: int) -> list[Effect]:
        """It is not waited for ever: for brokers that are away, where others may be short, nor by those who arrive."""
        return self._reconsider(sorted(self.expired_waits(now_ms)))

    def log_directory_failed(self, broker_ids: Iterable[int]) -> list[Effect]:
        """Brokers whose disk has failed: each is asked for all that it hosts, and answers which of it is offline."""
        effects: list[Effect] = []
        for broker_id in sorted(self.brokers.keys() & set(broker_ids)):
            hosted = self.hosted.get(broker_id, set())
            states = {tp: self.states[tp] for tp in hosted if tp in self.states and self.departures.stays(tp)}
            effects += self.leader_and_isr(states, [broker_id])
        return effects

    def replicas_answered(
        self,
        broker_id: int,
        online: Collection[TopicPartition],
        offline: Collection[TopicPartition],
        lacking: Collection[TopicPartition] = (),
    ) -> list[Effect]:
        """A broker took its part in `online`; in `offline` it cannot, so there it neither leads nor is in sync.

        In `lacking` it has lost what was committed: it takes its part when it is out of the ISR, or leads uncleanly.
        """
        failed: set[TopicPartition] = set()
        recovered: set[TopicPartition] = set()
        for known, told in ((self.offline, offline), (self.lacking, lacking)):
            before = known.setdefault(broker_id, set())
            failed |= set(told) - before
            recovered |= before & set(online)
            known[broker_id] = before.difference(online).union(told)
        return self._lose([broker_id] if failed else []) + self._reconsider(sorted(failed | recovered))

    def leadership_ended(self, broker_id: int, epochs: Mapping[TopicPartition, int]) -> list[Effect]:
        """It led in these epochs before it restarted, which nobody has seen, and does not go on: it gets new ones."""
        standing = {tp: self.states[tp].state for tp in epochs if tp in self.states and self.departures.stays(tp)}
        over = {tp for tp, s in standing.items() if (s.leader, s.leader_epoch) == (broker_id, epochs[tp])}
        self.epoch_bumps |= over
        return self._reconsider(sorted(over))

    def shutdown_wanted(self, broker_id: int) -> list[Effect]:
        """A broker wants to leave: it gives up what others can lead, and its places in the ISRs."""
        if broker_id not in self.brokers:
            return []
        self.leaving.add(broker_id)
        return self._lose([broker_id]) + self._reconsider(sorted(self.hosted.get(broker_id, ())), evict_leaving=True)

    def elections_wanted(self, tps: Iterable[TopicPartition], *, unclean: bool = False) -> list[Effect]:
        """Give these partitions to their preferred leaders, where those are in sync, or to whomever lives.

        `election_refusal` says beforehand, and once nothing of it is `undecided` any more, why one had no effect.
        """
        wanted = [tp for tp in tps if tp in self.states and self.departures.stays(tp)]
        self.requested_elections |= dict.fromkeys(wanted, unclean)
        return self._reconsider(wanted)

    def rebalance_wanted(self, percentage: int) -> list[Effect]:
        """Preferred elections for brokers that lead too little of what they should."""
        leaders = {
            tp: (self.replicas(tp)[0], known.state.leader)
            for tp, known in self.states.items()
            if self.departures.stays(tp) and tp not in self.moves
        }
        return self.elections_wanted(imbalanced(leaders, percentage))

    def deletions_wanted(self, topics: Iterable[str]) -> list[Effect]:
        """Topics to be deleted. Those that do not exist only lose the wish."""
        effects: list[Effect] = []
        for topic in topics:
            if not self.departures.is_deleting(topic):
                effects += self.departures.delete(topic)
                if topic in self.topics:
                    self._abandon(self.topics[topic].topic_partitions())
        return effects + self._departed()

    def replicas_stopped(self, broker_id: int, tps: Iterable[TopicPartition]) -> list[Effect]:
        """A broker has deleted its replicas of these."""
        self.departures.stopped(broker_id, tps)
        return self._departed()

    def topic_removed(self, topic: str) -> list[Effect]:
        """The topic's znodes are gone."""
        self.departures.removed(topic)
        self._forget(topic)
        return self._absolve()

    # --- what the shell asks -------------------------------------------------------------------------

    def every_topic(self) -> dict[str, str]:
        """The ids of all topics that stay, by name; "" of those of which nothing can be read."""
        ids = {name: topic.topic_id for name, topic in self.topics.items() if not self.departures.is_deleting(name)}
        return dict.fromkeys(self.unread, "") | ids

    def has_pending_work(self, broker_id: int) -> bool:
        """Whether something is still to be decided or written of a partition of this broker."""
        return self._entangled(broker_id) or not self.held.keys().isdisjoint(self.hosted.get(broker_id, ()))

    def undecided(self, tp: TopicPartition) -> bool:
        """Whether an election of this partition is under way."""
        return tp in self._in_flight or tp in self.requested_elections

    # --- inside --------------------------------------------------------------------------------------

    def _reconsider(self, tps: Iterable[TopicPartition], *, evict_leaving: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for tp in sorted(tps, key=self._is_led):  # clients wait for those that nobody leads
            if tp in self._in_flight or tp.topic not in self.topics or not self.departures.stays(tp):
                continue
            effects += self._write(tp, self.next_state_for(tp, evict_leaving=evict_leaving))
        effects += self._dismiss()
        if self.heirs:
            effects.append(SendMetadata(tuple(sorted(self.heirs))))
            self.heirs = set()
        questions, self.questions = self.questions, {}
        return effects + [AskLogEnds(broker_id, tuple(asked)) for broker_id, asked in sorted(questions.items())]

    def _dismiss(self) -> list[Effect]:
        """Those who were shed delete what they have, and then everybody hears that it is not theirs any more."""
        tps, self.dismissed = self.dismissed, []
        if not tps:
            return []
        effects = self.departures.dismiss(tps, self.brokers)
        for tp in tps:
            self.host(tp)
        told = self.messages({tp: self.states[tp] for tp in tps})
        return [*effects, SendMetadata(tuple(sorted(self.brokers)), told), *self._departed()]

    def _is_led(self, tp: TopicPartition) -> bool:
        known = self.states.get(tp)
        return known is not None and known.state.leader in self.brokers and known.state.leader not in self.leaving

    def _write(self, tp: TopicPartition, wanted: PartitionState | None) -> list[Effect]:
        if wanted is None:
            return []
        known = self.states.get(tp)
        self.epoch_bumps.discard(tp)
        self._in_flight[tp] = wanted
        return [WriteState(tp, wanted, NO_VERSION if known is None else known.partition_epoch)]

    def _entangled(self, broker_id: int) -> bool:
        """A write of a partition that it hosts is in flight, or is still to be made before it may come."""
        return any(
            tp in self._in_flight or self.must_delay_registration(tp, broker_id)
            for tp in self.hosted.get(broker_id, ())
        )

    def _lose(self, broker_ids: Collection[int]) -> list[Effect]:
        """These count no more. Everybody else is told something, so that whoever lives answers."""
        if not broker_ids:
            return []
        self.signs.lost(broker_ids)
        return [SendMetadata(tuple(sorted(self.brokers)))] if self.brokers else []

    def _broker_failed(self, broker_id: int) -> list[Effect]:
        self.arriving.pop(broker_id, None)
        self.leaving.discard(broker_id)
        self.offline.pop(broker_id, None)
        self.lacking.pop(broker_id, None)
        self.departures.buried(broker_id)
        for poll in self.polls.values():
            poll.forget(broker_id)
        self.signs.ended(broker_id)
        return [CloseChannel(broker_id)] if self.brokers.pop(broker_id, None) else []

    def _admit(self) -> list[Effect]:
        """Lets in the brokers whose past is dealt with: all they host, and all that clients may ask them for."""
        ready = [broker_id for broker_id in sorted(self.arriving) if not self._entangled(broker_id)]
        if not ready:
            return self._absolve()
        before = tuple(sorted(self.brokers))
        effects: list[Effect] = []
        for broker_id in ready:
            self.brokers[broker_id] = self.arriving.pop(broker_id)
            effects.append(OpenChannel(self.brokers[broker_id]))
        if before:
            effects.append(SendMetadata(before))
        everything = {tp: state for tp, state in self.states.items() if self.departures.stays(tp)}
        effects += self.leader_and_isr(everything, ready)
        effects.append(SendMetadata(tuple(ready), self.messages(everything), whole=True))
        effects += self.departures.admitted(ready)
        effects += self._reconsider(sorted(tp for broker_id in ready for tp in self.hosted.get(broker_id, ())))
        return effects + self._absolve()

    def _delay_registrations(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """They come, and are let in when their past is dealt with.

        Of one that may have lost records also the leaders it follows get a new epoch first: what they have in flight
        could bring its former self into an ISR.
        """
        self.arriving |= brokers
        for broker_id, broker in brokers.items():
            self.departures.expect(broker_id)
            if broker.possibly_short:
                self.mark_suspect(broker_id)
                hosted = self.hosted.get(broker_id, ())
                self.epoch_bumps |= {tp for tp in hosted if tp in self.states and self.departures.stays(tp)}

    def _awaits_short(self, tp: TopicPartition) -> bool:
        """One that may have lost records of it has come, and is not let in yet."""
        return any(each.possibly_short and tp in self.hosted.get(id_, ()) for id_, each in self.arriving.items())

    def _absolve(self) -> list[Effect]:
        """Takes the mark from those of whom nothing is in doubt any more, nor may be of what cannot be read yet."""
        effects: list[Effect] = []
        if self.unread:
            return effects
        for broker_id, broker in sorted(self.brokers.items()):
            if broker.possibly_short and not any(broker_id in doubt.members for doubt in self.doubts.values()):
                self.brokers[broker_id] = replace(broker, possibly_short=False)
                effects.append(ClearPossiblyShort(broker))
        return effects

    def _tell(
        self,
        states: Mapping[TopicPartition, VersionedState],
        *,
        to_clients: Mapping[TopicPartition, VersionedState] | None = None,
        whole: bool = False,
    ) -> list[Effect]:
        everybody = tuple(sorted(self.brokers))
        if not everybody:
            return []
        shown = self.messages(states if to_clients is None else to_clients)
        return [*self.leader_and_isr(states, everybody), SendMetadata(everybody, shown, whole=whole)]

    def _departed(self) -> list[Effect]:
        return self.departures.due(self._in_flight)

    def _adopt(self, assignment: TopicAssignment) -> None:
        self.topics[assignment.topic] = assignment
        for tp in assignment.topic_partitions():
            if assignment.assigned(tp.partition).moving:
                self.moves[tp] = ReassignmentProgress()
            self.host(tp)

    def _abandon(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self.moves.pop(tp, None)
            self.requested_elections.pop(tp, None)
            self.partings.pop(tp, None)
            self.doubts.pop(tp, None)
            self.polls.pop(tp, None)
            self.held.pop(tp, None)
            self.epoch_bumps.discard(tp)

    def _forget(self, topic: str) -> None:
        assignment = self.topics.pop(topic, None)
        tps = assignment.topic_partitions() if assignment else []
        self._abandon(tps)
        for tp in tps:
            self.states.pop(tp, None)
            self._in_flight.pop(tp, None)
            self._read_meanwhile.pop(tp, None)
            self.forced.pop(tp, None)
            for replicas in (*self.hosted.values(), *self.offline.values(), *self.lacking.values()):
                replicas.discard(tp)
