"""The controller: a pure state machine over brokers, topics and partition states.

Events are methods; each returns the effects that the caller performs. The controller's view of a partition is a cache
of its state znode, and is never trusted alone. A write is conditional on the version that was read. If the version has
changed (`WriteRefused`), the controller decides again from the state that was found.

At most one write of a partition is in flight. Events that concern the partition meanwhile are considered when the
outcome of the write is known.
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
    """The controller during one controller epoch; discarded when another controller is elected."""

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
        # States read while a write is in flight. They may be later than the write, and no other notification follows.
        self._read_meanwhile: dict[TopicPartition, VersionedState] = {}
        self.replica_deletion = ReplicaDeletion(self)

    # --- events --------------------------------------------------------------------------------------

    def begin(
        self,
        brokers: Mapping[int, BrokerRegistration],
        topics: Mapping[str, TopicAssignment],
        states: Mapping[TopicPartition, VersionedState],
        deletions: Iterable[str] = (),
    ) -> list[Effect]:
        """Take over the whole cluster state, read after the election, and send it to all brokers."""
        self.brokers = {broker_id: broker for broker_id, broker in brokers.items() if not broker.possibly_short}
        for assignment in topics.values():
            self._adopt(assignment)
        self.states = {tp: state for tp, state in states.items() if tp.topic in self.topics}
        self._delay_registrations({broker_id: broker for broker_id, broker in brokers.items() if broker.possibly_short})
        effects: list[Effect] = [OpenChannel(broker) for _, broker in sorted(self.brokers.items())]
        effects += self.deletions_wanted(deletions)
        self.epoch_bumps |= {tp for tp in self.leaders_restarted_unnoticed() if self.replica_deletion.stays(tp)}
        writes = self._reconsider(self.partitions())
        leaderless = {tp for tp in self.waiting_for_liveness if self.states[tp].state.leader not in self.brokers}
        awaited = self._in_flight.keys() | self.epoch_bumps | leaderless
        staying = {tp: state for tp, state in self.states.items() if self.replica_deletion.stays(tp)}
        complete = {tp: state for tp, state in staying.items() if tp not in awaited}
        # The metadata covers all partitions, because clients also need to know those that wait for a leader.
        return effects + self._send_states(complete, to_clients=staying, whole=True) + writes + self._bring_online()

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> list[Effect]:
        """Compare the current registrations with the known ones.

        A broker with another epoch has died and come back. The controller deals with its death first, and brings the
        broker online when every partition state that it was part of is rewritten.
        """
        effects: list[Effect] = []
        known = self.brokers | self.registering
        gone = {b for b in known if b not in brokers or brokers[b].epoch != known[b].epoch}
        for broker_id in sorted(gone):
            effects += self._broker_failed(broker_id)
        fresh = {b: broker for b, broker in brokers.items() if b not in known or b in gone}
        effects += self._note_lost(gone.union(b for b, broker in fresh.items() if broker.possibly_short))
        self._delay_registrations(fresh)
        affected = (
            {tp for broker_id in gone for tp in self.hosted.get(broker_id, ())}
            | self.epoch_bumps
            | set(self.waiting_for_liveness)
        )
        effects += self._reconsider(sorted(affected))
        return effects + self._bring_online() + self._completed_deletions()

    def broker_answered(self, broker_id: int, asked: int) -> list[Effect]:
        """Note that a live registration has answered a request that was sent when `liveness.epoch` was `asked`."""
        if broker_id not in self.brokers or not self.liveness.answered(broker_id, asked):
            return []
        waiting = {tp for tp in self.waiting_for_liveness if broker_id in self.states[tp].state.isr}
        reassigned = {
            tp for tp, move in self.reassignments.items() if broker_id in move.remaining and tp in self.states
        }
        handed_over = {tp for tp in self.handoffs if tp in self.states and self.states[tp].state.leader == broker_id}
        return self._reconsider(sorted(waiting | reassigned | handed_over))

    def topics_changed(
        self, topics: Mapping[str, TopicAssignment], states: Mapping[TopicPartition, VersionedState]
    ) -> list[Effect]:
        """Compare all current topics with the known ones; `states` has the states of those that were unknown."""
        for topic in sorted(set(self.topics) - set(topics)):
            if not self.replica_deletion.is_deleting(topic):
                self._forget(topic)
        fresh = [assignment for name, assignment in sorted(topics.items()) if name not in self.topics]
        return self.topics_created(fresh, states)

    def topics_created(
        self, assignments: Iterable[TopicAssignment], states: Mapping[TopicPartition, VersionedState] | None = None
    ) -> list[Effect]:
        """Add topics whose assignment has been written."""
        partitions: list[TopicPartition] = []
        for assignment in assignments:
            if assignment.topic in self.topics:
                continue
            self._adopt(assignment)
            partitions += assignment.topic_partitions()
        found = {tp: (states or {})[tp] for tp in partitions if tp in (states or {})}
        self.states |= found
        for broker_id, broker in (self.brokers | self.registering).items():
            if broker.possibly_short:  # the mark was not applied to partitions that could not be read
                self.mark_suspect(broker_id, found)
        return (self._send_states(found) if found else []) + self._reconsider(partitions) + self._clear_possibly_short()

    def assignment_written(self, assignment: TopicAssignment) -> list[Effect]:
        """Apply the current assignment of a known topic, with partitions added, reassigned, or completed."""
        before = self.topics.get(assignment.topic)
        if before is None or self.replica_deletion.is_deleting(assignment.topic):
            return []
        # Keep the known settings. Changed ones are sent to brokers only when their notification is handled.
        self.topics[assignment.topic] = replace(assignment, configs=before.configs)
        changed: list[TopicPartition] = []
        for tp in assignment.topic_partitions():
            now = assignment.assigned(tp.partition)
            was = before.assigned(tp.partition) if tp.partition in before.partitions else None
            move = self.reassignments.get(tp)
            if now == was:
                if move is not None:
                    move.completing = False
                continue
            if was is not None and move is not None and move.removed and now == was.completed():
                del self.reassignments[tp]  # the brokers already know
            else:
                if was is not None:
                    self.reassignments[tp] = ReassignmentProgress()
                changed.append(tp)
            self.host(tp)
        return self._reconsider(changed) + self._completed_deletions()

    def states_written(self, outcomes: Iterable[WriteOutcome]) -> list[Effect]:
        """Apply the outcomes of `WriteState` effects."""
        changed: dict[TopicPartition, VersionedState] = {}
        again: list[TopicPartition] = []
        removed: list[TopicPartition] = []
        for outcome in outcomes:
            tp = outcome.tp
            state, read = self._in_flight.pop(tp, None), self._read_meanwhile.pop(tp, None)
            if state is None or tp.topic not in self.topics:
                continue
            if isinstance(outcome, Written):
                if self.unclean_epochs.get(tp) == state.leader_epoch:
                    self.replicas_with_loss.get(state.leader, set()).discard(
                        tp
                    )  # an unclean leader leads despite its loss
                changed[tp] = VersionedState(state, outcome.partition_epoch)
                if (suspect := self.suspects.get(tp)) is not None and suspect.recovery_state is state:
                    del self.suspects[tp]
                known, move = self.states.get(tp), self.reassignments.get(tp)
                begun = known is None or state.leader_epoch > known.state.leader_epoch
                if begun and move is not None and move.written(state):
                    removed.append(tp)
            elif outcome.actual is not None:
                changed[tp] = outcome.actual
            else:
                # The state of an existing topic has vanished. A new state of epoch 0 could not fence old leaders.
                self.states.pop(tp, None)
                self.waiting_for_liveness.pop(tp, None)
                continue
            if read is not None and read.partition_epoch > changed[tp].partition_epoch:
                changed[tp] = read
            again.append(tp)
            if isinstance(outcome, WriteRefused) and self.replica_deletion.stays(tp) and self._waits_for_suspect(tp):
                self.epoch_bumps.add(tp)
        self.states |= changed
        for broker_id, broker in self.registering.items():
            if broker.possibly_short:
                self.mark_suspect(broker_id)  # its previous registration may have joined an ISR meanwhile
        to_send = {tp: state for tp, state in changed.items() if self.replica_deletion.stays(tp)}
        effects = self._send_states(to_send) if to_send else []
        effects += self.replica_deletion.stop_removed(removed)
        return effects + self._reconsider(again) + self._bring_online() + self._completed_deletions()

    def states_read(
        self, states: Mapping[TopicPartition, VersionedState], topic_ids: Mapping[str, str]
    ) -> list[Effect]:
        """Apply states that leaders have changed, read because of a notification.

        `topic_ids` are those known when the reading began. A state with another topic id may belong to an earlier topic
        of the same name, and is ignored.
        """
        newer: dict[TopicPartition, VersionedState] = {}
        for tp, state in states.items():
            if tp.topic in self.topics and topic_ids.get(tp.topic) == self.topics[tp.topic].topic_id:
                known = self._read_meanwhile.get(tp) or self.states.get(tp)
                if known is None or state.partition_epoch > known.partition_epoch:
                    (self._read_meanwhile if tp in self._in_flight else newer)[tp] = state
        self.states |= newer
        to_send = {tp: state for tp, state in newer.items() if self.replica_deletion.stays(tp)}
        if not to_send:
            return []
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)), self.messages(to_send))]
        return effects + self._reconsider(to_send)

    def configs_changed(self, configs: Mapping[str, Mapping[str, str]]) -> list[Effect]:
        """Apply the topics' current settings at once, and send those that changed to all brokers."""
        fresh = [
            topic for topic in sorted(configs.keys() & self.topics) if configs[topic] != self.topics[topic].configs
        ]
        for topic in fresh:
            self.topics[topic] = replace(self.topics[topic], configs=dict(configs[topic]))
        tps = [tp for topic in fresh for tp in self.topics[topic].topic_partitions()]
        # A partition whose first state is being written is sent, with these settings, once it is written.
        to_send = {tp: self.states[tp] for tp in tps if tp in self.states and self.replica_deletion.stays(tp)}
        if not to_send:
            return []
        effects: list[Effect] = [SendMetadata(tuple(sorted(self.brokers)), self.messages(to_send))]
        return effects + self._reconsider(tps)

    def log_ends_reported(self, broker_id: int, ends: Mapping[TopicPartition, LogEnd], asked: int) -> list[Effect]:
        """Note how far a broker's logs reach; the request was sent in liveness epoch `asked`."""
        queried = [tp for tp in sorted(ends) if tp in self.log_end_queries]
        for tp in queried:
            self.log_end_queries[tp].on_answer(broker_id, ends[tp], asked)
        return self._reconsider(queried)

    def time_passed(self, now_ms: int) -> list[Effect]:
        """Decide again where a wait has timed out: for absent brokers, for log ends, or for a proof of liveness."""
        return self._reconsider(sorted(self.expired_waits(now_ms)))

    def log_directory_failed(self, broker_ids: Iterable[int]) -> list[Effect]:
        """Send LeaderAndIsr for all hosted partitions to brokers with a failed disk, so that they report the offline
        ones.
        """
        effects: list[Effect] = []
        for broker_id in sorted(self.brokers.keys() & set(broker_ids)):
            hosted = self.hosted.get(broker_id, set())
            states = {tp: self.states[tp] for tp in hosted if tp in self.states and self.replica_deletion.stays(tp)}
            effects += self.leader_and_isr(states, [broker_id])
        return effects

    def replicas_answered(
        self,
        broker_id: int,
        online: Collection[TopicPartition],
        offline: Collection[TopicPartition],
        lacking: Collection[TopicPartition] = (),
    ) -> list[Effect]:
        """Note which replicas a broker reported as online, as offline, or as lacking committed records.

        An offline replica neither leads nor is in sync. A replica with a loss goes online once it is out of the ISR, or
        leads uncleanly.
        """
        failed: set[TopicPartition] = set()
        recovered: set[TopicPartition] = set()
        for known, reported in ((self.offline, offline), (self.replicas_with_loss, lacking)):
            before = known.setdefault(broker_id, set())
            failed |= set(reported) - before
            recovered |= before & set(online)
            known[broker_id] = before.difference(online).union(reported)
        return self._note_lost([broker_id] if failed else []) + self._reconsider(sorted(failed | recovered))

    def leadership_ended(self, broker_id: int, epochs: Mapping[TopicPartition, int]) -> list[Effect]:
        """Begin new leader epochs for partitions that a broker led in these epochs before a restart that went
        unnoticed.
        """
        current = {tp: self.states[tp].state for tp in epochs if tp in self.states and self.replica_deletion.stays(tp)}
        over = {tp for tp, s in current.items() if (s.leader, s.leader_epoch) == (broker_id, epochs[tp])}
        self.epoch_bumps |= over
        return self._reconsider(sorted(over))

    def shutdown_wanted(self, broker_id: int) -> list[Effect]:
        """Begin a controlled shutdown: the broker hands over its leaderships where possible, and leaves the ISRs."""
        if broker_id not in self.brokers:
            return []
        self.shutting_down.add(broker_id)
        return self._note_lost([broker_id]) + self._reconsider(
            sorted(self.hosted.get(broker_id, ())), evict_shutting_down=True
        )

    def elections_wanted(self, tps: Iterable[TopicPartition], *, unclean: bool = False) -> list[Effect]:
        """Elect the preferred leaders of these partitions where they are in sync, or any live replica if `unclean`.

        `election_refusal` says why an election would have no effect: before this call, or when `election_in_progress`
        is over.
        """
        wanted = [tp for tp in tps if tp in self.states and self.replica_deletion.stays(tp)]
        self.requested_elections |= dict.fromkeys(wanted, unclean)
        return self._reconsider(wanted)

    def preferred_elections_wanted(self, percentage: int) -> list[Effect]:
        """Request preferred elections for brokers that lead too few of the partitions that they should lead."""
        leaders = {
            tp: (self.replicas(tp)[0], known.state.leader)
            for tp, known in self.states.items()
            if self.replica_deletion.stays(tp) and tp not in self.reassignments
        }
        return self.elections_wanted(imbalanced(leaders, percentage))

    def deletions_wanted(self, topics: Iterable[str]) -> list[Effect]:
        """Begin to delete topics. Only the request is removed for a topic that does not exist."""
        effects: list[Effect] = []
        for topic in topics:
            if not self.replica_deletion.is_deleting(topic):
                effects += self.replica_deletion.delete(topic)
                if topic in self.topics:
                    self._discard_progress(self.topics[topic].topic_partitions())
        return effects + self._completed_deletions()

    def replicas_stopped(self, broker_id: int, tps: Iterable[TopicPartition]) -> list[Effect]:
        """Note that a broker has deleted its replicas of these partitions."""
        self.replica_deletion.on_stopped(broker_id, tps)
        return self._completed_deletions()

    def topic_removed(self, topic: str) -> list[Effect]:
        """Forget a topic whose znodes are removed."""
        self.replica_deletion.on_topic_removed(topic)
        self._forget(topic)
        return self._clear_possibly_short()

    # --- queries -------------------------------------------------------------------------------------

    def every_topic(self) -> dict[str, str]:
        """Return the ids of all topics that are not being deleted, by name; "" for topics that cannot be read."""
        ids = {
            name: topic.topic_id for name, topic in self.topics.items() if not self.replica_deletion.is_deleting(name)
        }
        return dict.fromkeys(self.unreadable_topics, "") | ids

    def has_pending_work(self, broker_id: int) -> bool:
        """Return whether a partition hosted by this broker still needs a decision or a write."""
        return self._has_unwritten_states(broker_id) or not self.waiting_for_liveness.keys().isdisjoint(
            self.hosted.get(broker_id, ())
        )

    def election_in_progress(self, tp: TopicPartition) -> bool:
        """Return whether an election of this partition is under way."""
        return tp in self._in_flight or tp in self.requested_elections

    # --- inside --------------------------------------------------------------------------------------

    def _reconsider(self, tps: Iterable[TopicPartition], *, evict_shutting_down: bool = False) -> list[Effect]:
        effects: list[Effect] = []
        for tp in sorted(tps, key=self._is_led):  # partitions without a leader first, because clients wait for them
            if tp in self._in_flight or tp.topic not in self.topics or not self.replica_deletion.stays(tp):
                continue
            effects += self._write(tp, self.next_state_for(tp, evict_shutting_down=evict_shutting_down))
        effects += self._delete_removed_replicas()
        if self.to_probe:
            effects.append(SendMetadata(tuple(sorted(self.to_probe))))
            self.to_probe = set()
        requests, self.log_end_requests = self.log_end_requests, {}
        return effects + [AskLogEnds(broker_id, tuple(asked)) for broker_id, asked in sorted(requests.items())]

    def _delete_removed_replicas(self) -> list[Effect]:
        """Have brokers delete removed replicas, and then send the new assignment to all brokers."""
        tps, self.to_delete = self.to_delete, []
        if not tps:
            return []
        effects = self.replica_deletion.delete_removed(tps, self.brokers)
        for tp in tps:
            self.host(tp)
        messages = self.messages({tp: self.states[tp] for tp in tps})
        return [*effects, SendMetadata(tuple(sorted(self.brokers)), messages), *self._completed_deletions()]

    def _is_led(self, tp: TopicPartition) -> bool:
        known = self.states.get(tp)
        return known is not None and known.state.leader in self.brokers and known.state.leader not in self.shutting_down

    def _write(self, tp: TopicPartition, wanted: PartitionState | None) -> list[Effect]:
        if wanted is None:
            return []
        known = self.states.get(tp)
        self.epoch_bumps.discard(tp)
        self._in_flight[tp] = wanted
        return [WriteState(tp, wanted, NO_VERSION if known is None else known.partition_epoch)]

    def _has_unwritten_states(self, broker_id: int) -> bool:
        """Return whether a state of a hosted partition is being written, or must be before the broker is brought
        online.
        """
        return any(
            tp in self._in_flight or self.must_delay_registration(tp, broker_id)
            for tp in self.hosted.get(broker_id, ())
        )

    def _note_lost(self, broker_ids: Collection[int]) -> list[Effect]:
        """Mark these brokers as failed and send UpdateMetadata to all others, because their answers prove that they are
        alive.
        """
        if not broker_ids:
            return []
        self.liveness.note_lost(broker_ids)
        return [SendMetadata(tuple(sorted(self.brokers)))] if self.brokers else []

    def _broker_failed(self, broker_id: int) -> list[Effect]:
        self.registering.pop(broker_id, None)
        self.shutting_down.discard(broker_id)
        self.offline.pop(broker_id, None)
        self.replicas_with_loss.pop(broker_id, None)
        self.replica_deletion.on_failed(broker_id)
        for poll in self.log_end_queries.values():
            poll.discard(broker_id)
        self.liveness.on_registration_ended(broker_id)
        return [CloseChannel(broker_id)] if self.brokers.pop(broker_id, None) else []

    def _bring_online(self) -> list[Effect]:
        """Bring online the registering brokers whose previous registrations are dealt with.

        Each is sent all partitions that it hosts, and the metadata of all topics.
        """
        ready = [broker_id for broker_id in sorted(self.registering) if not self._has_unwritten_states(broker_id)]
        if not ready:
            return self._clear_possibly_short()
        before = tuple(sorted(self.brokers))
        effects: list[Effect] = []
        for broker_id in ready:
            self.brokers[broker_id] = self.registering.pop(broker_id)
            effects.append(OpenChannel(self.brokers[broker_id]))
        if before:
            effects.append(SendMetadata(before))
        states = {tp: state for tp, state in self.states.items() if self.replica_deletion.stays(tp)}
        effects += self.leader_and_isr(states, ready)
        effects.append(SendMetadata(tuple(ready), self.messages(states), whole=True))
        effects += self.replica_deletion.on_ready(ready)
        effects += self._reconsider(sorted(tp for broker_id in ready for tp in self.hosted.get(broker_id, ())))
        return effects + self._clear_possibly_short()

    def _delay_registrations(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Note new registrations, which are brought online once their previous registrations are dealt with.

        If a broker may have lost records, the leaders that it follows get a new epoch first. Otherwise their ISR
        changes in flight could add its previous registration to an ISR.
        """
        self.registering |= brokers
        for broker_id, broker in brokers.items():
            self.replica_deletion.on_registering(broker_id)
            if broker.possibly_short:
                self.mark_suspect(broker_id)
                hosted = self.hosted.get(broker_id, ())
                self.epoch_bumps |= {tp for tp in hosted if tp in self.states and self.replica_deletion.stays(tp)}

    def _waits_for_suspect(self, tp: TopicPartition) -> bool:
        """Return whether a registering broker that hosts this partition may have lost records."""
        return any(each.possibly_short and tp in self.hosted.get(id_, ()) for id_, each in self.registering.items())

    def _clear_possibly_short(self) -> list[Effect]:
        """Clear the mark `possibly_short` of brokers that are no longer suspect for any partition.

        Nothing is cleared while a topic cannot be read, because its partitions may depend on the mark.
        """
        effects: list[Effect] = []
        if self.unreadable_topics:
            return effects
        for broker_id, broker in sorted(self.brokers.items()):
            if broker.possibly_short and not any(broker_id in suspect.members for suspect in self.suspects.values()):
                self.brokers[broker_id] = replace(broker, possibly_short=False)
                effects.append(ClearPossiblyShort(broker))
        return effects

    def _send_states(
        self,
        states: Mapping[TopicPartition, VersionedState],
        *,
        to_clients: Mapping[TopicPartition, VersionedState] | None = None,
        whole: bool = False,
    ) -> list[Effect]:
        brokers = tuple(sorted(self.brokers))
        if not brokers:
            return []
        shown = self.messages(states if to_clients is None else to_clients)
        return [*self.leader_and_isr(states, brokers), SendMetadata(brokers, shown, whole=whole)]

    def _completed_deletions(self) -> list[Effect]:
        return self.replica_deletion.completed(self._in_flight)

    def _adopt(self, assignment: TopicAssignment) -> None:
        self.topics[assignment.topic] = assignment
        for tp in assignment.topic_partitions():
            if assignment.assigned(tp.partition).moving:
                self.reassignments[tp] = ReassignmentProgress()
            self.host(tp)

    def _discard_progress(self, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            self.reassignments.pop(tp, None)
            self.requested_elections.pop(tp, None)
            self.handoffs.pop(tp, None)
            self.suspects.pop(tp, None)
            self.log_end_queries.pop(tp, None)
            self.waiting_for_liveness.pop(tp, None)
            self.epoch_bumps.discard(tp)

    def _forget(self, topic: str) -> None:
        assignment = self.topics.pop(topic, None)
        tps = assignment.topic_partitions() if assignment else []
        self._discard_progress(tps)
        for tp in tps:
            self.states.pop(tp, None)
            self._in_flight.pop(tp, None)
            self._read_meanwhile.pop(tp, None)
            self.unclean_epochs.pop(tp, None)
            for replicas in (*self.hosted.values(), *self.offline.values(), *self.replicas_with_loss.values()):
                replicas.discard(tp)
