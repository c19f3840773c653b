"""Replicas on their way out: those of topics that are being deleted, and those that a reassignment has shed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from cluster.controller.effects import CompleteReassignment, Effect, RemoveTopic, SendMetadata
from cluster.controller.leader_selection import LeaderSelector
from cluster.state import TopicAssignment
from tidelog.model import TopicPartition


@dataclass(slots=True)
class _Deletion:
    """A topic on its way out, and the live replicas that have yet to say that they are rid of it."""

    waiting: set[tuple[int, TopicPartition]] = field(default_factory=set)
    removing: bool = False


class ReplicaDeletion:
    """Who is to delete what, who has yet to say that it has, and what may follow then. Its `Controller` alone calls it.

    Brokers that are away are not waited for. One that comes back with its process sets aside by itself what is not its
    own any more; one that only slept would keep it, and follow a leader that does not count it, and is told. Where the
    controller died meanwhile, it takes it from what the next one tells everybody.
    """

    def __init__(self, known: LeaderSelector) -> None:
        self._known = known
        self._deletions: dict[str, _Deletion] = {}
        self._untold: dict[int, set[TopicPartition]] = {}

    def is_deleting(self, topic: str) -> bool:
        """Somebody wants it deleted, and it is not gone yet."""
        return topic in self._deletions

    def stays(self, tp: TopicPartition) -> bool:
        """Nobody wants its topic deleted."""
        return tp.topic not in self._deletions

    def completed_assignment(self, topic: str) -> TopicAssignment | None:
        """The assignment to write for those partitions whose reassignment has come to its end; None without any."""
        known = self._known
        if topic not in known.topics or topic in self._deletions:
            return None
        assignment = known.topics[topic]
        moves = ((tp, move) for tp, move in known.moves.items() if tp.topic == topic)
        over = [tp.partition for tp, move in moves if move.safe and not move.waiting]
        return (
            assignment.reassigned({number: assignment.assigned(number).settled() for number in over}) if over else None
        )

    # --- what begins, and what is done ---------------------------------------------------------------

    def delete(self, topic: str) -> list[Effect]:
        """Everybody deletes the topic. One that does not exist only loses the wish."""
        known = self._known
        deletion = self._deletions[topic] = _Deletion()
        if topic not in known.topics:
            return []
        everybody = tuple(sorted(known.brokers))
        for broker_id in (*everybody, *known.arriving):
            deletion.waiting |= {(broker_id, tp) for tp in known.assigned_to(broker_id, topic)}
        effects: list[Effect] = [SendMetadata(everybody, deleted_topics=(topic,))]
        for broker_id in everybody:
            effects += known.stop_replicas(broker_id, known.assigned_to(broker_id, topic), in_any_epoch=True)
        return effects

    def halt(self, tps: Iterable[TopicPartition]) -> list[Effect]:
        """Those who were shed serve no more, but have their logs until it is sure that they are not needed."""
        known = self._known
        gone: dict[int, list[TopicPartition]] = {}
        for tp in sorted(filter(self.stays, tps)):
            for broker_id in known.topics[tp.topic].removing.get(tp.partition, ()):
                if broker_id in known.brokers:
                    gone.setdefault(broker_id, []).append(tp)
        return [each for id_, mine in sorted(gone.items()) for each in known.stop_replicas(id_, mine, delete=False)]

    def dismiss(self, tps: Iterable[TopicPartition], broker_ids: Collection[int]) -> list[Effect]:
        """These brokers delete what they had of partitions that have shed them; those that arrive will be told."""
        known = self._known
        effects: list[Effect] = []
        gone: dict[int, list[TopicPartition]] = {}
        for tp in sorted(filter(self.stays, tps)):
            for broker_id in known.topics[tp.topic].removing.get(tp.partition, ()):
                if broker_id in broker_ids or broker_id in known.arriving:
                    known.moves[tp].wait_for(broker_id)
                elif broker_id not in known.brokers:
                    self._untold.setdefault(broker_id, set()).add(tp)
                if broker_id in broker_ids:
                    gone.setdefault(broker_id, []).append(tp)
        for broker_id, mine in sorted(gone.items()):
            effects += known.stop_replicas(broker_id, mine)
        return effects

    def stopped(self, broker_id: int, tps: Iterable[TopicPartition]) -> None:
        """A broker has deleted its replicas of these."""
        moves = self._known.moves
        for tp in tps:
            if tp.topic in self._deletions:
                self._deletions[tp.topic].waiting.discard((broker_id, tp))
            elif tp in moves:
                moves[tp].waiting.discard(broker_id)

    def removed(self, topic: str) -> None:
        """The topic's znodes are gone."""
        self._deletions.pop(topic, None)

    def due(self, in_flight: Collection[TopicPartition]) -> list[Effect]:
        """What may follow now that replicas have gone: a topic's znodes, or a reassignment that comes to its end."""
        known = self._known
        effects: list[Effect] = []
        writing = {tp.topic for tp in in_flight}
        for topic, deletion in self._deletions.items():
            if not deletion.waiting and not deletion.removing and topic not in writing:
                deletion.removing = True
                effects.append(RemoveTopic(topic))
        settling: set[str] = set()
        for tp, move in list(known.moves.items()):
            if move.announced and not known.topics[tp.topic].assigned(tp.partition).moving:
                del known.moves[tp]  # only the order had changed
            elif move.safe and not move.waiting and not move.settling:
                move.settling = True
                settling.add(tp.topic)
        return effects + [CompleteReassignment(topic) for topic in sorted(settling)]

    # --- brokers that come and go --------------------------------------------------------------------

    def expect(self, broker_id: int) -> None:
        """It arrives, and may still have what is on its way out: that waits for it too."""
        known = self._known
        for topic, deletion in self._going():
            deletion.waiting |= {(broker_id, tp) for tp in known.assigned_to(broker_id, topic)}
        for tp, move in known.moves.items():
            if move.shed and broker_id in known.topics[tp.topic].removing.get(tp.partition, ()):
                move.wait_for(broker_id)

    def admitted(self, broker_ids: Collection[int]) -> list[Effect]:
        """They are let in: they delete what is on its way out, and what went elsewhere while they were away."""
        known = self._known
        effects: list[Effect] = []
        for topic, _ in self._going():
            for broker_id in broker_ids:
                effects += known.stop_replicas(broker_id, known.assigned_to(broker_id, topic), in_any_epoch=True)
        effects += self.dismiss([tp for tp, move in known.moves.items() if move.safe], broker_ids)
        for broker_id in broker_ids:
            untold = sorted(tp for tp in self._untold.pop(broker_id, ()) if tp in known.states and self.stays(tp))
            foreign = [tp for tp in untold if tp not in known.assigned_to(broker_id, tp.topic)]
            effects += known.stop_replicas(broker_id, foreign)
        return effects

    def buried(self, broker_id: int) -> None:
        """It is dead, and nothing waits for it any more."""
        for deletion in self._deletions.values():
            deletion.waiting = {entry for entry in deletion.waiting if entry[0] != broker_id}
        for tp, move in self._known.moves.items():
            if broker_id in move.waiting:
                move.waiting.remove(broker_id)
                self._untold.setdefault(broker_id, set()).add(tp)

    def _going(self) -> list[tuple[str, _Deletion]]:
        """The topics whose replicas go, and whose znodes stand still."""
        deletions = self._deletions.items()
        return [(topic, each) for topic, each in deletions if not each.removing and topic in self._known.topics]
