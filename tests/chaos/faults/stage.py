"""Run a small cluster under load for single faults, like a chaos run without its clients."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes.harness.workload import Workload
from tidelog import Admin, NewTopic, TopicPartition
from verify.chaos.fault import Evidence, Prerequisite, View
from verify.chaos.faults.support.fault_base import FaultBase, look_until
from verify.chaos.targets.cluster_views import Views
from verify.chaos.targets.process_target import LocalTarget, own_cluster
from verify.chaos.targets.undo import UndoFile

TPS = [TopicPartition("t", partition) for partition in range(3)]
#: Values are large enough that the load exceeds a low bandwidth.
VALUE_BYTES = 512
TOPIC_CONFIGS = {"min.insync.replicas": "2", "segment.bytes": "500000", "message.timestamp.type": "LogAppendTime"}


@dataclass
class Stage:
    target: LocalTarget
    views: Views
    workload: Workload

    async def whole(self) -> View:
        """Wait until all brokers are registered and every replica is in sync."""

        def is_whole(view: View) -> bool:
            registered = set(view.broker_epochs or ()) == set(self.target.broker_ids)
            return registered and all(len(view.partitions[tp].isr) == 3 for tp in TPS)

        return await look_until(self.target, "whole partitions", is_whole, 60)

    async def suffer(self, fault: FaultBase, lasts_s: float | None = None, seed: int = 1) -> tuple[str, str | None]:
        """Inject the fault, wait, heal it, and wait for the recovery. Return what was done, and how it bit."""
        await self.whole()
        await self.views.now()
        injected = time.monotonic_ns()
        try:
            what = await fault.inject(self.target, random.Random(seed))
            await asyncio.sleep(fault.lasts_ms[0] / 1000 if lasts_s is None else lasts_s)
        finally:
            await fault.heal()
        healed = time.monotonic_ns()
        await self.whole()
        await self.views.now()
        await asyncio.to_thread(self.workload.wait_acknowledged, 30)
        whole = time.monotonic_ns()
        gap_ms = 1000 * self.workload.longest_gap_s(TPS, since=injected / 1e9)
        views = self.views.between(injected, whole)
        bit = fault.bit(Evidence(injected, healed, whole, views, slowest_ms=gap_ms, longest_gap_ms=gap_ms))
        print(f"{fault.row} {what}: {bit}; gap {gap_ms:.0f} of {fault.availability.most_gap_ms} ms", flush=True)
        return what, bit


@asynccontextmanager
async def stage(directory: Path, prerequisites: Sequence[Prerequisite] = ()) -> AsyncIterator[Stage]:
    """Yield three brokers with three partitions under load. Acknowledged records must exist at the end."""
    undo = UndoFile(directory)
    async with own_cluster(directory, directory / "results", 3, undo, prerequisites) as target:
        await asyncio.to_thread(_create_topic, target.bootstrap_servers)
        target.tps = tuple(TPS)
        views = Views(target.view)
        watching = asyncio.create_task(views.watch())
        workload = await asyncio.to_thread(Workload(target.bootstrap_servers, TPS, VALUE_BYTES).__enter__)
        try:
            yield Stage(target, views, workload)
        except BaseException as error:
            await asyncio.to_thread(workload.__exit__, type(error), error, None)
            raise
        else:
            await asyncio.to_thread(workload.__exit__, None, None, None)
            await asyncio.to_thread(workload.check, target.bootstrap_servers)
        finally:
            watching.cancel()
    assert not undo.perform()


def _create_topic(bootstrap_servers: str) -> None:
    with Admin(bootstrap_servers) as admin:
        admin.create_topics([NewTopic("t", 3, 3, configs=TOPIC_CONFIGS)])
        admin.list_consumer_group_offsets("stage")  # creates __consumer_offsets
