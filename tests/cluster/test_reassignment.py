"""Partitions that move from one set of replicas to another: the steps by example, then events in any order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cluster.controller.effects import Effect, SendLeaderAndIsr, SendStopReplica
from cluster.controller.replicas.reassignment import state_without_removed_replicas
from cluster.state import PartitionState, ReplicaAssignment
from tests.cluster.controller_stage import TP, Cluster, broker, short
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.control_messages import PartitionStateMessage


def test_assignment_lists_the_target_first_in_its_order() -> None:
    before = ReplicaAssignment((1, 2, 3))
    on_its_way = before.toward((4, 3))
    assert on_its_way == ReplicaAssignment((4, 3, 1, 2), adding=(4,), removing=(1, 2))
    assert (on_its_way.target, set(on_its_way.origin), on_its_way.joining) == ((4, 3), {1, 2, 3}, (4,))
    assert on_its_way.completed() == ReplicaAssignment((4, 3))
    assert before.toward((3, 2, 1)) == ReplicaAssignment((3, 2, 1)), "another order needs no move"


def test_changed_target_removes_the_replicas_being_added() -> None:
    on_its_way = ReplicaAssignment((1, 2, 3)).toward((4, 5))
    other = on_its_way.toward((1, 5))
    assert (other.target, other.joining) == ((1, 5), (5,))
    assert set(other.removing) == {2, 3, 4}
    back = other.toward(other.origin)
    assert (set(back.target), back.joining, set(back.removing)) == ({1, 2, 3}, (), {4, 5})


@pytest.mark.parametrize(
    ("isr", "live", "expected"),
    [
        pytest.param((1, 2, 3), {1, 2, 3, 4}, None, id="the new replica is not in sync yet"),
        pytest.param((1, 2, 3, 4), {1, 2, 3, 4}, (2, 3, 4), id="all are in sync"),
        pytest.param((1, 2, 4), {1, 2, 3, 4}, None, id="a remaining replica is alive and behind"),
        pytest.param((1, 2, 4), {1, 2, 4}, (2, 4), id="a dead remaining replica is not waited for"),
        pytest.param((1, 4), {1, 4}, None, id="too few would be left"),
        pytest.param((1, 2, 3), {1, 2, 3}, None, id="the new replica is dead"),
    ],
)
def test_replica_is_removed_once_enough_others_are_in_sync(
    isr: tuple[int, ...], live: set[int], expected: tuple[int, ...] | None
) -> None:
    assigned = ReplicaAssignment((1, 2, 3)).toward((2, 3, 4))
    state = state_without_removed_replicas(PartitionState(1, 5, isr, 1), assigned, live, (), 2, 7)
    assert state == (None if expected is None else PartitionState(expected[0], 6, expected, 7))


def test_removal_of_old_replicas_waits_while_all_new_ones_are_dead() -> None:
    assigned = ReplicaAssignment((1, 2)).toward((3, 2))
    state = PartitionState(1, 5, (1, 2, 3), 1)
    assert state_without_removed_replicas(state, assigned, {1}, (), 1, 7) is None
    assert state_without_removed_replicas(state, assigned, {1, 3}, (), 1, 7) == PartitionState(3, 6, (2, 3), 7)


def test_remaining_leader_leads_on_and_one_in_shutdown_never_takes_over() -> None:
    assigned = ReplicaAssignment((1, 2, 3)).toward((2, 3))
    assert state_without_removed_replicas(
        PartitionState(3, 0, (1, 2, 3), 1), assigned, {1, 2, 3}, (), 1, 1
    ) == PartitionState(3, 1, (2, 3), 1)
    state = state_without_removed_replicas(PartitionState(1, 0, (1, 2, 3), 1), assigned, {1, 2, 3}, {2}, 1, 1)
    assert state is not None and state.leader == 3


def test_reassignment_proceeds_step_by_step() -> None:
    cluster = Cluster(1, 2, 3, 4)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.news()

    cluster.reassign(TP, 3, 4)
    cluster.settle()
    assert cluster.news() == [f"tell {b}: t-0 leader=1 isr=1,2" for b in (1, 2, 3, 4)]
    assert cluster.state().leader_epoch == 1, "the leader learns of those who come in an epoch of their own"

    cluster.leader_changes_isr(TP, 1, 2, 3)
    assert cluster.waiting == []
    cluster.leader_changes_isr(TP, 1, 2, 3, 4)
    cluster.settle()
    assert cluster.news() == [
        "tell 3: t-0 leader=3 isr=3,4",
        "tell 4: t-0 leader=3 isr=3,4",
        "halt 1: t-0",
        "halt 2: t-0",
        "stop 1: t-0",
        "stop 2: t-0",
    ]
    assert cluster.assigned(TP).moving, "as long as a replica of it is left"
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((3, 4))
    assert cluster.news() == []
    cluster.die(1)
    cluster.settle()
    assert cluster.state() == PartitionState(3, 2, (3, 4), 1)


def test_cancelled_reassignment_removes_the_replicas_it_was_adding() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.reassign(TP, 1, 3)
    cluster.settle()
    cluster.news()
    cluster.reassign(TP)
    cluster.settle()
    assert "stop 3: t-0" in cluster.news()
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((1, 2))


@pytest.mark.parametrize(
    "requested_elections", [[()], [(1, 7)], [(), (1, 7)]], ids=["cancelled", "sent elsewhere", "both"]
)
def test_unclean_election_after_a_changed_target_prefers_the_longest_log(
    requested_elections: list[tuple[int, ...]],
) -> None:
    cluster = Cluster(1, 2, 3, 4, 5, 6, 7)
    cluster.create("t", (1, 2, 3), **{"unclean.leader.election.enable": "true"})
    cluster.settle()
    cluster.reassign(TP, 4, 5, 6)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2, 3, 4, 5, 6)
    cluster.settle()
    assert cluster.state().isr == (4, 5, 6), "the others delete their logs"
    for target in requested_elections:
        cluster.reassign(TP, *target)
    cluster.settle()
    for leader in (4, 5, 6):
        assert cluster.state().leader == leader
        cluster.leader_changes_isr(TP, leader)
        cluster.die(leader)
        cluster.settle()
        for asked, _ in list(cluster.asked):
            cluster.report_log_end(asked, 9 if asked in (4, 5, 6) else 0)
        cluster.settle()
    assert cluster.state().leader in (1, 7), "no other replica can lead now"


def caught_up_and_silent() -> Cluster:
    """Broker 4, to which the partition moves from 1, is in sync, but may have died since: its registration proves
    nothing.
    """
    cluster = Cluster(1, 4)
    cluster.create("t", (1,))
    cluster.settle()
    cluster.reassign(TP, 4)
    cluster.settle()
    cluster.silent.add(4)
    cluster.leader_changes_isr(TP, 1, 4)
    cluster.settle()
    return cluster


def test_replica_is_not_removed_in_favour_of_a_dead_registered_one() -> None:
    cluster = caught_up_and_silent()
    assert (cluster.state().isr, cluster.stops) == ((1, 4), [])
    cluster.die(4)
    cluster.come(short(4, 50))
    cluster.resume_answers(4)
    cluster.settle()
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,)), "the broker copies what it had not flushed"
    cluster.leader_changes_isr(TP, 1, 4)
    cluster.settle()
    assert cluster.state().isr == (4,)


def test_replica_is_removed_once_a_remaining_member_proved_liveness() -> None:
    cluster = caught_up_and_silent()
    cluster.resume_answers(4)
    cluster.settle()
    assert cluster.state().isr == (4,)


def test_remaining_member_that_died_must_prove_liveness_again() -> None:
    cluster = caught_up_and_silent()
    cluster.silent.clear()
    cluster.leader_writes_isr(TP, 1)  # the controller does not know yet, so that the removal is refused
    cluster.resume_answers(4)
    cluster.settle()
    cluster.silent.add(4)
    cluster.leader_changes_isr(TP, 1, 4)
    cluster.settle()
    assert cluster.state().isr == (1, 4)


def test_next_controller_asks_remaining_members_and_removes_replicas() -> None:
    cluster = caught_up_and_silent()
    cluster.begin_term(2)
    cluster.settle()
    assert (cluster.state().isr, cluster.stops) == ((1, 4), [])
    cluster.resume_answers(4)
    cluster.settle()
    cluster.answer_stops()
    cluster.settle()
    assert cluster.state().isr == (4,) and cluster.assigned(TP) == ReplicaAssignment((4,))


def test_assignment_completed_by_another_tool_is_announced_again() -> None:
    cluster = caught_up_and_silent()
    cluster.assign(cluster.topics["t"].reassigned({TP.partition: ReplicaAssignment((4,))}))
    assert [write.state.leader_epoch for write in cluster.waiting] == [cluster.state().leader_epoch + 1]


def shed_for_one_that_has_not_answered_since() -> Cluster:
    cluster = caught_up_and_silent()
    cluster.resume_answers(4)
    cluster.silent.add(4)
    cluster.news()
    cluster.settle()
    assert cluster.state() == PartitionState(4, 2, (4,), 1)
    return cluster


def test_removed_replica_keeps_its_log_until_the_removal_is_confirmed() -> None:
    cluster = shed_for_one_that_has_not_answered_since()
    assert cluster.news() == ["tell 4: t-0 leader=4 isr=4", "halt 1: t-0"]
    assert cluster.sent_holders() == {1, 4}, "a broker outside this set sets its log aside"
    cluster.die(4)
    cluster.come(broker(1, epoch=50))
    cluster.settle()
    assert cluster.stops == [] and cluster.assigned(TP).moving
    cluster.silent.clear()
    cluster.come(broker(4, epoch=60))
    cluster.settle()
    assert cluster.stops == [(1, [TP])] and cluster.sent_holders() == {4}
    assert cluster.context.hosted[1] == set(), "its failures no longer concern the partition"
    assert cluster.assigned(TP).moving
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((4,)) and cluster.context.reassignments() == {}


def test_reassignment_can_be_cancelled_if_the_last_remaining_member_died() -> None:
    cluster = shed_for_one_that_has_not_answered_since()
    cluster.die(4)
    cluster.settle()
    assert cluster.state().leader == NO_LEADER
    cluster.reassign(TP)
    cluster.play(cluster.controller.elections_wanted([TP], unclean=True))
    cluster.settle()
    assert (cluster.state().leader, cluster.stops) == (1, [])
    assert cluster.assigned(TP) == ReplicaAssignment((1,))


def test_answer_completes_a_reassignment_if_removed_replicas_are_dead() -> None:
    cluster = shed_for_one_that_has_not_answered_since()
    cluster.die(1)
    cluster.settle()
    assert cluster.assigned(TP).moving
    cluster.resume_answers(4)
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((4,))


def test_dead_removed_replica_is_not_waited_for() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.reassign(TP, 1, 3)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2, 3)
    cluster.settle()
    assert cluster.assigned(TP).moving
    cluster.die(2)
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((1, 3))


def moved_while_one_was_away() -> Cluster:
    """Broker 2 had a replica of a partition that is on 1 and 3 now."""
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.die(2)
    cluster.settle()
    cluster.reassign(TP, 1, 3)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 3)
    cluster.settle()
    return cluster


def test_returning_broker_deletes_a_replica_reassigned_meanwhile() -> None:
    """A broker that only lost its session would keep the replica for ever, because only a start sets it aside."""
    cluster = moved_while_one_was_away()
    assert cluster.assigned(TP) == ReplicaAssignment((1, 3)), "the failed broker is not waited for"
    cluster.news()
    cluster.come(broker(2, epoch=50))
    cluster.settle()
    assert "stop 2: t-0" in cluster.news()
    cluster.come(broker(2, epoch=60))
    cluster.settle()
    assert "stop 2: t-0" not in cluster.news(), "once is enough"


def test_returning_broker_keeps_a_replica_assigned_to_it_again() -> None:
    cluster = moved_while_one_was_away()
    cluster.reassign(TP, 1, 2)
    cluster.settle()
    cluster.news()
    cluster.come(broker(2, epoch=50))
    cluster.settle()
    assert "stop 2: t-0" not in cluster.news()


def test_completed_assignment_is_written_again_after_a_conflict() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2), (1, 2))
    cluster.settle()
    cluster.reassign(TP, 1, 3)
    cluster.settle()
    cluster.leader_changes_isr(TP, 1, 2, 3)
    cluster.settle()
    assert cluster.assigned(TP).moving
    cluster.topics["t"] = replace(cluster.topics["t"], version=cluster.topics["t"].version + 1)
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((1, 3))


def test_broker_back_during_completion_deletes_its_removed_replica() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2, 3))
    cluster.settle()
    cluster.reassign(TP, 1, 2)
    cluster.settle()
    cluster.die(3)
    assert cluster.completing == ["t"], "no broker is waited for any more"
    cluster.come(broker(3, epoch=50))
    cluster.settle()
    assert cluster.assigned(TP).moving, "the broker may still have its replica"
    cluster.answer_stops()
    cluster.settle()
    assert cluster.assigned(TP) == ReplicaAssignment((1, 2)) and cluster.context.reassignments() == {}


def test_reordered_replicas_change_only_the_preferred_leader() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.reassign(TP, 2, 1)
    cluster.settle()
    assert not cluster.assigned(TP).moving and cluster.context.reassignments() == {}
    cluster.play(cluster.controller.elections_wanted([TP]))
    cluster.settle()
    assert cluster.state().leader == 2


def test_added_partitions_are_elected_and_the_others_left_alone() -> None:
    cluster = Cluster(1, 2)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.news()
    cluster.assign(cluster.context.topics["t"].reassigned({1: ReplicaAssignment((2, 1))}))
    cluster.settle()
    assert cluster.news() == ["tell 1: t-1 leader=2 isr=2,1", "tell 2: t-1 leader=2 isr=2,1"]


def test_deleted_topic_is_no_longer_reassigned() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("t", (1, 2))
    cluster.settle()
    cluster.reassign(TP, 2, 3)
    cluster.play(cluster.controller.deletions_wanted(["t"]))
    cluster.settle()
    assert {broker_id for broker_id, _ in cluster.stops} == {1, 2, 3}
    cluster.answer_stops()
    assert "remove t" in cluster.news()


# --- any order of events ---------------------------------------------------------------------------------


@dataclass
class Proposal:
    """A leader's ISR change on its way to ZooKeeper."""

    tp: TopicPartition
    isr: tuple[int, ...]
    version: int


class Stage(Cluster):
    """Brokers that have logs, lead by the last state that they received, and propose ISRs that may arrive late."""

    def __init__(self, *broker_ids: int) -> None:
        self.logs: dict[int, set[TopicPartition]] = {broker_id: set() for broker_id in broker_ids}
        self.received: dict[tuple[int, TopicPartition], PartitionStateMessage] = {}
        self.proposals: list[Proposal] = []
        self.epoch = 1000
        self.terms = 1
        super().__init__(*broker_ids)

    def play(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        for effect in effects:
            match effect:
                case SendLeaderAndIsr(broker_id, partitions):
                    for message in partitions:
                        self._hear(broker_id, message)
                case SendStopReplica(broker_id, stops):
                    for stop in (each for each in stops if each.delete):
                        tp = TopicPartition(stop.topic, stop.partition)
                        assert broker_id not in self.states[tp].state.isr, "the log of one in sync is deleted"
                        self.logs[broker_id].discard(tp)
                        self.received.pop((broker_id, tp), None)
        super().play(effects)

    def _hear(self, broker_id: int, message: PartitionStateMessage) -> None:
        tp = TopicPartition(message.topic, message.partition)
        known = self.received.get((broker_id, tp))
        stale = known is not None and (known.leader_epoch, known.partition_epoch) > (
            message.leader_epoch,
            message.partition_epoch,
        )
        if not stale:
            self.received[broker_id, tp] = message
            self.logs[broker_id].add(tp)

    def bounce(self, broker_id: int) -> None:
        """Register the broker anew, after its death if need be; replicas that are not assigned to it are set aside."""
        self.epoch += 1
        for tp in [tp for tp in self.logs[broker_id] if broker_id not in self.topics["t"].partitions[tp.partition]]:
            self.logs[broker_id].discard(tp)
        self.received = {key: message for key, message in self.received.items() if key[0] != broker_id}
        self.come(broker(broker_id, self.epoch))

    def propose(self, tp: TopicPartition, *, grow: bool) -> None:
        """Let the leader propose to add the first missing replica, or to be alone in the ISR."""
        for (broker_id, of), message in list(self.received.items()):
            if of == tp and message.leader == broker_id and broker_id in self.live:
                isr: tuple[int, ...] = (broker_id,)
                if grow:
                    missing = [
                        r for r in message.replicas
                        if r not in message.isr and r in self.live and tp in self.logs[r]
                    ]  # fmt: skip
                    isr = (*message.isr, *missing[:1])
                if isr != message.isr:
                    self.proposals.append(Proposal(tp, isr, message.partition_epoch))

    def deliver(self) -> None:
        """Deliver a proposal: a compare-and-set on the version."""
        if not self.proposals:
            return
        proposal = self.proposals.pop(0)
        known = self.states[proposal.tp]
        if known.partition_epoch != proposal.version:
            return
        self.leader_writes_isr(proposal.tp, *proposal.isr)
        now = self.states[proposal.tp]
        for member in now.state.isr:
            assert proposal.tp in self.logs[member], f"{member} is in sync without a log"
        leader = known.state.leader
        message = self.received.get((leader, proposal.tp))
        if message is not None and message.leader_epoch == known.state.leader_epoch:
            self.received[leader, proposal.tp] = PartitionStateMessage(
                message.topic, message.partition, message.controller_epoch, message.leader, message.leader_epoch,
                proposal.isr, now.partition_epoch, message.replicas,
            )  # fmt: skip

    def read_state(self, tp: TopicPartition) -> None:
        self.play(self.controller.states_read({tp: self.states[tp]}, self.controller.context.ids_of({tp.topic})))

    def write_one(self) -> None:
        """Perform the first write. The controller dies before it knows the outcome unless `settle` follows."""
        if self.waiting:
            self.answer(self.waiting[0])

    def depose(self) -> None:
        self.terms += 1
        self.begin_term(self.terms)


PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1)]
NUMBERS = st.integers(0, 1)
EVENTS = st.one_of(
    st.tuples(st.just("die"), st.integers(1, 5)),
    st.tuples(st.just("bounce"), st.integers(1, 5)),
    st.tuples(st.sampled_from(["settle", "write one", "depose", "answer", "deliver"]), st.just(0)),
    st.tuples(st.sampled_from(["grow", "grow", "shrink", "resume_answers", "cancel", "elect"]), NUMBERS),
    st.tuples(st.just("move"), NUMBERS, st.permutations([1, 2, 3, 4, 5]), st.integers(1, 3)),
)


def step(stage: Stage, wanted: dict[TopicPartition, set[int]], event: tuple[object, ...]) -> None:
    kind, number, *rest = event
    assert isinstance(number, int)
    tp = PARTITIONS[number] if kind in ("grow", "shrink", "resume_answers", "cancel", "elect", "move") else TP
    match kind:
        case "die" if len(stage.live) > 1:
            stage.die(number)
        case "bounce":
            stage.bounce(number)
        case "settle":
            stage.settle()
        case "write one":
            stage.write_one()
        case "depose":
            stage.depose()
        case "answer":
            stage.answer_stops()
        case "deliver":
            stage.deliver()
        case "grow" | "shrink":
            stage.propose(tp, grow=kind == "grow")
        case "resume_answers":
            stage.read_state(tp)
        case "elect":
            stage.play(stage.controller.elections_wanted([tp]))
        case "cancel" if stage.assigned(tp).moving:
            wanted[tp] = set(stage.assigned(tp).origin)
            stage.reassign(tp)
        case "move":
            order, count = rest
            wanted[tp] = set(order[:count])  # type: ignore[index]
            stage.reassign(tp, *order[:count])  # type: ignore[index]


@settings(max_examples=250, deadline=None)
@example([("move", 0, [1, 2, 3, 4, 5], 2), ("settle", 0), ("die", 3)])
@given(st.lists(EVENTS, max_size=40))
def test_every_history_of_reassignments_ends_led_at_its_target(events: list[tuple[object, ...]]) -> None:
    stage = Stage(1, 2, 3, 4, 5)
    stage.create("t", (1, 2, 3), (3, 4))
    stage.settle()
    wanted = {tp: set(stage.assigned(tp).replicas) for tp in PARTITIONS}
    for event in events:
        seen, before = len(stage.history), {tp: known.state for tp, known in stage.states.items()}
        step(stage, wanted, event)
        for tp, written in stage.history[seen:]:
            assert written.leader == NO_LEADER or written.leader in written.isr
            leads_on = written.leader == before[tp].leader and set(written.isr) < set(before[tp].isr)
            assert written.leader_epoch >= before[tp].leader_epoch + (not leads_on)

    for broker_id in stage.logs:
        if broker_id not in stage.live:
            stage.bounce(broker_id)
    for _ in range(40):
        stage.settle()
        for tp in PARTITIONS:
            stage.propose(tp, grow=True)
        while stage.proposals:
            stage.deliver()
        for tp in PARTITIONS:
            stage.read_state(tp)
        stage.answer_stops()
    for tp in PARTITIONS:
        state, assigned = stage.states[tp].state, stage.assigned(tp)
        assert not assigned.moving and set(assigned.replicas) == wanted[tp]
        assert state.leader in wanted[tp] and set(state.isr) == wanted[tp]
        assert {broker_id for broker_id, logs in stage.logs.items() if tp in logs} == wanted[tp]
    assert stage.context.reassignments() == {}
