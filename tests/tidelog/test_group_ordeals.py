"""Groups whose members, coordinators and leaders change at random keep their promises:

read       every record is read by a member
once       no record is read twice, unless a member died without leaving
commits    a commit covers only records that polls have returned, and never goes back
shares     no two members are assigned one partition in one generation
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection

import pytest

from tests.tidelog.clients import put
from tests.tidelog.fake_cluster import FakeCluster, Fault
from tests.tidelog.group_stories import STRATEGIES, Notes, Reading, parts
from tests.virtual_time import on_virtual_time, until
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import GROUP_REQUESTS

PARTITIONS = 5
ROUNDS = 25
MOST_MEMBERS = 4


class Ordeal:
    """Runs random events. With `deadly`, members may die without leaving; otherwise all members leave."""

    def __init__(self, seed: int, strategy: str) -> None:
        self.rng = random.Random(seed)
        self.deadly = bool(seed % 2)
        self.cluster = FakeCluster()
        self.log = self.cluster.create("t", PARTITIONS)
        self.strategy = strategy
        self.members: list[Reading] = []
        self.gone: list[Reading] = []
        self.written: Counter[TopicPartition] = Counter()
        self.shares: dict[int, dict[TopicPartition, str]] = {}
        self.cluster.fault_of = self.fault_of

    def fault_of(self, _: int, request: object) -> Fault | None:
        if isinstance(request, GROUP_REQUESTS) and self.rng.random() < 0.02:
            return self.rng.choice([Fault.LOSE_REQUEST, Fault.LOSE_ANSWER])
        return None

    @property
    def seen(self) -> list[tuple[TopicPartition, int]]:
        return [record for each in self.members + self.gone for record in each.seen]

    def write(self) -> None:
        for partition in self.log:
            for _ in range(self.rng.randrange(4)):
                put(partition, b"x")
                self.written[TopicPartition("t", partition.number)] += 1

    def start(self) -> None:
        ordeal = self

        class Shares(Notes):
            def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
                metadata = reading.consumer.group_metadata()
                share = ordeal.shares.setdefault(metadata.generation_id, {})
                for tp in reading.consumer.assignment():
                    assert share.setdefault(tp, metadata.member_id) == metadata.member_id, (tp, metadata)
                return None

        reading = Reading(
            self.cluster,
            notes=Shares(),
            partition_assignment_strategy=self.strategy,
            auto_commit_interval_ms=self.rng.choice([100, 1000, 5000]),
            heartbeat_interval_ms=self.rng.choice([500, 3000]),
        )
        self.members.append(reading.begin())

    async def happen(self) -> None:
        rng = self.rng
        what = rng.choice(["start", "close", "die" if self.deadly else "start", "move", "kill", "elect", "nothing"])
        if what == "start" and len(self.members) < MOST_MEMBERS:
            self.start()
        elif what in ("close", "die") and len(self.members) > 1:
            member = self.members.pop(rng.randrange(len(self.members)))
            if what == "die":
                await member.die()
            else:
                await member.close()
            self.gone.append(member)
        elif what == "move":
            self.cluster.coordinator.move("g")
        elif what == "kill":
            broker = rng.choice(list(self.cluster.live))
            self.cluster.kill(broker)
            await asyncio.sleep(rng.uniform(0, 2))
            self.cluster.revive(broker)
        elif what == "elect":
            self.cluster.move(rng.choice(self.log))
        self.check_commits()

    def check_commits(self) -> None:
        reached = {tp: max(offset for each, offset in self.seen if each == tp) + 1 for tp, _ in self.seen}
        last: dict[TopicPartition, int] = {}
        for _, tp, offset in self.cluster.coordinator.history:
            assert last.get(tp, 0) <= offset <= reached.get(tp, 0), (tp, offset, last, reached)
            last[tp] = offset

    def is_all_read(self) -> bool:
        return set(self.seen) == {(tp, offset) for tp, count in self.written.items() for offset in range(count)}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 10))])
def test_random_faults_break_no_promise_of_a_group(seed: int, strategy: str) -> None:
    @on_virtual_time
    async def story() -> None:
        ordeal = Ordeal(seed, strategy)
        ordeal.start()
        for _ in range(ROUNDS):
            ordeal.write()
            await ordeal.happen()
            await asyncio.sleep(ordeal.rng.choice([0.01, 0.3, 3, 15]))
        await until(ordeal.is_all_read, timeout_s=120)
        seen = Counter(ordeal.seen)
        if not ordeal.deadly:
            assert max(seen.values(), default=1) == 1
        assert [error for member in ordeal.members + ordeal.gone for error in member.errors] == []
        for member in ordeal.members:
            await member.close()
        ordeal.check_commits()
        ends = {tp: each.committed_offset for tp, each in ordeal.cluster.coordinator.committed["g"].items()}
        assert ends == dict(ordeal.written) and ends.keys() == parts(*range(PARTITIONS))

    story()
