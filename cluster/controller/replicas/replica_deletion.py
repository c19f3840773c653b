"""Deletion of replicas: those of deleted topics, and those that a reassignment has removed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from cluster.controller.controller_context import ControllerContext
from cluster.controller.effects import CompleteReassignment, Effect, RemoveTopic, SendMetadata
from cluster.controller.replicas.reassignment import ReassignmentProgress
from cluster.controller.steps import in_steps, pause_after
from cluster.state import TopicAssignment
from tidelog.model import TopicPartition


@dataclass(slots=True)
class _Deletion:
    """A topic that is being deleted.

    waiting    (broker, partition) of the live replicas that have not reported their deletion yet
    removing   the removal of the topic's znodes has begun
    """

    waiting: set[tuple[int, TopicPartition]] = field(default_factory=set)
    removing: bool = False


class ReplicaDeletion:
    """Tracks which broker deletes which replica, and what follows when all have. Only its `Controller` calls it.

    Absent brokers are not waited for. A broker that restarts sets aside by itself the logs that it no longer owns. A
    broker that only lost its session would keep the log and follow a leader that does not count it. The controller
    therefore has that broker delete the log when it registers again. If the controller died meanwhile, such a broker
    learns of the deletion from the next controller's full metadata.
    """

    def __init__(self, known: ControllerContext) -> None:
        self._known = known
        self._deletions: dict[str, _Deletion] = {}
        self._missed_deletions: dict[int, set[TopicPartition]] = {}

    def is_deleting(self, topic: str) -> bool:
        """Return whether the topic is being deleted."""
        return topic in self._deletions

    def stays(self, tp: TopicPartition) -> bool:
        """Return whether the partition's topic is not being deleted."""
        return tp.topic not in self._deletions

    def completed_assignment(self, topic: str) -> TopicAssignment | None:
        """Return the topic's assignment with completed reassignments; None if no reassignment of it is complete.

        A reassignment is complete when it is confirmed and all removed replicas are deleted. None also if the topic
        does not exist or is being deleted.
        """
        known = self._known
        if topic not in known.topics or topic in self._deletions:
            return None
        assignment = known.topics[topic]
        moves = ((tp, move) for tp, move in known.reassignments().items() if tp.topic == topic)
        over = [tp.partition for tp, move in moves if move.completing and not move.deleting]
        return (
            assignment.reassigned({number: assignment.assigned(number).completed() for number in over})
            if over
            else None
        )

    # --- deletions -----------------------------------------------------------------------------------

    def delete(self, topic: str) -> Iterator[Effect]:
        """Begin a deletion; yield the effects that have all live brokers delete their replicas and forget the topic.

        No effects if the topic does not exist: `completed` then removes only the request.
        """
        known = self._known
        deletion = self._deletions[topic] = _Deletion()
        if topic not in known.topics:
            return
        brokers = tuple(sorted(known.brokers))
        yield SendMetadata(brokers, deleted_topics=(topic,))
        for broker_id in (*brokers, *known.registering):
            mine = known.assigned_to(broker_id, topic)
            deletion.waiting |= {(broker_id, tp) for tp in mine}
            if broker_id in known.brokers:
                yield from known.stop_replicas(broker_id, mine, in_any_epoch=True)

    def stop_removed(self, tps: Iterable[TopicPartition]) -> Iterator[Effect]:
        """Yield the effects that stop the removed replicas of these partitions on live brokers.

        Their logs stay until it is certain that the logs are not needed.
        """
        known = self._known
        by_broker: dict[int, list[TopicPartition]] = {}
        for tp in sorted(filter(self.stays, tps)):
            for broker_id in known.topics[tp.topic].removing.get(tp.partition, ()):
                if broker_id in known.brokers:
                    by_broker.setdefault(broker_id, []).append(tp)
        for id_, mine in sorted(by_broker.items()):
            yield from known.stop_replicas(id_, mine, delete=False)

    def delete_removed(self, tps: Iterable[TopicPartition], broker_ids: Collection[int]) -> Iterator[Effect]:
        """Yield the effects that have these brokers delete their removed replicas.

        Registering brokers do so once they are online, and are waited for. Absent brokers are not waited for, and do so
        when they are back.
        """
        known = self._known
        by_broker: dict[int, list[TopicPartition]] = {}
        for step in in_steps(sorted(filter(self.stays, tps))):
            for tp in step:
                for broker_id in known.topics[tp.topic].removing.get(tp.partition, ()):
                    if broker_id in broker_ids or broker_id in known.registering:
                        self._wait_for(tp, broker_id)
                    elif broker_id not in known.brokers:
                        self._missed_deletions.setdefault(broker_id, set()).add(tp)
                    if broker_id in broker_ids:
                        by_broker.setdefault(broker_id, []).append(tp)
            yield from pause_after(step)
        for broker_id, mine in sorted(by_broker.items()):
            yield from known.stop_replicas(broker_id, mine)

    def on_stopped(self, broker_id: int, tps: Iterable[TopicPartition]) -> None:
        """Note that a broker has deleted its replicas of these partitions."""
        for tp in tps:
            if tp.topic in self._deletions:
                self._deletions[tp.topic].waiting.discard((broker_id, tp))
            elif (move := self._progress(tp)) is not None:
                self._set_progress(tp, move.without_deletion_by(broker_id))

    def on_topic_removed(self, topic: str) -> None:
        """Forget the deletion, because the topic's znodes are removed."""
        self._deletions.pop(topic, None)

    def completed(self) -> Iterator[Effect]:
        """Yield the effects that may follow now, each once: removing a topic's znodes, or completing a reassignment.

        A topic waits for its replicas' deletion and for state writes in flight.
        """
        known = self._known
        for topic, deletion in list(self._deletions.items()):
            if deletion.waiting or deletion.removing:
                continue
            if not any(tp.topic == topic for tp in known.in_flight):
                deletion.removing = True
                yield RemoveTopic(topic)
        completing: set[str] = set()
        for step in in_steps(known.take_moved()):
            for partition in step:
                tp, move = partition.topic_partition, partition.reassignment
                assert move is not None
                if move.announced and not partition.assigned.moving:
                    self._set_progress(tp, None)  # only the order of the replicas had changed
                elif move.confirmed and not move.deleting and not move.completing:
                    self._set_progress(tp, replace(move, completing=True))
                    completing.add(tp.topic)
            yield from pause_after(step)
        for topic in sorted(completing):
            yield CompleteReassignment(topic)

    # --- brokers that register and fail --------------------------------------------------------------

    def on_registering(self, broker_id: int) -> None:
        """Wait for a registering broker too, because it may still have replicas that are being deleted."""
        known = self._known
        for topic, deletion in self._deletions_under_way():
            deletion.waiting |= {(broker_id, tp) for tp in known.assigned_to(broker_id, topic)}
        for tp, move in known.reassignments().items():
            if move.removed and broker_id in known.topics[tp.topic].removing.get(tp.partition, ()):
                self._wait_for(tp, broker_id)

    def on_ready(self, broker_ids: Collection[int]) -> Iterator[Effect]:
        """Have brokers that are now online delete replicas of deleted topics and of completed reassignments.

        The latter include those that were completed while the broker was down.
        """
        known = self._known
        for topic, _ in self._deletions_under_way():
            for broker_id in broker_ids:
                yield from known.stop_replicas(broker_id, known.assigned_to(broker_id, topic), in_any_epoch=True)
        confirmed = [tp for tp, move in known.reassignments().items() if move.confirmed]
        yield from self.delete_removed(confirmed, broker_ids)
        for broker_id in broker_ids:
            missed = sorted(
                tp for tp in self._missed_deletions.pop(broker_id, ()) if known.state_of(tp) and self.stays(tp)
            )
            foreign = [tp for tp in missed if tp not in known.assigned_to(broker_id, tp.topic)]
            yield from known.stop_replicas(broker_id, foreign)

    def on_failed(self, broker_id: int) -> None:
        """Stop waiting for a broker that failed. Replicas that it still had to delete are noted for its return."""
        for deletion in self._deletions.values():
            deletion.waiting = {entry for entry in deletion.waiting if entry[0] != broker_id}
        for tp, move in self._known.reassignments().items():
            if broker_id in move.deleting:
                self._set_progress(tp, move.without_deletion_by(broker_id))
                self._missed_deletions.setdefault(broker_id, set()).add(tp)

    def _deletions_under_way(self) -> list[tuple[str, _Deletion]]:
        """Return the topics whose replicas are being deleted, and whose znodes still exist."""
        deletions = self._deletions.items()
        return [(topic, each) for topic, each in deletions if not each.removing and topic in self._known.topics]

    def _progress(self, tp: TopicPartition) -> ReassignmentProgress | None:
        partition = self._known.partitions.get(tp)
        return None if partition is None else partition.reassignment

    def _set_progress(self, tp: TopicPartition, progress: ReassignmentProgress | None) -> None:
        self._known.put(replace(self._known.partitions[tp], reassignment=progress))

    def _wait_for(self, tp: TopicPartition, broker_id: int) -> None:
        """Wait until this broker has deleted its removed replica."""
        if (move := self._progress(tp)) is not None:
            self._set_progress(tp, move.with_deletion_by(broker_id))
