"""Machines go down and come back in any order, missed or not: a dumb twin of the brokers around the real controller.

A record is acknowledged when every member of the ISR has it, and excused from then on where none has it any more.
Nobody leads who lacks one that is not excused. What the controller decides is written before the next thing happens,
but for a machine that goes down in between.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.controller.leader_selection import LeaderSelector
from cluster.controller.liveness import Liveness
from tests.cluster.controller_stage import TP, Cluster, broker
from tidelog.model import NO_LEADER

BROKERS = (1, 2, 3)
OUTSIDER = 9

#: A record: the epoch it was written in, and its own number.
Record = tuple[int, int]


@dataclass(slots=True)
class Machine:
    """`short`: it went down, and the cluster has not dealt with that yet. `slow`: it lives and answers nobody yet."""

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
        """The leader appends a record, and those who hear it copy its log."""
        self.append()
        for broker_id in BROKERS:
            self.copy(broker_id)

    def append(self) -> None:
        """The leader appends a record that nobody hears of yet."""
        if self.leader != NO_LEADER:
            self.records += 1
            self.machines[self.leader].log.append((self.cluster.state().leader_epoch, self.records))

    def copy(self, follower: int) -> None:
        """It copies the leader's log, with what that has of earlier epochs."""
        leader, isr = self.leader, self.cluster.state().isr
        if leader == NO_LEADER or follower not in self.serving:
            return
        self.machines[follower].log = list(self.machines[leader].log)
        if follower not in isr:
            self.cluster.leader_tells_isr(TP, *isr, follower)

    def commit(self) -> None:
        """What all in sync have of the leader's log is acknowledged, be it the leader alone."""
        logs = [self.machines[broker_id].log for broker_id in self.cluster.state().isr]
        common = [each for each in self.machines[self.leader].log if all(each in log for log in logs)]
        self.acknowledged += [each for each in common if each not in self.acknowledged]

    def kill(self, broker_id: int) -> None:
        """The process dies; its registration stays for a while."""
        self.machines[broker_id].runs = False
        self.hush()
        if self.cluster.controller_id == broker_id:
            self.next_controller(OUTSIDER)

    def lose(self, broker_id: int, records: int) -> None:
        """The machine goes down, and so many records that were not synced are gone."""
        self.kill(broker_id)
        machine = self.machines[broker_id]
        machine.short = True
        del machine.log[max(0, len(machine.log) - records) :]
        isr = self.cluster.state().isr
        self.acknowledged = [each for each in self.acknowledged if any(each in self.machines[b].log for b in isr)]

    def lose_as_decided(self, broker_id: int, records: int) -> None:
        """The machine is there, and answers, and goes down; then what the controller decided upon that is written."""
        self.machines[broker_id].slow = False
        self.come(broker_id)
        self.hush()
        self.cluster.answer_requests()
        self.lose(broker_id, records)

    def miss(self, broker_id: int) -> None:
        """ZooKeeper notices that the process is dead."""
        if not self.machines[broker_id].runs:
            self.cluster.die(broker_id)

    def come(self, broker_id: int) -> None:
        """A process starts, and replaces the registration of the one before."""
        machine = self.machines[broker_id]
        if not machine.runs:
            machine.runs = True
            self.hush()
            self.broker_epoch += 1
            self.cluster.come(replace(broker(broker_id, self.broker_epoch), possibly_short=machine.short))

    def slow_down(self, broker_id: int) -> None:
        """It lives, but its answers take a while."""
        self.machines[broker_id].slow = True

    def speed_up(self, broker_id: int) -> None:
        """Its answers arrive."""
        self.machines[broker_id].slow = False

    def wait(self) -> None:
        """Somewhat longer than anybody who arrives has to wait; not as long as for those who are away."""
        self.cluster.play(self.cluster.controller.time_passed(self.records))
        self.cluster.play(self.cluster.controller.time_passed(self.records + 2000))

    def next_controller(self, controller_id: int) -> None:
        """Another controller, which knows only what ZooKeeper does."""
        if controller_id == OUTSIDER or self.machines[controller_id].runs:
            self.cluster.controller_id = controller_id
            self.cluster.begin_term(self.cluster.controller.epoch + 1)

    # --- what holds ------------------------------------------------------------------------------------------

    @property
    def serving(self) -> list[int]:
        """Those who live and have been told what they are."""
        return [each for each in BROKERS if self.machines[each].runs and each in self.cluster.controller.brokers]

    @property
    def leader(self) -> int:
        leader = self.cluster.state().leader
        return leader if leader in self.serving else NO_LEADER

    def hush(self) -> None:
        self.cluster.silent = {each for each, machine in self.machines.items() if machine.slow or not machine.runs}

    def settle(self) -> None:
        """Whoever lives and is not slow answers, and all that follows is written."""
        for _ in range(4):
            self.hush()
            self.cluster.answer_requests()
            self.cluster.settle()
            for broker_id in {asked for asked, _ in self.cluster.asked} - self.cluster.silent:
                log = self.machines[broker_id].log
                epochs = tuple({epoch: offset for offset, (epoch, _) in reversed([*enumerate(log)])}.items())[::-1]
                self.cluster.report_log_end(broker_id, len(log), last_epoch=log[-1][0] if log else -1, epochs=epochs)
        for broker_id in self.cluster.absolved:
            self.machines[broker_id].short = False
        self.cluster.absolved.clear()
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
        """In the end everybody is back and answers."""
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
    assert stage.cluster.state().isr == (2, 3), "nobody is given up for one that is silent"
    stage.do("lose_as_decided", 3, 1)
    assert stage.cluster.state().isr == (3,)
    stage.do("come", 3, 0)
    assert stage.leader == NO_LEADER
    stage.do("come", 2, 0)
    stage.do("come", 1, 0)
    assert stage.leader in {1, 2}
    stage.recover()


def test_former_leader_with_records_of_its_own_is_not_compared() -> None:
    """They stand in a later epoch than what the others had all the while, and acknowledged later."""
    stage = Stage()
    steps = [("append", 1), ("copy", 3), ("kill", 1), ("miss", 1), ("append", 2), ("kill", 2), ("miss", 2), ("come", 1)]
    for step, whom in [*steps, ("copy", 1), ("kill", 1), ("miss", 1), ("lose", 3), ("come", 2), ("come", 1)]:
        stage.do(step, whom, 0)
    assert (stage.acknowledged, stage.machines[2].log) == ([(0, 1)], [(1, 2)])
    stage.do("come", 3, 0)
    assert stage.leader == 3
    stage.recover()


def test_eligible_replica_leads_only_with_the_last_isr_members_log() -> None:
    """It led for a moment; the last one in sync has had an older record acknowledged since, and has lost nothing."""
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
    monkeypatch.setattr(LeaderSelector, "_candidates", lambda self, tp, state: state.isr)
    with pytest.raises(AssertionError, match="leads without"):
        for seed in range(200):
            run_at_random(seed, 40)
