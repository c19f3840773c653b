"""Provide a runner on virtual time, with a fake cluster and fake faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tidelog.errors import LocalError
from tidelog.history.operations import ProduceOk
from tidelog.model import TopicPartition
from verify.chaos.fault import Availability, Evidence, Fault, Need, PartitionView, Target, View
from verify.chaos.injections import FaultsFile, Injection
from verify.chaos.results.activity import Activity
from verify.chaos.runner import FaultRunner, Reporter
from verify.chaos.schedule import Step
from verify.chaos.targets.cluster_views import Views

TP = TopicPartition("t", 0)
SECOND_NS = 1_000_000_000


def now_ns() -> int:
    return round(asyncio.get_running_loop().time() * SECOND_NS)


@dataclass
class Cluster:
    """The cluster of the runner, which fake faults change. `rate`: acknowledged records per second."""

    rate: int = 500
    epoch: int = 1
    isr: tuple[int, ...] = (1, 2, 3)
    visible: bool = True
    lacking: dict[Need, str] = field(default_factory=dict)
    tps: tuple[TopicPartition, ...] = (TP,)
    broker_ids: tuple[int, ...] = (1, 2, 3)

    async def view(self) -> View:
        if not self.visible:
            raise LocalError("no server answers")
        return View(now_ns(), {TP: PartitionView(1, self.epoch, self.isr, 1)})

    def lacks(self, need: Need) -> str | None:
        return self.lacking.get(need)


@dataclass
class Pretended:
    """A fault that increases the leader epoch, if it bites, and removes a replica from the ISR until it is healed."""

    cluster: Cluster
    row: str = "F1"
    name: str = "leader killed"
    needs: frozenset[Need] = frozenset({Need.PROCESSES})
    availability: Availability = field(default_factory=lambda: Availability(6_000))
    lasts_ms: tuple[int, int] = (2_000, 4_000)
    bites: bool = True
    trouble: str = ""
    unhealed: str = ""
    broke: str | None = None
    calls: list[str] = field(default_factory=list)

    async def inject(self, target: Target, rng: random.Random) -> str:
        self.calls.append("injected")
        if self.trouble:
            raise LocalError(self.trouble)
        self.cluster.epoch += self.bites
        self.cluster.isr = (1, 2)
        return "SIGKILL to broker 3"

    async def heal(self) -> None:
        self.calls.append("healed")
        if self.unhealed:
            raise LocalError(self.unhealed)
        self.cluster.isr = (1, 2, 3)

    def bit(self, evidence: Evidence) -> str | None:
        before, after = evidence.before.partitions[TP].leader_epoch, evidence.after.partitions[TP].leader_epoch
        return f"epoch {before} → {after}" if after > before else None

    def broken(self, evidence: Evidence) -> str | None:
        return self.broke


def _makes(fault: Pretended) -> Callable[[], Fault]:
    return lambda: cast(Fault, fault)


class Run:
    """A runner of this cluster in which each step injects the given fault."""

    def __init__(self, directory: Path, cluster: Cluster, *faults: Pretended, moved_ms: int | None = None) -> None:
        self.cluster = cluster
        self.stop = asyncio.Event()
        self.activity = Activity([TP])
        self.file = FaultsFile(directory)
        self._read_until = now_ns()
        self.spread_at: list[int] = []
        self.course = FaultRunner(
            cast(Target, cluster),
            {fault.row: [_makes(fault)] for fault in faults},
            self.activity,
            Views(cluster.view),
            self.file,
            self.stop,
            3,
            self._read,
            self._spread,
            Reporter(),
            moved_ms,
            now_ns,
        )

    async def _spread(self) -> None:
        self.spread_at.append(now_ns())
        if not self.cluster.visible:
            raise LocalError("no server answers")

    async def _read(self) -> None:
        """Record the acknowledged records since the last call, at the current rate."""
        now = now_ns()
        count = (now - self._read_until) * self.cluster.rate // SECOND_NS
        if count:
            step = (now - self._read_until) // count
            times = [self._read_until + step * (number + 1) for number in range(count)]
            self.activity.take("client", "p", ProduceOk(TP, range(count), range(count), times))
            self._read_until = now

    async def go(self, *rows: str, seconds: float = 1) -> list[Injection]:
        def steps() -> Iterator[Step]:
            number = 0
            while True:
                for row in rows:
                    yield Step(number, row, 0, 0.5, 700, 7)
                    number += 1

        await self.course.run(steps(), rows, seconds)
        return self.file.injections


def made_in(directory: Path, **cluster: Any) -> tuple[Cluster, Pretended]:
    made = Cluster(**cluster)
    return made, Pretended(made)
