"""Test which machines may lose unsynced bytes: all except the last undamaged member of an ISR."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from cluster.state import PartitionState
from cluster.zookeeper import znodes
from cluster.zookeeper.in_memory import MemoryZooKeeper
from cluster.zookeeper.store import Create, Operation, Set
from tidelog.history.broker_events import HighWatermark
from tidelog.model import NO_LEADER, TopicPartition
from verify.simulation.cluster.durability_model import DurabilityModel
from verify.simulation.disks.page_cache import KEPT

TP = TopicPartition("orders", 0)
RNG = Random(1)


@dataclass
class Log:
    log_end_offset: int = 0


@dataclass
class Replica:
    log: Log = field(default_factory=Log)


class Broker:
    """A broker with the properties that the model needs: whether it runs, and its log."""

    def __init__(self) -> None:
        self.runs = True
        self.held = Replica()

    def replica(self, tp: TopicPartition) -> Replica | None:
        return self.held if self.runs else None


class World:
    def __init__(self, *, waits_for_disk: bool = False) -> None:
        self.zookeeper = MemoryZooKeeper()
        self.brokers = {number: Broker() for number in (1, 2, 3)}
        self.unclean_elections = 0
        self.durability = DurabilityModel(
            cast(Any, self), waits_for_disk=waits_for_disk, on_unclean_election=self.count_unclean_election
        )
        path = ""
        for part in znodes.state_path(TP).split("/")[1:-1]:
            path += f"/{part}"
            self.do(Create(path, b""))
        self.do(Create(znodes.state_path(TP), self.state(1, 2, 3)))

    def count_unclean_election(self) -> None:
        self.unclean_elections += 1

    def do(self, operation: Operation) -> None:
        server = self.zookeeper.choose_server(0)
        self.zookeeper.propose([operation], 0, server, lambda outcome: None)

    def state(self, *isr: int) -> bytes:
        return znodes.encode_state(PartitionState(1, 0, isr, 1))

    def isr_is(self, *isr: int) -> None:
        self.do(Set(znodes.state_path(TP), self.state(*isr)))

    def leads(self, leader: int, *isr: int) -> bool:
        """Write a state, and return whether that was an unclean election."""
        before = self.unclean_elections
        epoch = znodes.decode_state(self.zookeeper.node(znodes.state_path(TP)).data).leader_epoch + 1
        self.do(Set(znodes.state_path(TP), znodes.encode_state(PartitionState(leader, epoch, isr, 1))))
        return self.unclean_elections > before

    def may_lose(self, broker_id: int) -> bool:
        return self.durability.fate(broker_id, RNG) is not KEPT


def test_all_replicas_but_one_may_lose_unsynced_records() -> None:
    stage = World()
    assert [stage.may_lose(number) for number in (1, 2, 3)] == [True, True, False]


def test_last_undamaged_isr_member_keeps_everything() -> None:
    stage = World()
    stage.isr_is(1)
    assert stage.may_lose(2), "it counts for nothing"
    assert not stage.may_lose(1)
    assert not stage.may_lose(1), "it has lost nothing the first time"


def test_replica_that_rejoined_with_all_records_is_undamaged() -> None:
    stage = World()
    assert stage.may_lose(1)
    assert stage.may_lose(2)
    stage.isr_is(2, 3)
    stage.brokers[1].held.log.log_end_offset = 7
    stage.durability.take(HighWatermark(0, TP, 0, 7))
    stage.isr_is(2, 3, 1)
    assert stage.may_lose(3)
    assert not stage.may_lose(1)


def test_replica_added_by_an_old_proposal_may_be_damaged() -> None:
    stage = World()
    stage.isr_is(2, 3)
    assert stage.may_lose(2)
    stage.durability.take(HighWatermark(0, TP, 0, 7))
    stage.brokers[1].held.log.log_end_offset = 6
    stage.isr_is(2, 3, 1)
    assert not stage.may_lose(3), "neither of the others has what it has"
    stage.isr_is(2, 3)
    stage.brokers[1].runs = False
    stage.isr_is(2, 3, 1)
    assert not stage.may_lose(3)


def test_all_replicas_may_lose_unsynced_records_of_flushed_topics() -> None:
    stage = World(waits_for_disk=True)
    assert all(stage.may_lose(number) for number in (1, 2, 3))


def test_log_with_a_damaged_segment_does_not_count() -> None:
    stage = World()
    stage.durability.damaged(2, TP)
    assert stage.may_lose(1)
    assert not stage.may_lose(3)


def test_log_repaired_before_any_read_counts_again() -> None:
    stage = World()
    stage.durability.damaged(2, TP)
    stage.durability.repaired(2, TP)
    assert stage.may_lose(1) and stage.may_lose(3)
    assert not stage.may_lose(2)


def test_log_opened_with_damage_counts_only_after_it_rejoined() -> None:
    stage = World()
    stage.durability.damaged(2, TP)
    stage.durability.opens_damaged(2, TP)
    stage.durability.repaired(2, TP)
    assert stage.may_lose(1)
    assert not stage.may_lose(3)
    stage.isr_is(1, 3)
    stage.isr_is(1, 3, 2)
    assert stage.may_lose(3)


def test_replica_that_joins_with_damage_does_not_count() -> None:
    stage = World()
    stage.durability.damaged(2, TP)
    for repaired in (False, True):
        if repaired:
            stage.durability.repaired(2, TP)
        stage.isr_is(1, 3)
        stage.isr_is(1, 3, 2)
        assert stage.leads(2, 2, 1, 3) != repaired


def test_member_that_may_become_the_last_keeps_everything() -> None:
    stage = World()
    stage.isr_is(1, 3)
    version = stage.zookeeper.node(znodes.state_path(TP)).version
    stage.durability.proposed(Set(znodes.state_path(TP), stage.state(1), version))
    assert not stage.may_lose(1), "its leader has taken 3 out, though ZooKeeper has not heard of it"
    stage.isr_is(1, 3, 2)
    assert stage.may_lose(1), "another write was faster, so this one will be refused"


def test_leader_from_outside_the_isr_is_unclean() -> None:
    stage = World()
    assert not stage.leads(2, 1, 2)
    assert not stage.leads(NO_LEADER, 1)
    assert stage.leads(2, 2)
    assert not stage.leads(2, 2, 1), "it leads anew, and may"


def test_damaged_leader_in_the_isr_is_unclean() -> None:
    stage = World()
    assert stage.may_lose(1)
    stage.isr_is(1, 2)
    assert stage.leads(1, 1, 2)
