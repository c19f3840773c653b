"""The facts that a controller knows: live brokers, topics, and the context of each partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from dataclasses import replace

from cluster.controller.effects import Effect, SendLeaderAndIsr, SendStopReplica
from cluster.controller.partition_context import BrokerSets, ElectionPolicy, PartitionContext
from cluster.controller.replicas.placement import BrokerLoad
from cluster.controller.replicas.reassignment import ReassignmentProgress
from cluster.controller.steps import in_steps, pause_after
from cluster.state import BrokerRegistration, PartitionState, ReplicaAssignment, TopicAssignment
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import (
    ANY_EPOCH,
    BrokerInfo,
    ListenerAddress,
    PartitionStateMessage,
    StopReplicaPartition,
    TopicInfo,
)

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class ControllerContext:
    """The controller's knowledge of the cluster (Kafka: ControllerContext). Only `Controller` changes it.

    brokers             live brokers that are online, by id
    shutting_down       those of them in a controlled shutdown
    registering         registered brokers that are brought online once their previous registration is dealt with, by id
    topics              the assignments of all topics that can be read, by name, including topics that are being deleted
    unreadable_topics   names of topics whose assignments, or some of whose states, cannot be read
    partitions          the context of each partition of `topics`; changed with `put` only
    hosted              by broker id, the partitions of which the broker may have a log
    preferred           by broker id, how many partitions have it as their preferred leader after their reassignments

    `put` keeps four sets of partitions, so that the cost of an event depends on how many partitions it changes, and not
    on how many exist:
    in_flight           those with a write in flight
    waiting             those that wait for brokers, a timeout, or a new leader epoch (`PartitionContext.waits`)
    moving              those that are being reassigned
    moved               the partitions of `moving` whose context has changed since the last `take_moved`
    """

    def __init__(self, default_policy: ElectionPolicy) -> None:
        self.brokers: dict[int, BrokerRegistration] = {}
        self.shutting_down: set[int] = set()
        self.registering: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicAssignment] = {}
        self.unreadable_topics: set[str] = set()
        self.partitions: dict[TopicPartition, PartitionContext] = {}
        self.hosted: dict[int, set[TopicPartition]] = {}
        self.preferred: Counter[int] = Counter()
        self.in_flight: set[TopicPartition] = set()
        self.waiting: set[TopicPartition] = set()
        self.moving: set[TopicPartition] = set()
        self.moved: set[TopicPartition] = set()
        self._default_policy = default_policy

    # --- partitions ----------------------------------------------------------------------------------

    def put(self, partition: PartitionContext) -> None:
        """Add or replace the context of a partition."""
        tp = partition.topic_partition
        before = self.partitions.get(tp)
        if before is None or before.assigned is not partition.assigned:
            self.preferred.update(partition.assigned.target[:1])
            self.preferred.subtract(before.assigned.target[:1] if before is not None else ())
        self.partitions[tp] = partition
        _include(self.in_flight, tp, partition.in_flight is not None)
        _include(self.waiting, tp, partition.waits)
        for among in (self.moving, self.moved):
            _include(among, tp, partition.reassignment is not None)

    def waiting_partitions(self) -> Iterator[PartitionContext]:
        """Return the contexts of the partitions in `waiting`, in order of topic and number."""
        return (self.partitions[tp] for tp in sorted(self.waiting))

    def reassignments(self) -> dict[TopicPartition, ReassignmentProgress]:
        """Return the progress of each partition that is being reassigned, in order of the partitions."""
        progress = ((tp, self.partitions[tp].reassignment) for tp in sorted(self.moving))
        return {tp: move for tp, move in progress if move is not None}

    def unfinished_on(self, broker_id: int) -> Iterator[PartitionContext]:
        """Return the contexts of the partitions in `in_flight` or `waiting` of which the broker may have a log, in no
        order.
        """
        hosted = self.hosted.get(broker_id, set())
        return (self.partitions[tp] for tp in (self.in_flight & hosted) | (self.waiting & hosted))

    def take_moved(self) -> list[PartitionContext]:
        """Empty `moved`, and return the contexts that were in it, in order of topic and number."""
        moved, self.moved = self.moved, set()
        return [self.partitions[tp] for tp in sorted(moved)]

    def hosted_by(self, broker_id: int) -> Iterator[PartitionContext]:
        """Return the contexts of the partitions of which the broker may have a log, in no order."""
        return (self.partitions[tp] for tp in self.hosted.get(broker_id, ()))

    def held_partitions(self) -> dict[int, int]:
        """Return how many partitions each broker may have a log of, by broker id."""
        return {broker_id: len(hosted) for broker_id, hosted in self.hosted.items()}

    def load(self) -> BrokerLoad:
        """Return what each broker has of all topics, for the placement of more."""
        return BrokerLoad(self.preferred, self.held_partitions())

    def racks(self) -> dict[int, str]:
        """Return the racks of the online brokers that have one, by broker id."""
        return {broker_id: broker.rack for broker_id, broker in self.brokers.items() if broker.rack}

    def state_of(self, tp: TopicPartition) -> PartitionState | None:
        """Return the last known state of a partition; None if there is none, or no such partition."""
        partition = self.partitions.get(tp)
        return None if partition is None or partition.known is None else partition.known.state

    def adopt(self, assignment: TopicAssignment) -> Iterator[Effect]:
        """Add a topic that is unknown so far, with pauses. Its partitions have no state yet."""
        self.topics[assignment.topic] = assignment
        for step in in_steps(assignment.topic_partitions()):
            for tp in step:
                self._add(tp, assignment)
            yield from pause_after(step)

    def reassign(self, assignment: TopicAssignment) -> Generator[Effect, None, list[TopicPartition]]:
        """Replace a known topic's assignment, except its settings, with pauses. Return the partitions to decide about.

        New partitions, and partitions whose replicas changed, are returned. A partition whose removed replicas are gone
        and whose assignment becomes the target needs no decision, because the brokers already know.
        """
        before = self.topics[assignment.topic]
        # Keep the known settings. Changed ones are sent to brokers only when their notification is handled.
        self.topics[assignment.topic] = replace(assignment, configs=before.configs)
        changed: list[TopicPartition] = []
        for step in in_steps(assignment.topic_partitions()):
            for tp in step:
                if tp.partition not in before.partitions:
                    self._add(tp, assignment)
                    changed.append(tp)
                elif self._assign(tp, assignment.assigned(tp.partition)):
                    changed.append(tp)
            yield from pause_after(step)
        return changed

    def _assign(self, tp: TopicPartition, now: ReplicaAssignment) -> bool:
        """Replace the assigned replicas of a known partition. Return whether the controller has to decide about it."""
        partition = self.partitions[tp]
        was, move = partition.assigned, partition.reassignment
        if now == was:
            if move is not None:
                self.put(replace(partition, reassignment=replace(move, completing=False)))
            return False
        brokers_know = move is not None and move.removed and now == was.completed()
        self.put(replace(partition, assigned=now, reassignment=None if brokers_know else ReassignmentProgress()))
        self.host(tp)
        return not brokers_know

    def set_configs(self, topic: str, configs: Mapping[str, str]) -> Iterator[Effect]:
        """Replace the settings of a known topic, and derive the election policy of its partitions from them, with
        pauses.
        """
        self.topics[topic] = replace(self.topics[topic], configs=dict(configs))
        policy = self._policy(topic)
        for step in in_steps(self.topics[topic].topic_partitions()):
            for tp in step:
                self.put(replace(self.partitions[tp], policy=policy))
            yield from pause_after(step)

    def forget(self, topic: str) -> Iterator[Effect]:
        """Remove a topic and all that is known of its partitions, with pauses; do nothing if the topic is unknown."""
        assignment = self.topics.pop(topic, None)
        for step in in_steps(assignment.topic_partitions() if assignment else ()):
            for tp in step:
                self.preferred.subtract(self.partitions.pop(tp).assigned.target[:1])
                for among in (self.in_flight, self.waiting, self.moving, self.moved, *self.hosted.values()):
                    among.discard(tp)
            yield from pause_after(step)

    def _add(self, tp: TopicPartition, assignment: TopicAssignment) -> None:
        assigned = assignment.assigned(tp.partition)
        progress = ReassignmentProgress() if assigned.moving else None
        self.put(PartitionContext(tp, assigned, self._policy(tp.topic), reassignment=progress))
        self.host(tp)

    def _policy(self, topic: str) -> ElectionPolicy:
        default, configs = self._default_policy, self.topics[topic].configs
        unclean, least = configs.get(UNCLEAN_ELECTION), configs.get(MIN_INSYNC_REPLICAS)
        return replace(
            default,
            allows_unclean=default.allows_unclean if unclean is None else unclean.lower() == "true",
            # Another tool may have written a value that no broker accepts.
            min_insync_replicas=int(least) if least is not None and least.isdecimal() else default.min_insync_replicas,
        )

    # --- queries -------------------------------------------------------------------------------------

    @property
    def broker_sets(self) -> BrokerSets:
        """Return the ids of the online, shutting-down and registering brokers, for `leader_selection.decide`."""
        return BrokerSets(frozenset(self.brokers), frozenset(self.shutting_down), frozenset(self.registering))

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        """Return the partitions that a broker leads by the last known states, in order."""
        hosted = self.hosted_by(broker_id)
        return sorted(each.topic_partition for each in hosted if each.known and each.known.state.leader == broker_id)

    def topic_partitions(self) -> list[TopicPartition]:
        """Return all partitions of all topics, in order of topic and number."""
        return [tp for _, assignment in sorted(self.topics.items()) for tp in assignment.topic_partitions()]

    def assigned_to(self, broker_id: int, topic: str) -> list[TopicPartition]:
        """Return the partitions of a known topic whose assignment names this broker, including replicas being added or
        removed.
        """
        assignment = self.topics[topic]
        return [tp for tp in assignment.topic_partitions() if broker_id in assignment.partitions[tp.partition]]

    # --- requests to brokers -------------------------------------------------------------------------

    def leader_and_isr(self, tps: Collection[TopicPartition], broker_ids: Iterable[int]) -> Iterator[Effect]:
        """Yield one LeaderAndIsr request for each of these brokers, with the known states of its own replicas among
        `tps`.

        A broker without such a replica gets no request.
        """
        for broker_id in broker_ids:
            hosted = self.hosted.get(broker_id, set())
            mine = self.messages(tp for tp in tps if tp in hosted and broker_id in self.partitions[tp].replicas)
            if mine:
                yield SendLeaderAndIsr(broker_id, mine)

    def stop_replicas(
        self, broker_id: int, tps: Iterable[TopicPartition], *, in_any_epoch: bool = False, delete: bool = True
    ) -> Iterator[Effect]:
        """Yield StopReplica requests that stop a broker's replicas of these partitions, and delete them if `delete`.

        No request without partitions. A request carries each partition's last known leader epoch, 0 without a state.
        `in_any_epoch`: the broker obeys even if it knows a later leader epoch than this controller.
        """
        for step in in_steps(tps):
            states = {tp: self.state_of(tp) for tp in step}
            epochs = {tp: 0 if state is None else state.leader_epoch for tp, state in states.items()}
            yield SendStopReplica(
                broker_id,
                tuple(
                    StopReplicaPartition(tp.topic, tp.partition, ANY_EPOCH if in_any_epoch else epoch, delete)
                    for tp, epoch in epochs.items()
                ),
            )
            yield from pause_after(step)

    def ids_of(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the ids of those of these topics that are known, by name, including topics that are being deleted."""
        return {name: self.topics[name].topic_id for name in topics if name in self.topics}

    # --- conversion to messages -----------------------------------------------------------------------

    def live_brokers(self) -> tuple[BrokerInfo, ...]:
        """Return the live brokers in the form of the messages, in order of their ids."""
        return tuple(
            BrokerInfo(
                b.broker_id,
                b.epoch,
                tuple(ListenerAddress(name, at.host, at.port) for name, at in sorted(b.listeners.items())),
                id_ in self.shutting_down,
                b.rack,
            )
            for id_, b in sorted(self.brokers.items())
        )

    def topic_infos(self, topics: Iterable[str]) -> tuple[TopicInfo, ...]:
        """Return id, settings and partition count of those topics that are known, in order of their names."""
        known = (self.topics[topic] for topic in sorted(set(topics)) if topic in self.topics)
        return tuple(
            TopicInfo(topic.topic, topic.topic_id, dict(topic.configs), len(topic.partitions)) for topic in known
        )

    def messages(self, tps: Iterable[TopicPartition]) -> tuple[PartitionStateMessage, ...]:
        """Return the known states of these partitions in the form of the messages, in order; partitions without one are
        left out.

        A broker that is neither in `replicas` nor in `leaving` sets aside any log of the partition.
        """
        return tuple(
            PartitionStateMessage(
                topic=tp.topic,
                partition=tp.partition,
                controller_epoch=known.state.controller_epoch,
                leader=known.state.leader,
                leader_epoch=known.state.leader_epoch,
                isr=known.state.isr,
                partition_epoch=known.partition_epoch,
                replicas=partition.replicas,
                unclean=partition.unclean_epoch == known.state.leader_epoch,
                leaving=tuple(each for each in partition.holders if each not in partition.replicas),
            )
            for tp in sorted(tps)
            if (known := (partition := self.partitions[tp]).known) is not None
        )

    # --- changing ------------------------------------------------------------------------------------

    def host(self, tp: TopicPartition) -> None:
        """Update `hosted` for a partition whose holders may have changed.

        Failures and registrations of a broker concern only the partitions that it hosts.
        """
        holders = self.partitions[tp].holders
        for broker_id in holders:
            self.hosted.setdefault(broker_id, set()).add(tp)
        for broker_id, hosted in self.hosted.items():
            if broker_id not in holders:
                hosted.discard(tp)


def _include(among: set[TopicPartition], tp: TopicPartition, included: bool) -> None:
    if included:
        among.add(tp)
    else:
        among.discard(tp)
