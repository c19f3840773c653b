"""What the state of a partition should be, by all that is known: elections, reassignments, wishes and doubts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from cluster.controller.controller_context import ControllerContext
from cluster.controller.election import election_refusal, initial_state, next_state, preferred_state, renewed_state
from cluster.controller.liveness import Liveness
from cluster.controller.reassignment import ReassignmentProgress, state_without_removed_replicas
from cluster.controller.unclean_recovery import (
    GONE,
    LivenessWait,
    LogEnd,
    LogEndQuery,
    SuspectReplicas,
    choose_recovery_leader,
)
from cluster.state import BrokerRegistration, PartitionState
from tidelog.errors import BrokerError
from tidelog.model import NO_LEADER, TopicPartition

#: How long a broker that arrives waits for others to show that they live, before it is let in without a decision.
REGISTRATION_DELAY_MS = 1000

UNCLEAN_ELECTION = "unclean.leader.election.enable"
MIN_INSYNC_REPLICAS = "min.insync.replicas"


class LeaderHandoff(NamedTuple):
    """Who leads in this epoch is asked since that moment, since another is to lead."""

    leader_epoch: int
    asked: int


class LeaderSelector(ControllerContext):
    """Decides and writes nothing: that is its `Controller`'s business.

    wishes     elections that somebody asked for; True: unclean ones
    arriving   registered brokers that are let in once their past is dealt with
    signs      which of the brokers have answered since which others were lost
    doubts     partitions some of whose ISR may have lost records
    polls      of partitions that nobody leads, how far the logs reach
    held       partitions about which nothing is decided until one of the ISR has shown that it lives
    renewing   partitions whose leader needs a new epoch even if it stays, so that what it has in flight is refused
    questions  whom to ask for the ends of which logs
    heirs      whom to ask whether they live: others are to go in their favour
    partings   partitions whose leader is asked whether it lives: another is to lead, by a wish or a move
    dismissed  partitions that have shed replicas, which now are to be deleted
    """

    def __init__(
        self,
        controller_id: int,
        epoch: int,
        *,
        unclean_by_default: bool,
        min_insync_by_default: int,
        recovery_timeout_ms: int,
    ) -> None:
        super().__init__()
        self.controller_id = controller_id
        self.epoch = epoch
        self.arriving: dict[int, BrokerRegistration] = {}
        self.signs = Liveness(controller_id)
        self.held: dict[TopicPartition, LivenessWait] = {}
        self.requested_elections: dict[TopicPartition, bool] = {}
        self.doubts: dict[TopicPartition, SuspectReplicas] = {}
        self.polls: dict[TopicPartition, LogEndQuery] = {}
        self.epoch_bumps: set[TopicPartition] = set()
        self.questions: dict[int, list[TopicPartition]] = {}
        self.heirs: set[int] = set()
        self.partings: dict[TopicPartition, LeaderHandoff] = {}
        self.dismissed: list[TopicPartition] = []
        self._recovery_timeout_ms = recovery_timeout_ms
        self._unclean = "true" if unclean_by_default else "false"
        self._min_insync = str(min_insync_by_default)

    def next_state_for(self, tp: TopicPartition, *, evict_leaving: bool = False) -> PartitionState | None:
        """The state to write; None: what stands is right, as far as anybody can tell."""
        known = self.states.get(tp)
        if known is None:
            return initial_state(self.replicas(tp), self.online(tp) - self.leaving, self.epoch)
        state = known.state
        if state.leader == NO_LEADER:
            # Nothing of an earlier leader that is in flight can still be accepted.
            self.epoch_bumps.discard(tp)
        else:
            self.polls.pop(tp, None)
        self._review_doubt(tp, state)
        parting = self.partings.pop(tp, None)  # unless it is to part still
        hold = self.held.pop(tp, None) or LivenessWait()
        hold.evict_leaving = hold.evict_leaving or evict_leaving
        if self._lacks_signs(tp, state, evict_leaving=hold.evict_leaving):
            self.held[tp] = hold
            return self._kept(tp, state)
        return (
            self._elected(tp, state, evict_leaving=hold.evict_leaving, unclean=self._allows_unclean(tp))
            or self._trusted(tp, state)
            or self._moved(tp, state, parting)
            or self._wished(tp, state, parting)
        )

    def election_refusal(self, tp: TopicPartition, *, unclean: bool) -> BrokerError | None:
        """Why an election that is asked for would have no effect as of now."""
        if unclean:
            return election_refusal(self.states[tp].state, self.holders(tp), self.online(tp), unclean=True)
        live = self.trusted_replicas(tp) - self.leaving
        return election_refusal(self.states[tp].state, self.replicas(tp), live, unclean=False)

    def leaders_restarted_unnoticed(self) -> set[TopicPartition]:
        """Led by one that registered after the state was written: it came back while nobody reigned."""
        led = ((tp, known.mzxid, self.brokers.get(known.state.leader)) for tp, known in self.states.items())
        return {tp for tp, mzxid, leader in led if leader is not None and -1 < mzxid < leader.epoch}

    def expired_waits(self, now_ms: int) -> set[TopicPartition]:
        """Those about which it has been waited long enough as of now."""
        uncovered = [(tp, doubt) for tp, doubt in self.doubts.items() if not doubt.covered]
        waits = [*uncovered, *self.polls.items()]
        late = {tp for tp, wait in waits if wait.fall_due(now_ms, self._recovery_timeout_ms)}
        return late | {tp for tp, hold in self.held.items() if hold.fall_due(now_ms, REGISTRATION_DELAY_MS)}

    def mark_suspect(self, broker_id: int, tps: Collection[TopicPartition] | None = None) -> None:
        """One whose logs (these, or all) may be short: where it is in an ISR, others lead as long as any are whole."""
        hosted = self.hosted.get(broker_id, set())
        for tp in hosted if tps is None else hosted.intersection(tps):
            if tp in self.states and broker_id in self.states[tp].state.isr:
                self.doubts.setdefault(tp, SuspectReplicas()).members.add(broker_id)

    def trusted_replicas(self, tp: TopicPartition) -> set[int]:
        """Those who are online, lack nothing that they know of, and are beyond doubt."""
        doubt = self.doubts.get(tp)
        members = doubt.members if doubt else ()
        return {each for each in self.online(tp) if each not in members and tp not in self.lacking.get(each, ())}

    def _review_doubt(self, tp: TopicPartition, state: PartitionState) -> None:
        """It is over where nobody in doubt is in sync, and where nobody else is: there is none to prefer."""
        doubt = self.doubts.get(tp)
        if doubt is None:
            return
        if len(self._candidates(tp, state)) == 1 or doubt.members.isdisjoint(state.isr):
            del self.doubts[tp]
        else:
            doubt.cover(not self.trusted_replicas(tp).isdisjoint(state.isr))

    def _candidates(self, tp: TopicPartition, state: PartitionState) -> tuple[int, ...]:
        """Who may have what members of the ISR have lost: the others of it, and who was given up for it.

        Of others nothing is known: one that led before may have records of its own, in an epoch above all that the ISR
        has. Where records may be given up nobody is waited for who is not in sync, but by a move.
        """
        move = self.moves.get(tp)
        if move is None or move.safe:
            present = () if self._allows_unclean(tp) else self.replicas(tp)
        else:
            present = self.holders(tp)
        return (*state.isr, *(each for each in state.eligible if each in present))

    def must_delay_registration(self, tp: TopicPartition, broker_id: int) -> bool:
        """Whether this broker must not be let in before more is known: its former self still stands for something."""
        return tp in self.epoch_bumps or (tp in self.held and self.states[tp].state.leader == broker_id)

    def _lacks_signs(self, tp: TopicPartition, state: PartitionState, *, evict_leaving: bool) -> bool:
        """Whether it must be waited for a sign of life.

        Some of the ISR do not count any more, and the others are registered, but may have died since: were those who
        are lost taken out for them, their records would go.
        """
        keep = self.trusted_replicas(tp).intersection(state.isr).difference(self.leaving if evict_leaving else ())
        lost = set(state.isr) - keep
        return bool(keep and lost) and not self.signs.shown(keep, lost)

    def _kept(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """The ISR as it stands, under whoever is registered, or nobody; written only where others wait for it."""
        if not self.held[tp].overdue:
            return None
        if state.leader in self.trusted_replicas(tp):
            return renewed_state(state, self.epoch) if tp in self.epoch_bumps else None
        if tp in self.epoch_bumps or state.leader in self.arriving:
            return state.rewritten(NO_LEADER, state.isr, self.epoch)
        return None

    def _elected(
        self, tp: TopicPartition, state: PartitionState, *, unclean: bool, evict_leaving: bool
    ) -> PartitionState | None:
        wanted = next_state(
            state,
            self.replicas(tp),
            self.trusted_replicas(tp),
            self.epoch,
            leaving=self.leaving,
            evict_leaving=evict_leaving,
            renew=tp in self.epoch_bumps,
        )
        if wanted is not None or state.leader != NO_LEADER or not unclean or self._hopes(tp, state):
            return wanted
        return self._forced(tp, state)

    def _hopes(self, tp: TopicPartition, state: PartitionState) -> set[int]:
        """Those of the ISR who are in doubt, but may have everything: as long as they live nobody is forced."""
        doubt, poll = self.doubts.get(tp), self.polls.get(tp)
        present = doubt.members.intersection(state.isr, self.online(tp)) if doubt else set()
        return {each for each in present if tp not in self.lacking.get(each, ()) and not (poll and poll.lacks(each))}

    def _forced(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """Under whoever reaches farthest of those that live, alone, and be it without records."""
        online, holders = self.online(tp), self.holders(tp)
        present = [replica for replica in holders if replica in online]
        if not present or self._any_registering(holders):
            return None
        poll = self._poll(tp)
        if len(present) > 1:
            if unasked := poll.unasked(present):
                self._ask(tp, poll, unasked)
                return None
            if len(poll.told(present)) < len(present) and not poll.overdue:
                return None

        def worth(replica: int) -> tuple[LogEnd, bool, bool, bool]:
            lacks = poll.lacks(replica) or tp in self.lacking.get(replica, ())
            return poll.ends.get(replica, GONE), not lacks, replica in state.isr, replica not in self.leaving

        leader = max(present, key=worth)
        alone = replace(state, isr=(leader,), eligible=())  # the others are given up
        chosen = self._chosen(tp, alone, leader)
        self.forced[tp] = chosen.leader_epoch
        return chosen

    def _trusted(self, tp: TopicPartition, state: PartitionState) -> PartitionState | None:
        """Where every member of the ISR that lives is in doubt: the best of them, once that is known."""
        doubt, online = self.doubts.get(tp), self.online(tp)
        if doubt is None or online.isdisjoint(state.isr):
            return None
        candidates = self._candidates(tp, state)
        if self._any_registering(candidates):
            return None
        poll = self._poll(tp)
        verdict = choose_recovery_leader(state.isr, candidates, poll, online, overdue=doubt.overdue)
        self._ask(tp, poll, verdict.ask)
        return None if verdict.leader is None else self._chosen(tp, state, verdict.leader)

    def _any_registering(self, replicas: Collection[int]) -> bool:
        """Returns whether one of these replicas is on a broker that has registered and is not online yet.

        An election waits for such a replica, even if the wait for absent replicas is over: its log may reach farther
        than all others, and its broker is online within moments.
        """
        return not self.arriving.keys().isdisjoint(replicas)

    def _poll(self, tp: TopicPartition) -> LogEndQuery:
        """What has been told so far, and still holds."""
        poll = self.polls.setdefault(tp, LogEndQuery())
        poll.outdate(self.signs.last_loss(self.holders(tp)))
        return poll

    def _ask(self, tp: TopicPartition, poll: LogEndQuery, broker_ids: Collection[int]) -> None:
        poll.ask(broker_ids, self.signs.now)
        for broker_id in broker_ids:
            self.questions.setdefault(broker_id, []).append(tp)

    def _chosen(self, tp: TopicPartition, state: PartitionState, leader: int) -> PartitionState:
        """Under this one, alone, who may lack something. Then nobody goes yet who was to go in favour of others."""
        chosen = state.rewritten(leader, (leader,), self.epoch)
        if (doubt := self.doubts.get(tp)) is not None:
            doubt.chosen = chosen
        if (move := self.moves.get(tp)) is not None and not move.safe:
            self.moves[tp] = ReassignmentProgress()
        return chosen

    def _moved(self, tp: TopicPartition, state: PartitionState, parting: LeaderHandoff | None) -> PartitionState | None:
        """The next step of a reassignment, where one is due."""
        move = self.moves.get(tp)
        if move is None or state.leader == NO_LEADER:
            return None
        assigned = self.topics[tp.topic].assigned(tp.partition)
        if assigned.moving and not move.shed:
            least = int(self.setting(tp, MIN_INSYNC_REPLICAS, self._min_insync))
            shed = state_without_removed_replicas(
                state, assigned, self.trusted_replicas(tp), self.leaving, least, self.epoch
            )
            if shed is not None and not self._parts(tp, state, shed, parting):
                move.heirs = frozenset()  # records are bet on them: they are asked last
                return None
            if shed is not None and not self._heirs_live(tp, move, shed):
                return None
            move.heirs, move.shedding = frozenset(), shed
            if shed is not None:
                return shed
        if move.shed and not move.safe and self._heirs_live(tp, move, state):
            move.heirs, move.safe = frozenset(), True
            self.dismissed.append(tp)
        return None if move.announced else renewed_state(state, self.epoch)

    def _heirs_live(self, tp: TopicPartition, move: ReassignmentProgress, state: PartitionState) -> bool:
        """Whether one of the heirs, who are still whole and in this ISR, has lived since they were asked.

        Asked is whoever is so when there is none of them, as at first.
        """
        whole = self.trusted_replicas(tp).intersection(state.isr)
        if whole and whole.isdisjoint(move.heirs):
            move.heirs, move.asked = frozenset(whole), self.signs.begin()
            self.heirs |= whole
        return self.signs.lived(whole & move.heirs, move.asked)

    def _wished(
        self, tp: TopicPartition, state: PartitionState, parting: LeaderHandoff | None
    ) -> PartitionState | None:
        """What somebody asked for; the wish ends where nothing is left to do for it."""
        unclean = self.requested_elections.get(tp)
        if unclean is None:
            return None
        if unclean and state.leader == NO_LEADER and not self.online(tp).isdisjoint(self.holders(tp)):
            return self._forced(tp, state)
        live = self.trusted_replicas(tp) - self.leaving
        wanted = None if unclean else preferred_state(state, self.replicas(tp), live, self.epoch)
        if wanted is None:
            del self.requested_elections[tp]
            return None
        return wanted if self._parts(tp, state, wanted, parting) else None

    def _parts(
        self, tp: TopicPartition, state: PartitionState, wanted: PartitionState, parting: LeaderHandoff | None
    ) -> bool:
        """Whether who leads will hear that another does: it has answered since that was wanted.

        One that the controller cannot reach, though it has ZooKeeper, would go on to tell clients what was committed.
        Nothing is wrong with it, so that it may lead until then.
        """
        if state.leader in (NO_LEADER, wanted.leader):
            return True
        if parting is None or parting.leader_epoch != state.leader_epoch:
            parting = LeaderHandoff(state.leader_epoch, self.signs.begin())
            self.heirs.add(state.leader)
        self.partings[tp] = parting
        return self.signs.lived((state.leader,), parting.asked)

    def _allows_unclean(self, tp: TopicPartition) -> bool:
        """Whether its records may be given up so that somebody leads."""
        return self.setting(tp, UNCLEAN_ELECTION, self._unclean).lower() == "true"
