"""Machines fail and return in any order, noticed or not: a simple twin of the brokers around the real controller.

A record is acknowledged when every ISR member has it, and excused once no ISR member has it any more. No broker leads
that lacks a record which is not excused. The controller's decision is written before the next event, except when a
machine fails in between.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.controller import leader_selection
from cluster.controller.liveness import Liveness
from tests.cluster.controller_stage import TP, Cluster, broker
from tidelog.model import NO_LEADER

BROKERS = (1, 2, 3)
OUTSIDER = 9

#: A record: the epoch it was written in, and its own number.
Record = tuple[int, int]


@dataclass(slots=True)
class Machine:
    """A machine. `short`: it failed, and the cluster has not dealt with that yet. `slow`: it is alive and does not
    answer yet.
    """

    log: list[Record] = field(default_factory=list)
    runs: bool = True
    short: bool = False
    slow: bool = False


class Stage:
    """One topic of one partition on three machines, and a controller beside them or on one of them."""

    def __init__(self) -> None:
        self.cluster = Cluster(*BROKERS)
        self.machines = {broker_id: Machine() for broker_id in BROKERS}
        self.acknowledged: list[Record] = []
        self.records = 0
        self.broker_epoch = 100
        self.cluster.create("t", BROKERS)
        self.settle()

    # --- what happens ----------------------------------------------------------------------------------------

    def produce(self) -> None:
        """Let the leader append a record, and let its live followers copy its log."""
        self.append()
        for broker_id in BROKERS:
            self.copy(broker_id)

    def append(self) -> None:
        """Let the leader append a record that no follower copies yet."""
        if self.leader != NO_LEADER:
            self.records += 1
            self.machines[self.leader].log.append((self.cluster.state().leader_epoch, self.records))

    def copy(self, follower: int) -> None:
        """Let a follower copy the leader's log, with records of earlier epochs."""
        leader, isr = self.leader, self.cluster.state().isr
        if leader == NO_LEADER or follower not in self.serving:
            return
        self.machines[follower].log = list(self.machines[leader].log)
        if follower not in isr:
            self.cluster.leader_changes_isr(TP, *isr, follower)

    def commit(self) -> None:
        """Acknowledge the part of the leader's log that all ISR members have."""
        logs = [self.machines[broker_id].log for broker_id in self.cluster.state().isr]
        common = [each for each in self.machines[self.leader].log if all(each in log for log in logs)]
        self.acknowledged += [each for each in common if each not in self.acknowledged]

    def kill(self, broker_id: int) -> None:
        """Kill the process; its registration stays for a while."""
        self.machines[broker_id].runs = False
        self.hush()
        if self.cluster.controller_id == broker_id:
            self.next_controller(OUTSIDER)

    def lose(self, broker_id: int, records: int) -> None:
        """Crash the machine, which loses this many unflushed records."""
        self.kill(broker_id)
        machine = self.machines[broker_id]
        machine.short = True
        del machine.log[max(0, len(machine.log) - records) :]
        isr = self.cluster.state().isr
        self.acknowledged = [each for each in self.acknowledged if any(each in self.machines[b].log for b in isr)]

    def lose_as_decided(self, broker_id: int, records: int) -> None:
        """Crash the machine after its answer; then the controller's decision is written."""
        self.machines[broker_id].slow = False
        self.come(broker_id)
        self.hush()
        self.cluster.answer_requests()
        self.lose(broker_id, records)

    def miss(self, broker_id: int) -> None:
        """Let ZooKeeper notice that the process is dead."""
        if not self.machines[broker_id].runs:
            self.cluster.die(broker_id)

    def come(self, broker_id: int) -> None:
        """Start a process, which replaces the earlier registration."""
        machine = self.machines[broker_id]
        if not machine.runs:
            machine.runs = True
            self.hush()
            self.broker_epoch += 1
            self.cluster.come(replace(broker(broker_id, self.broker_epoch), possibly_short=machine.short))

    def slow_down(self, broker_id: int) -> None:
        """Delay the answers of a live broker."""
        self.machines[broker_id].slow = True

    def speed_up(self, broker_id: int) -> None:
        """Deliver the delayed answers."""
        self.machines[broker_id].slow = False

    def wait(self) -> None:
        """Wait longer than a registering broker has to, but less long than for absent replicas."""
        self.cluster.play(self.cluster.controller.time_passed(self.records))
        self.cluster.play(self.cluster.controller.time_passed(self.records + 2000))

    def next_controller(self, controller_id: int) -> None:
        """Elect another controller, which knows only the content of ZooKeeper."""
        if controller_id == OUTSIDER or self.machines[controller_id].runs:
            self.cluster.controller_id = controller_id
            self.cluster.begin_term(self.cluster.controller.epoch + 1)

    # --- what holds ------------------------------------------------------------------------------------------

    @property
    def serving(self) -> list[int]:
        """Return the live brokers that know their roles."""
        return [each for each in BROKERS if self.machines[each].runs and each in self.cluster.context.brokers]

    @property
    def leader(self) -> int:
        leader = self.cluster.state().leader
        return leader if leader in self.serving else NO_LEADER

    def hush(self) -> None:
        self.cluster.silent = {each for each, machine in self.machines.items() if machine.slow or not machine.runs}

    def settle(self) -> None:
        """Let every live broker that is not slow answer, and write all that follows."""
        for _ in range(4):
            self.hush()
            self.cluster.answer_requests()
            self.cluster.settle()
            for broker_id in {asked for asked, _ in self.cluster.asked} - self.cluster.silent:
                log = self.machines[broker_id].log
                epochs = tuple({epoch: offset for offset, (epoch, _) in reversed([*enumerate(log)])}.items())[::-1]
                self.cluster.report_log_end(broker_id, len(log), last_epoch=log[-1][0] if log else -1, epochs=epochs)
        for broker_id in self.cluster.cleared_marks:
            self.machines[broker_id].short = False
        self.cluster.cleared_marks.clear()
        if self.leader != NO_LEADER:
            self.commit()
            missing = [each for each in self.acknowledged if each not in self.machines[self.leader].log]
            assert not missing, f"{self.leader} leads without {missing}, {self.cluster.state()}"

    def do(self, what: str, whom: int, how_much: int) -> None:
        match what:
            case "produce" | "append" | "wait":
                getattr(self, what)()
            case "lose" | "lose_as_decided":
                getattr(self, what)(whom, how_much)
            case _:
                getattr(self, what)(whom)
        self.settle()

    def recover(self) -> None:
        """Bring all brokers back and let them answer."""
        for broker_id in BROKERS:
            self.do("speed_up", broker_id, 0)
            self.do("come", broker_id, 0)
        for _ in range(3):
            self.do("wait", 0, 0)
        assert self.leader != NO_LEADER, self.cluster.state()
        self.do("produce", 0, 0)
        self.do("produce", 0, 0)
        assert set(self.cluster.state().isr) == set(BROKERS)
        assert not any(machine.short for machine in self.machines.values())


STEPS = ("produce", "produce", "append", "copy", "kill", "lose", "lose", "lose_as_decided", "miss", "come", "come",
         "slow_down", "speed_up", "wait", "next_controller")  # fmt: skip


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(BROKERS), st.integers(0, 3)), min_size=5, max_size=60)
)
@settings(deadline=None, max_examples=300)
def test_nothing_acknowledged_is_lost_as_long_as_one_of_the_isr_has_it(steps: list[tuple[str, int, int]]) -> None:
    stage = Stage()
    for step in steps:
        stage.do(*step)
    stage.recover()


def run_at_random(seed: int, steps: int) -> None:
    source = random.Random(seed)
    stage = Stage()
    for _ in range(steps):
        stage.do(source.choice(STEPS), source.choice(BROKERS), source.randrange(4))
    stage.recover()


def test_chosen_leader_that_fails_is_compared_with_eligible_replicas() -> None:
    stage = Stage()
    stage.do("produce", 0, 0)
    for step, whom in (("kill", 1), ("miss", 1), ("slow_down", 3), ("kill", 2), ("miss", 2)):
        stage.do(step, whom, 0)
    assert stage.cluster.state().isr == (2, 3), "no member is removed in favour of a silent one"
    stage.do("lose_as_decided", 3, 1)
    assert stage.cluster.state().isr == (3,)
    stage.do("come", 3, 0)
    assert stage.leader == NO_LEADER
    stage.do("come", 2, 0)
    stage.do("come", 1, 0)
    assert stage.leader in {1, 2}
    stage.recover()


def test_former_leader_with_records_of_its_own_is_not_compared() -> None:
    """The former leader's records have a later epoch than the others' records, which were acknowledged later."""
    stage = Stage()
    steps = [("append", 1), ("copy", 3), ("kill", 1), ("miss", 1), ("append", 2), ("kill", 2), ("miss", 2), ("come", 1)]
    for step, whom in [*steps, ("copy", 1), ("kill", 1), ("miss", 1), ("lose", 3), ("come", 2), ("come", 1)]:
        stage.do(step, whom, 0)
    assert (stage.acknowledged, stage.machines[2].log) == ([(0, 1)], [(1, 2)])
    stage.do("come", 3, 0)
    assert stage.leader == 3
    stage.recover()


def test_eligible_replica_leads_only_with_the_last_isr_members_log() -> None:
    """The eligible replica led for a moment. The last ISR member has had an older record acknowledged since, without a
    loss.
    """
    stage = Stage()
    steps = [("append", 1), ("copy", 3), ("kill", 1), ("miss", 1), ("append", 2), ("kill", 2), ("miss", 2), ("lose", 3)]
    for step, whom in [*steps, ("come", 1), ("come", 2)]:
        stage.do(step, whom, 0)
    assert (stage.acknowledged, stage.machines[2].log) == ([(0, 1)], [(1, 2)])
    assert stage.cluster.state().eligible == (2,)
    stage.do("come", 3, 0)
    assert stage.leader == 3
    stage.recover()


def test_twin_detects_a_controller_that_trusts_registrations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Liveness, "any_alive_since_loss", lambda self, candidates, lost: True)
    monkeypatch.setattr(leader_selection, "election_candidates", lambda partition, state: state.isr)
    with pytest.raises(AssertionError, match="leads without"):
        for seed in range(200):
            run_at_random(seed, 40)
