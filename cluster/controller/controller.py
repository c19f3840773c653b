"""The controller: a pure state machine over brokers, topics and partition states.

Events are methods; each yields the effects that the caller performs. An event happens while the caller iterates, and
must end before the next one begins. An event that concerns many partitions also yields pauses, in which the caller lets
other tasks run.

The controller's view of a partition is a cache of its state znode, and is never trusted alone. A write is conditional
on the version that was read. If the version has changed (`WriteRefused`), the controller decides again from the state
that was found.

At most one write of a partition is in flight. Events that concern the partition meanwhile are considered when the
outcome of the write is known.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cluster.controller.controller_context import ControllerContext
from cluster.controller.decision import Ask, ConfirmRemoval, Decision, Nothing, Question, Wait, Write
from cluster.controller.effects import (
    AskLogEnds,
    ClearPossiblyShort,
    CloseChannel,
    Effect,
    MoveChannel,
    OpenChannel,
    SendMetadata,
    WriteOutcome,
    WriteRefused,
    Written,
)
from cluster.controller.election import election_refusal
from cluster.controller.leader_selection import decide, review
from cluster.controller.liveness import Liveness
from cluster.controller.partition_context import BrokerSets, ElectionPolicy, PartitionContext
from cluster.controller.preferred_leaders import imbalanced
from cluster.controller.replicas.replica_deletion import ReplicaDeletion
from cluster.controller.steps import in_steps, pause_after
from cluster.controller.unclean_recovery import LogEnd
from cluster.state import NO_VERSION, BrokerRegistration, TopicAssignment, VersionedState, WriteState
from tidelog.errors import BrokerError
from tidelog.model import TopicPartition
from tidelog.protocol.partition_messages import ElectionType


class Controller:
    """The controller during one controller epoch; discarded when another controller is elected.

    context            the known brokers, topics and partitions
    liveness           the liveness epochs, and which broker has answered a request of which one
    replica_deletion   the deletions of topics and of removed replicas
    """

    def __init__(
        self,
        controller_id: int,
        epoch: int,
        *,
        unclean_by_default: bool = False,
        min_insync_by_default: int = 1,
        recovery_timeout_ms: int = 300_000,
    ) -> None:
        policy = ElectionPolicy(epoch, unclean_by_default, min_insync_by_default, recovery_timeout_ms)
        self.controller_id, self.epoch = controller_id, epoch
        self.context = ControllerContext(policy)
        self.liveness = Liveness(controller_id)
        self.replica_deletion = ReplicaDeletion(self.context)
        self._now_ms = 0

    # --- events --------------------------------------------------------------------------------------

    def begin(
        self,
        brokers: Mapping[int, BrokerRegistration],
        topics: Mapping[str, TopicAssignment],
        states: Mapping[TopicPartition, VersionedState],
        deletions: Iterable[str] = (),
        unreadable: Iterable[str] = (),
    ) -> Iterator[Effect]:
        """Take over the cluster state that was read after the election. Called once, before any other event.

        The effects open a channel to each broker, send the states and the metadata of all topics, begin `deletions`,
        and write states that must change. A partition whose state is about to change is sent to its replicas only after
        the write. A broker marked `possibly_short` is brought online after the leaders that it follows have new epochs.
        `unreadable` names the topics that could not be read.
        """
        context = self.context
        context.unreadable_topics = set(unreadable)
        context.brokers = {broker_id: broker for broker_id, broker in brokers.items() if not broker.possibly_short}
        for assignment in topics.values():
            yield from context.adopt(assignment)
        yield from self._set_states(states)
        for _, broker in sorted(context.brokers.items()):
            yield OpenChannel(broker)
        yield from self._delay_registrations({id_: broker for id_, broker in brokers.items() if broker.possibly_short})
        yield from self.deletions_wanted(deletions)
        yield from self._bump_epochs(filter(self._is_led_by_restarted_broker, context.partitions))
        yield from self._reconsider(context.topic_partitions())
        for step in in_steps(context.topic_partitions()):
            # Clients also need to know the partitions that wait for a leader.
            to_clients = list(filter(self._stays, step))
            complete = [tp for tp in to_clients if not self._gets_another_state_soon(context.partitions[tp])]
            yield from self._send_states(complete, to_clients=to_clients)
            yield from pause_after(step)
        yield from self._send_every_topic(context.brokers)
        yield from self._bring_online()

    def brokers_changed(self, brokers: Mapping[int, BrokerRegistration]) -> Iterator[Effect]:
        """Compare all current registrations with the known ones, and handle brokers that registered, died, registered
        again, or have other addresses.

        A broker with another epoch has died and come back. The controller deals with its death first, and brings the
        broker online when no partition state counts on the earlier registration any more.
        """
        context = self.context
        known = context.brokers | context.registering
        gone = {b for b in known if b not in brokers or brokers[b].epoch != known[b].epoch}
        for broker_id in sorted(gone):
            yield from self._broker_failed(broker_id)
        yield from self._addresses_changed([b for b in sorted(known.keys() - gone) if brokers[b] != known[b]], brokers)
        fresh = {b: broker for b, broker in brokers.items() if b not in known or b in gone}
        yield from self._note_lost(gone.union(b for b, broker in fresh.items() if broker.possibly_short))
        yield from self._delay_registrations(fresh)
        affected = {tp for broker_id in gone for tp in context.hosted.get(broker_id, ())}
        affected |= {
            each.topic_partition for each in context.waiting_partitions() if each.epoch_bump or each.liveness_wait
        }
        yield from self._reconsider(sorted(affected))
        yield from self._bring_online()
        yield from self.replica_deletion.completed()

    def broker_answered(self, broker_id: int, asked: int) -> Iterator[Effect]:
        """Note that a live registration has answered a request that was sent when `liveness.epoch` was `asked`.

        Decide again about the partitions that waited for this proof. An answer of a broker that is not online, or
        without new proof, has no effect.
        """
        if broker_id in self.context.brokers and self.liveness.answered(broker_id, asked):
            waiting = self.context.waiting_partitions()
            yield from self._reconsider(each.topic_partition for each in waiting if each.waits_for_answer_of(broker_id))

    def topics_changed(
        self,
        topics: Mapping[str, TopicAssignment],
        states: Mapping[TopicPartition, VersionedState],
        unreadable: Collection[str] = (),
    ) -> Iterator[Effect]:
        """Compare all current topics with the known ones: forget topics that are gone, and add new ones.

        `states` has the states of the partitions of new topics, and `unreadable` names the topics that could not be
        read. A topic that is being deleted is forgotten by `topic_removed` only.
        """
        # A topic that can be read now stays unreadable until it is added, so that it never seems to be gone.
        self.context.unreadable_topics |= set(unreadable)
        for topic in sorted(set(self.context.topics) - set(topics)):
            if not self.replica_deletion.is_deleting(topic):
                yield from self.context.forget(topic)
        fresh = [assignment for name, assignment in sorted(topics.items()) if name not in self.context.topics]
        partitions = yield from self._add_topics(fresh, states)
        self.context.unreadable_topics = set(unreadable)
        yield from self._reconsider(partitions)
        yield from self._clear_possibly_short()

    def topics_created(
        self, assignments: Iterable[TopicAssignment], states: Mapping[TopicPartition, VersionedState] | None = None
    ) -> Iterator[Effect]:
        """Add topics whose assignment has been written; known topics are ignored.

        `states` has the states that exist already. A partition without a state gets its first one when a replica is
        alive.
        """
        partitions = yield from self._add_topics(assignments, states or {})
        yield from self._reconsider(partitions)
        yield from self._clear_possibly_short()

    def _add_topics(
        self, assignments: Iterable[TopicAssignment], states: Mapping[TopicPartition, VersionedState]
    ) -> Generator[Effect, None, list[TopicPartition]]:
        """Add topics that are not known yet, and send the states that exist already. Return their partitions."""
        partitions: list[TopicPartition] = []
        for assignment in assignments:
            if assignment.topic not in self.context.topics:
                yield from self.context.adopt(assignment)
                partitions += assignment.topic_partitions()
        found = {tp: states[tp] for tp in partitions if tp in states}
        yield from self._set_states(found)
        for broker_id, broker in (self.context.brokers | self.context.registering).items():
            if broker.possibly_short:  # the mark was not applied to partitions that could not be read
                yield from self._mark_suspect(broker_id, found)
        for step in in_steps(found):
            yield from self._send_states(step)
            yield from pause_after(step)
        return partitions

    def assignment_written(self, assignment: TopicAssignment) -> Iterator[Effect]:
        """Apply the current assignment of a known topic, with partitions added, reassigned, or completed.

        A topic that is unknown or being deleted is ignored.
        """
        if assignment.topic in self.context.topics and not self.replica_deletion.is_deleting(assignment.topic):
            changed = yield from self.context.reassign(assignment)
            yield from self._reconsider(changed)
            yield from self.replica_deletion.completed()

    def states_written(self, outcomes: Iterable[WriteOutcome]) -> Iterator[Effect]:
        """Apply the outcomes of `WriteState` effects, send each resulting state to replicas and clients, and decide
        again.

        A refused write is replaced by the state that was found. An outcome for a partition without a write in flight is
        ignored.
        """
        context = self.context
        known: list[TopicPartition] = []
        removed: list[TopicPartition] = []
        for outcome in outcomes:
            tp, before = outcome.tp, context.partitions.get(outcome.tp)
            if before is None or before.in_flight is None:
                continue
            if isinstance(outcome, Written):
                after = before.written(outcome.partition_epoch)
                if after.replicas != before.replicas:
                    removed.append(tp)
            else:
                after = before.refused(outcome.actual)
            context.put(after)
            if after.known is None:
                continue
            known.append(tp)
            if isinstance(outcome, WriteRefused) and self._stays(tp) and self._waits_for_suspect(tp):
                yield from self._bump_epochs([tp])
        for broker_id, broker in context.registering.items():
            if broker.possibly_short:  # its previous registration may have joined an ISR meanwhile
                yield from self._mark_suspect(broker_id)
        yield from self._send_states(list(filter(self._stays, known)))
        yield from self.replica_deletion.stop_removed(removed)
        yield from self._reconsider(known)
        yield from self._bring_online()
        yield from self.replica_deletion.completed()

    def states_read(
        self, states: Mapping[TopicPartition, VersionedState], topic_ids: Mapping[str, str]
    ) -> Iterator[Effect]:
        """Apply states that leaders have changed, read because of a notification; a state that is not newer is ignored.

        Newer states are sent to all brokers for their clients. `topic_ids` are those known when the reading began. A
        state with another topic id may belong to an earlier topic of the same name, and is ignored.
        """
        newer: list[TopicPartition] = []
        for step in in_steps(states):
            for tp in step:
                before = self.context.partitions.get(tp)
                if before is not None and topic_ids.get(tp.topic) == self.context.topics[tp.topic].topic_id:
                    after = before.read(states[tp])
                    self.context.put(after)
                    if after.known is not before.known:
                        newer.append(tp)
            yield from pause_after(step)
        yield from self._send_and_reconsider(newer)

    def configs_changed(self, configs: Mapping[str, Mapping[str, str]]) -> Iterator[Effect]:
        """Replace the settings of these topics, send their partitions to all brokers if the settings changed, and
        decide again.

        `configs` has all settings of each topic. Unknown topics are ignored.
        """
        topics = self.context.topics
        changed = [topic for topic in sorted(configs.keys() & topics) if configs[topic] != topics[topic].configs]
        for topic in changed:
            yield from self.context.set_configs(topic, configs[topic])
        # A partition whose first state is being written is sent, with these settings, once it is written.
        yield from self._send_and_reconsider(tp for topic in changed for tp in topics[topic].topic_partitions())

    def log_ends_reported(self, broker_id: int, ends: Mapping[TopicPartition, LogEnd], asked: int) -> Iterator[Effect]:
        """Note how far a broker's logs reach, and decide again; the request was sent in liveness epoch `asked`.

        A partition whose log ends are not being asked for is ignored.
        """
        queried: list[TopicPartition] = []
        for tp in sorted(ends):
            partition = self.context.partitions.get(tp)
            if partition is not None and (query := partition.log_end_query) is not None:
                self.context.put(replace(partition, log_end_query=query.with_answer(broker_id, ends[tp], asked)))
                queried.append(tp)
        yield from self._reconsider(queried)

    def time_passed(self, now_ms: int) -> Iterator[Effect]:
        """Start the timers of new waits, and decide again where a wait has timed out since the last call.

        Such waits are for absent brokers, for log ends, or for a proof of liveness. `now_ms` is a reading of the
        monotonic clock; the caller calls regularly.
        """
        brokers, before_ms, self._now_ms = self.context.broker_sets, self._now_ms, now_ms
        due: list[TopicPartition] = []
        for step in in_steps(self.context.waiting_partitions()):
            for partition in step:
                partition = partition.with_timers_started(now_ms, brokers)
                self.context.put(partition)
                times = partition.timeouts()
                if any(timer.is_over(now_ms, after) and not timer.is_over(before_ms, after) for timer, after in times):
                    due.append(partition.topic_partition)
            yield from pause_after(step)
        yield from self._reconsider(due)

    def log_directory_failed(self, broker_ids: Iterable[int]) -> Iterator[Effect]:
        """Send LeaderAndIsr for all partitions that these brokers host, so that each answer reports the offline
        replicas.

        Brokers that are not online are ignored.
        """
        for broker_id in sorted(self.context.brokers.keys() & set(broker_ids)):
            for step in in_steps(filter(self._stays, self.context.hosted.get(broker_id, ()))):
                yield from self.context.leader_and_isr(step, [broker_id])
                yield from pause_after(step)

    def replicas_answered(
        self,
        broker_id: int,
        online: Collection[TopicPartition],
        offline: Collection[TopicPartition],
        lacking: Collection[TopicPartition] = (),
    ) -> Iterator[Effect]:
        """Note which replicas a broker reported as online, as offline, or as lacking committed records, and decide
        again.

        An offline replica neither leads nor is in sync. A replica with a loss goes online once it is out of the ISR, or
        leads uncleanly. A new failure counts as a loss of the broker (`liveness`).
        """
        changed: list[TopicPartition] = []
        any_failed = False
        for tp in sorted({*online, *offline, *lacking}):
            before = self.context.partitions.get(tp)
            if before is None:
                continue
            after = before.reported(broker_id, online=tp in online, offline=tp in offline, lacks=tp in lacking)
            if (after.offline, after.with_loss) != (before.offline, before.with_loss):
                changed.append(tp)
                any_failed |= after.offline > before.offline or after.with_loss > before.with_loss
                self.context.put(after)
        yield from self._note_lost([broker_id] if any_failed else [])
        yield from self._reconsider(changed)

    def leadership_ended(self, broker_id: int, epochs: Mapping[TopicPartition, int]) -> Iterator[Effect]:
        """Begin new leader epochs for partitions that a broker led in these epochs before a restart that went
        unnoticed.

        A partition that the broker does not lead in the given leader epoch is ignored.
        """
        ended = [
            tp
            for tp in sorted(epochs)
            if (state := self.context.state_of(tp)) is not None
            and (state.leader, state.leader_epoch) == (broker_id, epochs[tp])
        ]
        yield from self._bump_epochs(ended)
        yield from self._reconsider(ended)

    def shutdown_wanted(self, broker_id: int) -> Iterator[Effect]:
        """Begin a controlled shutdown: the broker hands over its leaderships where possible, and leaves the ISRs.

        The broker leaves an ISR only if no write of that partition is in flight; a repeated request removes it later. A
        broker that is not online is ignored.
        """
        if broker_id not in self.context.brokers:
            return
        self.context.shutting_down.add(broker_id)
        yield from self._note_lost([broker_id])
        for step in in_steps(self.context.hosted_by(broker_id)):
            for partition in step:
                if partition.in_flight is None and self._stays(partition.topic_partition):
                    self.context.put(replace(partition, evict_shutting_down=True))
            yield from pause_after(step)
        yield from self._reconsider(sorted(self.context.hosted.get(broker_id, ())))

    def elections_wanted(self, tps: Iterable[TopicPartition], *, unclean: bool = False) -> Iterator[Effect]:
        """Request an election of each partition: of its preferred leader if in sync, or of any live replica if
        `unclean`.

        An unclean election takes place only without a leader, and elects the replica whose log reaches farthest.
        Partitions without a state, or of a topic that is being deleted, are ignored. `election_refusal` says why an
        election would have no effect: before this call, or when `election_in_progress` is over.
        """
        requested = ElectionType.UNCLEAN if unclean else ElectionType.PREFERRED
        wanted = [tp for tp in tps if self.context.state_of(tp) is not None and self._stays(tp)]
        for step in in_steps(wanted):
            for tp in step:
                self.context.put(replace(self.context.partitions[tp], requested_election=requested))
            yield from pause_after(step)
        yield from self._reconsider(wanted)

    def deletions_wanted(self, topics: Iterable[str]) -> Iterator[Effect]:
        """Begin to delete topics: drop their partitions' work, and have all live brokers delete their replicas.

        Only the request is removed for a topic that does not exist. A topic that is already being deleted is ignored.
        """
        for topic in topics:
            if not self.replica_deletion.is_deleting(topic):
                yield from self.replica_deletion.delete(topic)
                known = self.context.topics.get(topic)
                for step in in_steps(known.topic_partitions() if known else ()):
                    for tp in step:
                        self.context.put(self.context.partitions[tp].without_work())
                    yield from pause_after(step)
        yield from self.replica_deletion.completed()

    def replicas_stopped(self, broker_id: int, tps: Iterable[TopicPartition]) -> Iterator[Effect]:
        """Note that a broker has deleted its replicas of these partitions.

        The effects remove each topic, or complete each reassignment, for which this was the last live replica to
        delete.
        """
        self.replica_deletion.on_stopped(broker_id, tps)
        yield from self.replica_deletion.completed()

    def topic_removed(self, topic: str) -> Iterator[Effect]:
        """Forget a deleted topic, and its deletion, when its znodes are removed."""
        yield from self.context.forget(topic)
        self.replica_deletion.on_topic_removed(topic)
        yield from self._clear_possibly_short()

    # --- queries -------------------------------------------------------------------------------------

    def away_from_preferred(self, percentage: int) -> list[TopicPartition]:
        """Return, in order, the partitions whose preferred leader should be elected.

        If other brokers lead more than `percentage` % of the partitions that prefer one broker, all partitions that
        prefer this broker and have another leader are returned. Partitions that are being reassigned do not count.
        """
        leaders = {
            tp: (partition.replicas[0], partition.known.state.leader)
            for tp, partition in self.context.partitions.items()
            if partition.known is not None and self._stays(tp) and partition.reassignment is None
        }
        return imbalanced(leaders, percentage)

    def every_topic(self) -> dict[str, str]:
        """Return the ids of all topics that are not being deleted, by name; "" for topics that cannot be read."""
        deletion, topics = self.replica_deletion, self.context.topics
        ids = {name: topic.topic_id for name, topic in topics.items() if not deletion.is_deleting(name)}
        return dict.fromkeys(self.context.unreadable_topics, "") | ids

    def has_pending_work(self, broker_id: int) -> bool:
        """Return whether a partition hosted by this broker has a write in flight, is due a new leader epoch, or waits
        for a proof of liveness.
        """
        return any(
            each.in_flight or each.epoch_bump or each.liveness_wait for each in self.context.unfinished_on(broker_id)
        )

    def election_in_progress(self, tp: TopicPartition) -> bool:
        """Return whether a requested election of this partition has not ended, or any write of its state is in flight.

        False for an unknown partition.
        """
        partition = self.context.partitions.get(tp)
        return partition is not None and (partition.in_flight or partition.requested_election) is not None

    def election_refusal(self, tp: TopicPartition, *, unclean: bool) -> BrokerError | None:
        """Return why a requested election would have no effect at present, or None. The partition must have a state."""
        partition, brokers = self.context.partitions[tp], self.context.broker_sets
        assert partition.known is not None
        state = partition.known.state
        if unclean:
            return election_refusal(state, partition.holders, partition.online(brokers), unclean=True)
        live = partition.trusted(brokers) - brokers.shutting_down
        return election_refusal(state, partition.replicas, live, unclean=False)

    # --- decisions -----------------------------------------------------------------------------------

    def _reconsider(self, tps: Iterable[TopicPartition]) -> Iterator[Effect]:
        """Decide about these partitions, store their new contexts, and yield the effects of the decisions.

        A partition that is unknown, has a write in flight, or belongs to a topic that is being deleted is skipped.
        """
        brokers = self.context.broker_sets
        probed: set[int] = set()
        log_ends_of: dict[int, list[TopicPartition]] = {}
        confirmed: list[TopicPartition] = []

        def is_led(tp: TopicPartition) -> bool:
            state = self.context.state_of(tp)
            return state is not None and state.leader in brokers.online - brokers.shutting_down

        for step in in_steps(sorted(tps, key=is_led)):  # first those without a leader, because clients wait for them
            for tp in step:
                partition = self.context.partitions.get(tp)
                if partition is None or partition.in_flight is not None or not self._stays(tp):
                    continue
                for decision in self._decide(partition, brokers):
                    match decision:
                        case Write(state):
                            expected = NO_VERSION if partition.known is None else partition.known.partition_epoch
                            yield WriteState(tp, state, expected)
                        case Ask(Question.LOG_ENDS, asked):
                            for broker_id in asked:
                                log_ends_of.setdefault(broker_id, []).append(tp)
                        case Ask(_, asked):
                            probed.update(asked)
                        case ConfirmRemoval():
                            confirmed.append(tp)
            yield from pause_after(step)
        yield from self._delete_removed_replicas(confirmed)
        if probed:
            yield SendMetadata(tuple(sorted(probed)))
        for broker_id, replicas in sorted(log_ends_of.items()):
            yield AskLogEnds(broker_id, tuple(replicas))

    def _decide(self, partition: PartitionContext, brokers: BrokerSets) -> Iterator[Decision]:
        """Yield decisions about a partition until one is final: Write, Wait or Nothing.

        The partition's context is stored after the last one, so the caller must exhaust the iterator.
        """
        decision: Decision | None = None
        while not isinstance(decision, Write | Wait | Nothing):
            partition = review(partition, brokers, self.liveness)
            decision = decide(partition, brokers, self.liveness, self._now_ms)
            if isinstance(decision, Ask) and decision.question is not Question.LOG_ENDS:
                self.liveness.new_epoch()  # only an answer to this question counts
            partition = partition.after(decision, self.liveness.epoch)
            yield decision
        self.context.put(partition)

    def _delete_removed_replicas(self, tps: Collection[TopicPartition]) -> Iterator[Effect]:
        """Have brokers delete replicas that a reassignment removed, and send the partitions' metadata to all live
        brokers.
        """
        if not tps:
            return
        yield from self.replica_deletion.delete_removed(tps, self.context.brokers)
        for step in in_steps(tps):
            for tp in step:
                self.context.host(tp)
            yield SendMetadata(tuple(sorted(self.context.brokers)), self.context.messages(step))
            yield from pause_after(step)
        yield from self.replica_deletion.completed()

    def _bump_epochs(self, tps: Iterable[TopicPartition]) -> Iterator[Effect]:
        """Note that the leaders of these partitions need a new epoch, except where the topic is being deleted.

        The caller decides about the partitions afterwards.
        """
        for step in in_steps(filter(self._stays, tps)):
            for tp in step:
                self.context.put(replace(self.context.partitions[tp], epoch_bump=True))
            yield from pause_after(step)

    def _is_led_by_restarted_broker(self, tp: TopicPartition) -> bool:
        """Return whether the partition's leader registered after the partition's state was written.

        Such a leader restarted while there was no controller.
        """
        known = self.context.partitions[tp].known
        leader = self.context.brokers.get(known.state.leader) if known is not None else None
        return known is not None and leader is not None and -1 < known.mzxid < leader.epoch

    def _gets_another_state_soon(self, partition: PartitionContext) -> bool:
        """Return whether replicas are not sent the present state, because a write, or a leader, is still to come."""
        if partition.in_flight is not None or partition.epoch_bump:
            return True
        leader = partition.known.state.leader if partition.known else None
        return partition.liveness_wait is not None and leader not in self.context.brokers

    # --- brokers -------------------------------------------------------------------------------------

    def _note_lost(self, broker_ids: Collection[int]) -> Iterator[Effect]:
        """Begin a liveness epoch in which these brokers count as lost, and send UpdateMetadata to all live brokers.

        Each answer proves that its broker is alive. Without brokers in `broker_ids` nothing happens.
        """
        if broker_ids:
            self.liveness.note_lost(broker_ids)
            if self.context.brokers:
                yield SendMetadata(tuple(sorted(self.context.brokers)))

    def _broker_failed(self, broker_id: int) -> Iterator[Effect]:
        context = self.context
        context.registering.pop(broker_id, None)
        context.shutting_down.discard(broker_id)
        if context.brokers.pop(broker_id, None):
            yield CloseChannel(broker_id)
        self.liveness.on_registration_ended(broker_id)
        for step in in_steps(context.partitions.values()):
            for partition in step:
                if (without := partition.without_reports_of(broker_id)) is not partition:
                    context.put(without)
            yield from pause_after(step)
        self.replica_deletion.on_failed(broker_id)

    def _addresses_changed(
        self, broker_ids: Iterable[int], brokers: Mapping[int, BrokerRegistration]
    ) -> Iterator[Effect]:
        """Take over the addresses of registered brokers, move their channels, and send UpdateMetadata to all brokers.

        The marks `possibly_short` stay as they are known, because this controller itself clears them.
        """
        any_moved = False
        for broker_id in broker_ids:
            group = self.context.brokers if broker_id in self.context.brokers else self.context.registering
            if group[broker_id].listeners != brokers[broker_id].listeners:
                group[broker_id] = replace(group[broker_id], listeners=brokers[broker_id].listeners)
                if group is self.context.brokers:
                    any_moved = True
                    yield MoveChannel(group[broker_id])
        if any_moved:
            yield SendMetadata(tuple(sorted(self.context.brokers)))

    def _delay_registrations(self, brokers: Mapping[int, BrokerRegistration]) -> Iterator[Effect]:
        """Note new registrations, which are brought online once their previous registrations are dealt with.

        If a broker is marked `possibly_short`, it becomes a suspect ISR member, and the leaders of its partitions get a
        new epoch first. Otherwise their ISR changes in flight could add its previous registration to an ISR.
        """
        self.context.registering |= brokers
        for broker_id, broker in brokers.items():
            self.replica_deletion.on_registering(broker_id)
            if broker.possibly_short:
                yield from self._mark_suspect(broker_id)
                hosted = self.context.hosted_by(broker_id)
                yield from self._bump_epochs([each.topic_partition for each in hosted if each.known])

    def _bring_online(self) -> Iterator[Effect]:
        """Bring online the registering brokers whose previous registrations are dealt with, and decide about their
        partitions.

        Each is sent all partitions that it hosts, and the metadata of all topics. Brokers that were online before learn
        of them. Marks `possibly_short` that nothing depends on are cleared.
        """
        context = self.context
        ready = [broker_id for broker_id in sorted(context.registering) if not self._must_delay_registration(broker_id)]
        before = tuple(sorted(context.brokers))
        for broker_id in ready:
            context.brokers[broker_id] = context.registering.pop(broker_id)
            yield OpenChannel(context.brokers[broker_id])
        if before and ready:
            yield SendMetadata(before)
        if ready:
            for step in in_steps(filter(self._stays, context.partitions)):
                yield from context.leader_and_isr(step, ready)
                yield SendMetadata(tuple(ready), context.messages(step))
                yield from pause_after(step)
            yield from self.replica_deletion.on_ready(ready)
            yield from self._send_every_topic(ready)
            yield from self._reconsider(sorted(tp for id_ in ready for tp in context.hosted.get(id_, ())))
        yield from self._clear_possibly_short()

    def _must_delay_registration(self, broker_id: int) -> bool:
        """Return whether the state of a hosted partition still counts on the broker's previous registration."""
        return any(each.must_delay_registration(broker_id) for each in self.context.unfinished_on(broker_id))

    def _mark_suspect(self, broker_id: int, tps: Collection[TopicPartition] | None = None) -> Iterator[Effect]:
        """Mark a broker whose logs (of these partitions; None: all) may be short as suspect where it is in the ISR.

        Other ISR members lead as long as one of them is trusted.
        """
        for step in in_steps(self.context.hosted_by(broker_id)):
            for partition in step:
                if tps is None or partition.topic_partition in tps:
                    self.context.put(partition.with_suspect(broker_id))
            yield from pause_after(step)

    def _waits_for_suspect(self, tp: TopicPartition) -> bool:
        """Return whether a registering broker that hosts this partition is marked `possibly_short`."""
        registering, hosted = self.context.registering, self.context.hosted
        return any(each.possibly_short and tp in hosted.get(id_, ()) for id_, each in registering.items())

    def _clear_possibly_short(self) -> Iterator[Effect]:
        """Yield the effects that clear the mark `possibly_short` of online brokers that are suspect for no partition
        any more.

        The mark of the known registration is cleared at once. Nothing is cleared while a topic cannot be read, because
        its partitions may depend on the mark.
        """
        if self.context.unreadable_topics:
            return
        for broker_id, broker in sorted(self.context.brokers.items()):
            if broker.possibly_short and not any(
                each.is_suspect(broker_id) for each in self.context.waiting_partitions()
            ):
                self.context.brokers[broker_id] = replace(broker, possibly_short=False)
                yield ClearPossiblyShort(broker)

    # --- states --------------------------------------------------------------------------------------

    def _stays(self, tp: TopicPartition) -> bool:
        return self.replica_deletion.stays(tp)

    def _set_states(self, states: Mapping[TopicPartition, VersionedState]) -> Iterator[Effect]:
        for step in in_steps(states):
            for tp in step:
                if (partition := self.context.partitions.get(tp)) is not None:
                    self.context.put(replace(partition, known=states[tp]))
            yield from pause_after(step)

    def _send_and_reconsider(self, tps: Iterable[TopicPartition]) -> Iterator[Effect]:
        """Send the states of these partitions to all brokers for their clients, and decide again.

        Partitions without a state, or of a topic that is being deleted, are skipped.
        """
        staying = [tp for tp in tps if self.context.state_of(tp) is not None and self._stays(tp)]
        for step in in_steps(staying):
            yield SendMetadata(tuple(sorted(self.context.brokers)), self.context.messages(step))
            yield from pause_after(step)
        yield from self._reconsider(staying)

    def _send_states(
        self, tps: Sequence[TopicPartition], *, to_clients: Sequence[TopicPartition] | None = None
    ) -> Iterator[Effect]:
        """Send the states of `tps` to their replicas, and of `to_clients` (None: `tps`) to all brokers for their
        clients.

        Nothing is sent while no broker is online.
        """
        brokers = tuple(sorted(self.context.brokers))
        yield from self.context.leader_and_isr(tps, brokers)
        if brokers and (shown := self.context.messages(tps if to_clients is None else to_clients)):
            yield SendMetadata(brokers, shown)

    def _send_every_topic(self, broker_ids: Iterable[int]) -> Iterator[Effect]:
        """Send the list of all topics to these brokers, which may have missed deletions."""
        if brokers := tuple(sorted(broker_ids)):
            yield SendMetadata(brokers, whole=True)
