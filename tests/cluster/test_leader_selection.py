"""The controller's decision about one partition, one row or more for each lettered case of `decide`.

The partition has the replicas 1, 2 and 3, and its state has leader epoch 4. Brokers 1, 2 and 3 are online unless a row
says otherwise. Broker 9 is the controller.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster.controller.decision import (
    Ask,
    Awaited,
    ConfirmRemoval,
    Decision,
    EndRequest,
    Nothing,
    Question,
    Reason,
    Wait,
    Write,
)
from cluster.controller.leader_selection import decide, election_candidates, review
from cluster.controller.liveness import Liveness
from cluster.controller.partition_context import (
    REGISTRATION_DELAY_MS,
    BrokerSets,
    ElectionPolicy,
    LeaderHandoff,
    PartitionContext,
)
from cluster.controller.replicas.reassignment import ReassignmentProgress
from cluster.controller.timer import Timer
from cluster.controller.unclean_recovery import LogEnd, LogEndQuery, SuspectReplicas
from cluster.state import PartitionState, ReplicaAssignment, VersionedState
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.partition_messages import ElectionType

TP = TopicPartition("t", 0)
CONTROLLER, EPOCH, NOW_MS, TIMEOUT_MS = 9, 7, 1_000_000, 300_000
LONG_AGO = Timer(NOW_MS - TIMEOUT_MS)
UNCLEAN = ElectionPolicy(EPOCH, allows_unclean=True)


def partition(leader: int, *isr: int, eligible: tuple[int, ...] = ()) -> PartitionContext:
    state = PartitionState(leader, 4, isr, 6, eligible)
    return PartitionContext(TP, ReplicaAssignment((1, 2, 3)), ElectionPolicy(EPOCH), VersionedState(state, 12))


def online(*broker_ids: int, shutting_down: int | None = None, registering: int | None = None) -> BrokerSets:
    sets = [frozenset() if each is None else frozenset({each}) for each in (shutting_down, registering)]
    return BrokerSets(frozenset(broker_ids), *sets)


def after_losses_of(*lost: int, alive: int | None = None) -> Liveness:
    """Return the proofs of liveness after these brokers were lost in liveness epoch 1; `alive` has answered since."""
    liveness = Liveness(CONTROLLER)
    if lost:
        liveness.note_lost(lost)
    if alive is not None:
        liveness.answered(alive, liveness.epoch)
    return liveness


def written(leader: int, *isr: int, leader_epoch: int = 5) -> PartitionState:
    return PartitionState(leader, leader_epoch, isr, EPOCH)


ALL = online(1, 2, 3)
NO_LOSS = after_losses_of()
LED = partition(1, 1, 2, 3)
LEADERLESS = partition(NO_LEADER, 1)
NEW = replace(LED, known=None)
SUSPECT = SuspectReplicas(frozenset({1, 2}))
ALL_SUSPECT = replace(partition(NO_LEADER, 1, 2), suspects=SUSPECT)
ENDS = LogEndQuery({1: LogEnd(3, 9), 2: LogEnd(3, 20)}, {1: 1, 2: 1})
MOVE = replace(partition(1, 1, 2, 3), assigned=ReplicaAssignment((1, 2, 3), adding=(3,), removing=(1,)))
ANNOUNCED = replace(MOVE, reassignment=ReassignmentProgress(announced=True))
OLD_LEADER_ASKED = replace(ANNOUNCED, handoff=LeaderHandoff(4, 1))
REMAINING_ASKED = ReassignmentProgress(announced=True, remaining=frozenset({2, 3}), asked=1)
REMOVED = replace(
    partition(2, 2, 3), assigned=MOVE.assigned, reassignment=ReassignmentProgress(announced=True, removed=True)
)
PREFERRED = replace(partition(2, 1, 2, 3), requested_election=ElectionType.PREFERRED)


@pytest.mark.parametrize(
    ("before", "brokers", "liveness", "expected"),
    [
        # A: there is no state yet
        pytest.param(NEW, ALL, NO_LOSS, Write(written(1, 1, 2, 3, leader_epoch=0), Reason.NEW_PARTITION), id="A: new"),
        pytest.param(NEW, online(4), NO_LOSS, Wait(Awaited.LIVE_REPLICA), id="A: no replica is alive"),
        pytest.param(
            NEW,
            online(1, 2, shutting_down=1),
            NO_LOSS,
            Write(written(2, 2, leader_epoch=0), Reason.NEW_PARTITION),
            id="A: a broker that shuts down gets no leadership",
        ),
        # B: members are lost, and no other one has proved that it is alive since
        pytest.param(LED, online(2, 3), after_losses_of(1), Wait(Awaited.LIVENESS), id="B: the leader is lost"),
        pytest.param(
            replace(LED, liveness_wait=Timer(NOW_MS - REGISTRATION_DELAY_MS + 1)),
            online(2, 3, registering=1),
            after_losses_of(1),
            Wait(Awaited.LIVENESS, NOW_MS - REGISTRATION_DELAY_MS + 1),
            id="B: its new registration waits",
        ),
        pytest.param(
            replace(LED, liveness_wait=Timer(NOW_MS - REGISTRATION_DELAY_MS)),
            online(2, 3, registering=1),
            after_losses_of(1),
            Write(written(NO_LEADER, 1, 2, 3), Reason.LIVENESS_OVERDUE),
            id="B: its new registration has waited long enough",
        ),
        pytest.param(
            replace(LED, liveness_wait=LONG_AGO),
            online(2, 3),
            after_losses_of(1),
            Wait(Awaited.LIVENESS, LONG_AGO.since_ms),
            id="B: no registration waits, so nothing is overdue",
        ),
        pytest.param(
            replace(LED, liveness_wait=LONG_AGO, epoch_bump=True),
            online(1, 3),
            after_losses_of(2),
            Write(written(1, 1, 2, 3), Reason.LIVENESS_OVERDUE),
            id="B: a trusted leader stays, in the new epoch that it needs",
        ),
        pytest.param(
            replace(LED, liveness_wait=LONG_AGO),
            online(1, 3),
            after_losses_of(2),
            Wait(Awaited.LIVENESS, LONG_AGO.since_ms),
            id="B: a trusted leader that needs no new epoch stays",
        ),
        pytest.param(
            replace(LED, liveness_wait=LONG_AGO, epoch_bump=True),
            online(2, 3),
            after_losses_of(1),
            Write(written(NO_LEADER, 1, 2, 3), Reason.LIVENESS_OVERDUE),
            id="B: a lost leader is replaced by none if a new epoch is needed",
        ),
        # C: an election from the ISR
        pytest.param(
            LED,
            online(2, 3),
            after_losses_of(1, alive=3),
            Write(written(2, 2, 3), Reason.ELECTION),
            id="C: the leader is lost, and another member is alive",
        ),
        pytest.param(
            LED,
            online(1, 2),
            after_losses_of(3, alive=1),
            Write(written(1, 1, 2, leader_epoch=4), Reason.ELECTION),
            id="C: a follower is lost",
        ),
        pytest.param(
            replace(LED, epoch_bump=True),
            ALL,
            NO_LOSS,
            Write(written(1, 1, 2, 3), Reason.ELECTION),
            id="C: a new epoch",
        ),
        pytest.param(
            replace(LED, evict_shutting_down=True),
            online(1, 2, 3, shutting_down=1),
            after_losses_of(1, alive=2),
            Write(written(2, 2, 3), Reason.ELECTION),
            id="C: the leader shuts down",
        ),
        pytest.param(
            replace(LED, with_loss=frozenset({1})),
            ALL,
            after_losses_of(1, alive=2),
            Write(written(2, 2, 3), Reason.ELECTION),
            id="C: the leader has lost records",
        ),
        # D: an unclean election that the topic allows
        pytest.param(LEADERLESS, online(2, 3), NO_LOSS, Nothing(), id="D: not allowed"),
        pytest.param(
            replace(LEADERLESS, policy=UNCLEAN),
            online(2, 3),
            NO_LOSS,
            Ask(Question.LOG_ENDS, (2, 3)),
            id="D: two replicas are asked",
        ),
        pytest.param(
            replace(LEADERLESS, policy=UNCLEAN),
            online(2, 3, registering=1),
            NO_LOSS,
            Wait(Awaited.REGISTRATION),
            id="D: a replica is registering",
        ),
        pytest.param(
            replace(LEADERLESS, policy=UNCLEAN), online(4), NO_LOSS, Wait(Awaited.LIVE_REPLICA), id="D: none is alive"
        ),
        pytest.param(
            replace(LEADERLESS, policy=UNCLEAN, log_end_query=LogEndQuery({2: LogEnd(3, 9)}, {2: 1, 3: 1}, Timer(5))),
            online(2, 3),
            NO_LOSS,
            Write(written(2, 2), Reason.UNCLEAN_ELECTION),
            id="D: the wait for an answer is over",
        ),
        pytest.param(
            replace(
                LEADERLESS, policy=UNCLEAN, log_end_query=LogEndQuery({2: LogEnd(3, 9)}, {2: 1, 3: 1}, Timer(NOW_MS))
            ),
            online(2, 3),
            NO_LOSS,
            Wait(Awaited.LOG_ENDS, NOW_MS),
            id="D: one has not answered",
        ),
        pytest.param(
            replace(LEADERLESS, policy=UNCLEAN, log_end_query=LogEndQuery({2: LogEnd(3, 9), 3: LogEnd(4, 1)})),
            online(2, 3),
            NO_LOSS,
            Write(written(3, 3), Reason.UNCLEAN_ELECTION),
            id="D: the later epoch leads",
        ),
        pytest.param(
            replace(LEADERLESS, policy=UNCLEAN),
            online(3),
            NO_LOSS,
            Write(written(3, 3), Reason.UNCLEAN_ELECTION),
            id="D: the only live replica is not asked",
        ),
        pytest.param(
            replace(ALL_SUSPECT, policy=UNCLEAN, log_end_query=ENDS),
            online(1, 2, 3),
            NO_LOSS,
            Write(written(2, 2), Reason.RECOVERY),
            id="D: suspect members may have all records, so E applies",
        ),
        pytest.param(
            replace(ALL_SUSPECT, policy=UNCLEAN, with_loss=frozenset({1, 2})),
            online(1, 2, 3),
            NO_LOSS,
            Ask(Question.LOG_ENDS, (1, 2, 3)),
            id="D: all suspect members have lost records",
        ),
        # E: every live ISR member is suspect
        pytest.param(ALL_SUSPECT, online(1, 2), NO_LOSS, Ask(Question.LOG_ENDS, (1, 2)), id="E: all are asked"),
        pytest.param(ALL_SUSPECT, online(1), NO_LOSS, Wait(Awaited.ABSENT_CANDIDATES), id="E: one is absent"),
        pytest.param(
            replace(ALL_SUSPECT, suspects=replace(SUSPECT, timer=LONG_AGO)),
            online(1),
            NO_LOSS,
            Ask(Question.LOG_ENDS, (1,)),
            id="E: the wait for the absent one is over",
        ),
        pytest.param(
            ALL_SUSPECT, online(1, registering=2), NO_LOSS, Wait(Awaited.REGISTRATION), id="E: one is registering"
        ),
        pytest.param(
            replace(ALL_SUSPECT, log_end_query=ENDS),
            online(1, 2),
            NO_LOSS,
            Write(written(2, 2), Reason.RECOVERY),
            id="E: the longest log leads",
        ),
        pytest.param(ALL_SUSPECT, online(3), NO_LOSS, Nothing(), id="E: no ISR member is online"),
        # F: a reassignment from 1, 2 to 2, 3
        pytest.param(
            replace(partition(1, 1, 2), assigned=MOVE.assigned, reassignment=ReassignmentProgress()),
            ALL,
            NO_LOSS,
            Write(written(1, 1, 2), Reason.REASSIGNMENT_ANNOUNCED),
            id="F: announced in a new epoch",
        ),
        pytest.param(
            replace(partition(1, 1, 2), assigned=MOVE.assigned, reassignment=ReassignmentProgress(announced=True)),
            ALL,
            NO_LOSS,
            Nothing(),
            id="F: the new replica is not in sync yet",
        ),
        pytest.param(ANNOUNCED, ALL, NO_LOSS, Ask(Question.OLD_LEADER, (1,)), id="F: the old leader is asked"),
        pytest.param(
            replace(ANNOUNCED, known=partition(1, 1, 3).known, with_loss=frozenset({2})),
            ALL,
            NO_LOSS,
            Ask(Question.OLD_LEADER, (1,)),
            id="F: a remaining replica that has lost records is not waited for",
        ),
        pytest.param(
            OLD_LEADER_ASKED, ALL, after_losses_of(4), Wait(Awaited.OLD_LEADER), id="F: the old leader has not answered"
        ),
        pytest.param(
            replace(OLD_LEADER_ASKED, handoff=LeaderHandoff(3, 1)),
            ALL,
            after_losses_of(4, alive=1),
            Ask(Question.OLD_LEADER, (1,)),
            id="F: the old leader answered in an earlier epoch",
        ),
        pytest.param(
            OLD_LEADER_ASKED,
            ALL,
            after_losses_of(4, alive=1),
            Ask(Question.REMAINING_MEMBERS, {2, 3}),
            id="F: then the remaining members are asked",
        ),
        pytest.param(
            replace(OLD_LEADER_ASKED, reassignment=replace(REMAINING_ASKED, asked=2)),
            ALL,
            after_losses_of(4, alive=1),
            Wait(Awaited.REMAINING_MEMBERS),
            id="F: no remaining member has answered",
        ),
        pytest.param(
            replace(partition(2, 1, 2, 3), assigned=MOVE.assigned, reassignment=REMAINING_ASKED),
            ALL,
            after_losses_of(4, alive=3),
            Write(written(2, 2, 3), Reason.REPLICAS_REMOVED),
            id="F: one of them is alive, and a remaining member leads already",
        ),
        pytest.param(REMOVED, ALL, NO_LOSS, Ask(Question.REMAINING_MEMBERS, {2, 3}), id="F: they are asked once more"),
        pytest.param(
            replace(REMOVED, reassignment=replace(REMAINING_ASKED, removed=True)),
            ALL,
            after_losses_of(4, alive=3),
            ConfirmRemoval(),
            id="F: one of them is alive after the removal",
        ),
        pytest.param(
            replace(REMOVED, known=partition(2, 2).known, reassignment=replace(REMAINING_ASKED, removed=True)),
            ALL,
            after_losses_of(4, alive=3),
            Wait(Awaited.REMAINING_MEMBERS),
            id="F: the answer of a former ISR member proves nothing",
        ),
        pytest.param(
            replace(REMOVED, reassignment=ReassignmentProgress(True, removed=True, confirmed=True)),
            ALL,
            NO_LOSS,
            Nothing(),
            id="F: the removal is confirmed",
        ),
        # G: a requested election
        pytest.param(PREFERRED, ALL, NO_LOSS, Ask(Question.OLD_LEADER, (2,)), id="G: the old leader is asked"),
        pytest.param(
            replace(PREFERRED, handoff=LeaderHandoff(4, 1)),
            ALL,
            after_losses_of(4, alive=2),
            Write(written(1, 1, 2, 3), Reason.REQUEST),
            id="G: the old leader has answered",
        ),
        pytest.param(replace(PREFERRED, known=LED.known), ALL, NO_LOSS, EndRequest(), id="G: it leads already"),
        pytest.param(
            PREFERRED, online(1, 2, 3, shutting_down=1), NO_LOSS, EndRequest(), id="G: the preferred leader shuts down"
        ),
        pytest.param(
            replace(LEADERLESS, requested_election=ElectionType.UNCLEAN),
            online(3),
            NO_LOSS,
            Write(written(3, 3), Reason.UNCLEAN_ELECTION),
            id="G: an unclean one is carried out although the topic does not allow it",
        ),
        pytest.param(
            replace(LEADERLESS, requested_election=ElectionType.UNCLEAN), online(4), NO_LOSS, EndRequest(), id="G: none"
        ),
        pytest.param(
            replace(LED, requested_election=ElectionType.UNCLEAN), ALL, NO_LOSS, EndRequest(), id="G: there is a leader"
        ),
        # H
        pytest.param(LED, ALL, NO_LOSS, Nothing(), id="H: all is well"),
        pytest.param(LEADERLESS, online(2), NO_LOSS, Nothing(), id="H: the only ISR member is dead"),
    ],
)
def test_each_case_has_its_decision(
    before: PartitionContext, brokers: BrokerSets, liveness: Liveness, expected: Decision
) -> None:
    decision = decide(before, brokers, liveness, NOW_MS)
    assert decision == expected
    if isinstance(decision, Write) and isinstance(expected, Write):
        assert decision.state.eligible == _eligible(before, expected)


def _eligible(before: PartitionContext, write: Write) -> tuple[int, ...]:
    """Return the eligible leader replicas that the written state must have."""
    isr = write.state.isr
    if before.known is None or write.why is Reason.UNCLEAN_ELECTION:
        return ()
    dropped = before.known.state.isr if len(isr) == 1 or write.why is Reason.REPLICAS_REMOVED else ()
    return tuple(sorted({*dropped, *before.known.state.eligible} - set(isr)))


@pytest.mark.parametrize(
    ("before", "brokers", "liveness", "expected"),
    [
        pytest.param(NEW, ALL, NO_LOSS, NEW, id="no state"),
        pytest.param(replace(LED, log_end_query=ENDS), ALL, NO_LOSS, LED, id="a leader ends the log end query"),
        pytest.param(
            replace(LEADERLESS, epoch_bump=True), ALL, NO_LOSS, LEADERLESS, id="without a leader no epoch is bumped"
        ),
        pytest.param(
            replace(LEADERLESS, log_end_query=LogEndQuery({2: LogEnd(3, 9)}, {2: 0, 3: 1})),
            ALL,
            after_losses_of(1),
            replace(LEADERLESS, log_end_query=LogEndQuery({}, {3: 1})),
            id="an answer from before a loss is void",
        ),
        pytest.param(
            replace(LED, suspects=SuspectReplicas(frozenset({4}))), ALL, NO_LOSS, LED, id="no suspect is in the ISR"
        ),
        pytest.param(
            replace(LEADERLESS, suspects=SuspectReplicas(frozenset({1}))),
            ALL,
            NO_LOSS,
            LEADERLESS,
            id="a suspect is the only candidate",
        ),
        pytest.param(
            replace(partition(NO_LEADER, 1, eligible=(2,)), suspects=SuspectReplicas(frozenset({1}))),
            ALL,
            NO_LOSS,
            replace(partition(NO_LEADER, 1, eligible=(2,)), suspects=SuspectReplicas(frozenset({1}))),
            id="an eligible replica is a candidate too",
        ),
        pytest.param(
            replace(LED, suspects=replace(SUSPECT, timer=LONG_AGO)),
            ALL,
            NO_LOSS,
            replace(LED, suspects=SUSPECT),
            id="a trusted member is online, so the wait for one is over",
        ),
        pytest.param(
            replace(ALL_SUSPECT, suspects=replace(SUSPECT, timer=LONG_AGO)),
            ALL,
            NO_LOSS,
            replace(ALL_SUSPECT, suspects=replace(SUSPECT, timer=LONG_AGO)),
            id="no trusted member is online, so the wait goes on",
        ),
        pytest.param(
            replace(PREFERRED, handoff=LeaderHandoff(3, 1)), ALL, NO_LOSS, PREFERRED, id="the handoff of an old epoch"
        ),
        pytest.param(replace(LED, handoff=LeaderHandoff(4, 1)), ALL, NO_LOSS, LED, id="no successor is wanted"),
        pytest.param(
            replace(PREFERRED, handoff=LeaderHandoff(4, 1)),
            ALL,
            NO_LOSS,
            replace(PREFERRED, handoff=LeaderHandoff(4, 1)),
            id="a successor is still wanted",
        ),
        pytest.param(
            replace(ANNOUNCED, reassignment=REMAINING_ASKED),
            ALL,
            after_losses_of(4, alive=2),
            replace(ANNOUNCED, reassignment=replace(REMAINING_ASKED, remaining=frozenset())),
            id="members that answered before the old leader are asked again",
        ),
        pytest.param(
            replace(OLD_LEADER_ASKED, reassignment=REMAINING_ASKED),
            ALL,
            after_losses_of(4, alive=1),
            replace(OLD_LEADER_ASKED, reassignment=REMAINING_ASKED),
            id="members that were asked after the old leader's answer",
        ),
        pytest.param(
            replace(partition(2, 1, 2), assigned=MOVE.assigned, reassignment=REMAINING_ASKED),
            ALL,
            NO_LOSS,
            replace(
                partition(2, 1, 2),
                assigned=MOVE.assigned,
                reassignment=replace(REMAINING_ASKED, remaining=frozenset()),
            ),
            id="members that were asked for a removal that is too early now",
        ),
        pytest.param(
            replace(partition(NO_LEADER, 1, 2, 3), assigned=MOVE.assigned, reassignment=REMAINING_ASKED),
            ALL,
            NO_LOSS,
            replace(
                partition(NO_LEADER, 1, 2, 3),
                assigned=MOVE.assigned,
                reassignment=replace(REMAINING_ASKED, remaining=frozenset()),
            ),
            id="members that were asked before the partition lost its leader",
        ),
        pytest.param(
            replace(REMOVED, reassignment=replace(REMAINING_ASKED, removed=True)),
            ALL,
            NO_LOSS,
            replace(REMOVED, reassignment=replace(REMAINING_ASKED, removed=True)),
            id="members that were asked after the removal",
        ),
    ],
)
def test_review_drops_only_what_is_obsolete(
    before: PartitionContext, brokers: BrokerSets, liveness: Liveness, expected: PartitionContext
) -> None:
    assert review(before, brokers, liveness) == expected


@pytest.mark.parametrize(
    ("progress", "policy", "expected"),
    [
        pytest.param(None, ElectionPolicy(EPOCH), (2, 1, 3), id="the ISR and the eligible replicas"),
        pytest.param(None, UNCLEAN, (2,), id="unclean elections are allowed"),
        pytest.param(ReassignmentProgress(), UNCLEAN, (2, 1, 3), id="during a reassignment"),
        pytest.param(
            ReassignmentProgress(True, removed=True), ElectionPolicy(EPOCH), (2, 1, 3), id="a removed replica has a log"
        ),
        pytest.param(
            ReassignmentProgress(True, removed=True, confirmed=True),
            ElectionPolicy(EPOCH),
            (2, 3),
            id="the removal is confirmed",
        ),
        pytest.param(
            ReassignmentProgress(True, removed=True, confirmed=True), UNCLEAN, (2,), id="confirmed, and unclean"
        ),
    ],
)
def test_replicas_that_may_have_all_records_are_candidates(
    progress: ReassignmentProgress | None, policy: ElectionPolicy, expected: tuple[int, ...]
) -> None:
    state = PartitionState(NO_LEADER, 4, (2,), 6, eligible=(1, 3, 4))
    assert election_candidates(replace(MOVE, reassignment=progress, policy=policy), state) == expected
