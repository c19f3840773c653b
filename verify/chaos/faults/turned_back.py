"""Implement F42: a ZooKeeper whose data was restored from an earlier state."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from functools import partial
from pathlib import Path

from tidelog.errors import LocalError
from tidelog.model import TopicPartition
from verify.chaos.fault import Evidence, Need, Target, View
from verify.chaos.faults.support.broker_log_reader import BrokerLogReader
from verify.chaos.faults.support.fault_base import (
    UNAVAILABLE,
    FaultBase,
    Timing,
    kill,
    leaders,
    look_until,
    of,
    wait_until,
    zookeeper_hosts,
)
from verify.chaos.faults.zookeeper import registration
from verify.chaos.targets import sessions

#: The elections of each partition after the copy: more than a restart causes, so that leader epochs really go back.
_ELECTIONS = 3
#: The time for records of each epoch.
_RECORDS_S = 0.3
#: Added to the controller epochs, so that no controller epoch is used twice. Only leader epochs go back.
_CONTROLLERS = 100
_REFUSED = r"the log has epoch \d+, the controller says \d+; refused"


class ZooKeeperTurnedBack(FaultBase):
    """All brokers and ZooKeeper restarted with ZooKeeper's data from before three elections of each partition.

    Brokers must refuse leader epochs below their own, log that, and truncate nothing. Healing kills all of them,
    restores the later data and starts them, because no broker may serve with the earlier data.
    """

    row, name = "F42", "ZooKeeper restored from an earlier state"
    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.ZOOKEEPER, Need.ZOOKEEPER_ACCESS, Need.OWN})
    availability = UNAVAILABLE
    lasts_ms = (500, 1_000)

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._refusals: list[str] = []

    async def inject(self, target: Target, rng: random.Random) -> str:
        data = Path(os.readlink(f"/proc/{target.zookeeper_process().pid}/cwd"))
        earlier, later = data.with_name(f"{data.name}-earlier"), data.with_name(f"{data.name}-later")
        for copy in (earlier, later):
            await _remove(copy)
            self.on_heal(partial(_remove, copy))
        await asyncio.to_thread(shutil.copytree, data, earlier)
        hosts = zookeeper_hosts(target)
        await self._elect(target, hosts)
        controllers = (await target.view()).controller_epoch
        said = [BrokerLogReader(target.broker_log(broker)) for broker in target.broker_ids]
        self.on_heal(partial(_start_brokers, target))
        self.on_heal(partial(_start_zookeeper, target, hosts, controllers + 2 * _CONTROLLERS))
        self.on_heal(partial(_put_back, data, later))
        self.on_heal(partial(_stop_all, target))
        await _stop_all(target)
        await asyncio.to_thread(data.rename, later)
        await asyncio.to_thread(shutil.copytree, earlier, data)
        await _start_zookeeper(target, hosts, controllers + _CONTROLLERS)
        for broker in target.broker_ids:
            await target.launch_broker(broker)

        def refusals() -> list[str]:
            return [line for broker in said for line in broker.lines(_REFUSED)]

        await wait_until("a broker to refuse a leader epoch below its own", refusals, 30)
        self._refusals = refusals()
        return f"all brokers killed, ZooKeeper's data restored from before {_ELECTIONS} elections of each partition"

    async def _elect(self, target: Target, hosts: str) -> None:
        """Cause three elections of each partition: expire the session of the leader whose partition had the fewest so
        far, and wait for the election.

        Raise LocalError if no partition has a leader, or an election takes longer than 30 s.
        """
        before = (await target.view()).partitions
        while True:
            view = await target.view()
            led = leaders(view)
            if not led:
                raise LocalError("no partition has a leader")
            tp = min(led, key=lambda tp: view.partitions[tp].leader_epoch - before[tp].leader_epoch)
            epoch = view.partitions[tp].leader_epoch
            if epoch - before[tp].leader_epoch >= _ELECTIONS:
                return
            await asyncio.to_thread(sessions.expire, hosts, registration(led[tp]))
            await look_until(target, f"an election of {of(tp)}", partial(_elected, tp, epoch), 30)
            await asyncio.sleep(_RECORDS_S)

    def bit(self, evidence: Evidence) -> str | None:
        return f"a broker logged: {self._refusals[0]}" if self._refusals else None


def _elected(tp: TopicPartition, epoch: int, view: View) -> bool:
    state = view.partitions.get(tp)
    registered = len(view.broker_epochs or ())
    return state is not None and state.leader_epoch > epoch and state.leader >= 0 and registered > 1


async def _stop_all(target: Target) -> None:
    for broker in target.broker_ids:
        if (process := target.broker_process(broker)).running:
            await kill(process, f"broker {broker}")
    if (process := target.zookeeper_process()).running:
        await kill(process, "ZooKeeper")


async def _start_zookeeper(target: Target, hosts: str, controller_epoch: int) -> None:
    await target.start_zookeeper()
    await asyncio.to_thread(sessions.write, hosts, "/controller_epoch", b"%d" % controller_epoch)


async def _start_brokers(target: Target) -> None:
    for broker in target.broker_ids:
        await target.start_broker(broker)


async def _put_back(data: Path, later: Path) -> None:
    await asyncio.to_thread(_replace, data, later)


def _replace(data: Path, later: Path) -> None:
    if later.exists():
        shutil.rmtree(data, ignore_errors=True)
        later.rename(data)


async def _remove(directory: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
