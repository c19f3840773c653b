"""What the state of a partition should be, by all that is known: elections, reassignments, wishes and doubts."""

from __future__ import annotations

from cluster.doubt import Doubt, judge
from cluster.election import election_refusal, initial_state, next_state, preferred_state, renewed_state
from cluster.picture import Picture
from cluster.reassignment import shed_state
from cluster.state import PartitionState
from tidelog.errors import BrokerError
from tidelog.model import NO_LEADER, TopicPartition

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class Decisions(Picture):
    """Decides and writes nothing: that is its `Controller`'s business.

    wishes     elections that somebody asked for; True: unclean ones
    doubts     partitions some of whose ISR may have lost records
    renewing   partitions whose leader needs a new epoch even if it stays, so that what it has in flight is refused
    questions  whom to ask for the ends of which logs
    """

    def __init__(self, epoch: int, *, unclean_by_default: bool, min_insync_by_default: int) -> None:
        super().__init__()
        self.epoch = epoch
        self.wishes: dict[TopicPartition, bool] = {}
        self.doubts: dict[TopicPartition, Doubt] = {}
        self.renewing: set[TopicPartition] = set()
        self.questions: dict[int, list[TopicPartition]] = {}
        self._unclean = "true" if unclean_by_default else "false"
        self._min_insync = str(min_insync_by_default)

    def wanted(self, tp: TopicPartition, *, evict_leaving: bool = False) -> PartitionState | None:
        """The state to write; None: what stands is right, as far as anybody can tell."""
        known = self.states.get(tp)
        if known is None:
            return initial_state(self.replicas(tp), self.online(tp) - self.leaving, self.epoch)
        state = known.state
        if state.leader == NO_LEADER:
            # Nothing of an earlier leader that is in flight can still be accepted.
            self.renewing.discard(tp)
        else:
            self.doubts.pop(tp, None)
        allowed = self.setting(tp, UNCLEAN_ELECTION, self._unclean).lower() == "true"
        return (
            self._elected(tp, state, evict_leaving=evict_leaving, unclean=allowed)
            or self._trusted(tp, state)
            or self._moved(tp, state)
            or self._wished(tp, state)
        )

    def election_refusal(self, tp: TopicPartition, *, unclean: bool) -> BrokerError | None:
        """Why an election that is asked for would have no effect as of now."""
        live = self.online(tp)
        return election_refusal(
            self.states[tp].state, self.replicas(tp), live if unclean else live - self.leaving, unclean=unclean
        )

    def cast_doubt(self, broker_id: int) -> None:
        """One whose logs may be short has come: it is in an ISR still only where no other member has lived on."""
        for tp in self.hosted.get(broker_id, ()):
            if tp in self.states and broker_id in self.states[tp].state.isr:
                self.doubts.setdefault(tp, Doubt()).members.add(broker_id)

    def _elected(
        self, tp: TopicPartition, state: PartitionState, *, unclean: bool, evict_leaving: bool
    ) -> PartitionState | None:
        live = self.online(tp)
        doubt = self.doubts.get(tp)
        if doubt is not None:
            # As long as one of them may have everything, nobody is elected who surely has not.
            unclean = unclean and not live & doubt.members
            live -= doubt.members
        return self._next(tp, state, live, unclean=unclean, evict_leaving=evict_leaving)

    def _next(
        self, tp: TopicPartition, state: PartitionState, live: set[int], *, unclean: bool, evict_leaving: bool = False
    ) -> PartitionState | None:
        return next_state(
            state,
            self.replicas(tp),
            live,
            self.epoch,
            leaving=self.leaving,
            evict_leaving=evict_leaving,
            unclean=unclean,
            joining=self.topics[tp.topic].adding.get(tp.partition, ()),
            renew=tp in self.renewing,
        )

    def _trusted(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """Where every member of the ISR that lives is in doubt: the best of them, once that is known."""
        doubt = self.doubts.get(tp)
        if doubt is None:
            return None
        verdict = judge(state.isr, doubt, self.online(tp))
        for broker_id in verdict.ask:
            doubt.asked.add(broker_id)
            self.questions.setdefault(broker_id, []).append(tp)
        if verdict.leader is None:
            return None
        return PartitionState(verdict.leader, state.leader_epoch + 1, (verdict.leader,), self.epoch)

    def _moved(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """The next step of a reassignment, where one is due."""
        move = self.moves.get(tp)
        if move is None or state.leader == NO_LEADER:
            return None
        assigned = self.topics[tp.topic].assigned(tp.partition)
        if assigned.moving and not move.shed:
            least = int(self.setting(tp, MIN_INSYNC_REPLICAS, self._min_insync))
            move.shedding = shed_state(state, assigned, self.online(tp), self.leaving, least, self.epoch)
            if move.shedding is not None:
                return move.shedding
        return None if move.announced else renewed_state(state, self.epoch)

    def _wished(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """What somebody asked for; the wish ends where nothing is left to do for it."""
        unclean = self.wishes.get(tp)
        if unclean is None:
            return None
        if unclean:
            wanted = self._next(tp, state, self.online(tp), unclean=True)
        else:
            wanted = preferred_state(state, self.replicas(tp), self.online(tp) - self.leaving, self.epoch)
        if wanted is None:
            del self.wishes[tp]
        return wanted
