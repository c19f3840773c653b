"""Run members of a run's network that send on command and report from which members they received packets."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from tidelog.local.processes.process import Process
from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT, ZOOKEEPER
from tidelog.model import TopicPartition
from verify.chaos.fault import Need, PartitionView, Prerequisite, Target, View
from verify.chaos.faults.support.fault_base import FaultBase
from verify.chaos.faults.support.namespaces import CLIENTS, Namespaces
from verify.chaos.targets.undo import UndoFile

TP = TopicPartition("t", 0)
BROKERS = ("1", "2", "3")
MEMBERS = (*BROKERS, ZOOKEEPER, CLIENTS)
#: The leader, and its followers.
LEADER, FOLLOWERS = "1", ("2", "3")
_PORT = 9_999
#: For each input line: send to each address that often, listen for a while, and print how often each member was
#: received.
_SCRIPT = f"""
import json, socket, sys, time
line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
line.bind((sys.argv[1], {_PORT}))
print("ready", flush=True)
for order in map(json.loads, sys.stdin):
    heard = {{}}
    ends = time.monotonic() + order["listens_s"]
    line.setblocking(False)
    for _ in range(order["times"]):
        for address in order["to"]:
            try:
                line.sendto(order["name"].encode(), (address, {_PORT}))
            except OSError:
                pass
    line.settimeout(0.05)
    while time.monotonic() < ends:
        try:
            name = line.recv(100).decode()
            heard.setdefault(name, []).append(time.monotonic())
        except OSError:
            pass
    print(json.dumps(heard), flush=True)
"""


@dataclass
class Stage:
    """A `Target` of idle processes in a real network."""

    directory: Path
    network: Namespaces
    undo: UndoFile
    broker_ids: tuple[int, ...] = (1, 2, 3)
    tps: tuple[TopicPartition, ...] = (TP,)
    sleepers: dict[int, Process] = field(default_factory=dict)
    members: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def view(self) -> View:
        return View(0, {TP: PartitionView(1, 1, (1, 2, 3), 1)}, controller=2, broker_epochs={1: 1, 2: 2, 3: 3})

    def prerequisite(self, need: Need) -> Prerequisite:
        assert need is Need.NETWORK
        return self.network

    def broker_process(self, broker_id: int) -> Process:
        return self.sleepers[broker_id]

    async def start_broker(self, broker_id: int) -> None:
        if broker_id not in self.sleepers or not self.sleepers[broker_id].running:
            self.sleepers[broker_id] = Process.spawn(["sleep", "600"], output=self.directory / f"{broker_id}.out")

    async def inject(self, fault: FaultBase, seed: int = 1) -> str:
        return await fault.inject(cast(Target, self), random.Random(seed))

    async def heard(self, times: int = 1, listens_s: float = 0.5) -> Mapping[str, Mapping[str, list[float]]]:
        """Return for each member when it received from each other member, after all have sent to all."""
        for name, member in self.members.items():
            to = [self.network.address(each) for each in MEMBERS if each != name]
            assert member.stdin is not None
            order = {"name": name, "to": to, "times": times, "listens_s": listens_s}
            member.stdin.write(json.dumps(order).encode() + b"\n")
        heard = {}
        for name, member in self.members.items():
            assert member.stdout is not None
            heard[name] = json.loads(await asyncio.wait_for(member.stdout.readline(), 20))
        return heard

    async def cut(self) -> set[tuple[str, str]]:
        """Return the (source, target) pairs that no packet passes."""
        heard = await self.heard(times=2)
        return {(one, other) for one in MEMBERS for other in MEMBERS if one != other and one not in heard[other]}


@asynccontextmanager
async def network_stage(directory: Path) -> AsyncIterator[Stage]:
    """Yield a network in which all members reach each other."""
    network, undo = Namespaces(), UndoFile(directory)
    async with AsyncExitStack() as ends:
        ends.push_async_callback(network.tear_down)
        await network.set_up(undo, directory, {name: DEFAULT_PLACEMENT for name in (*BROKERS, ZOOKEEPER)})
        stage = Stage(directory, network, undo)
        for name in MEMBERS:
            inside = () if name == CLIENTS else network.inside(name)
            member = await asyncio.create_subprocess_exec(
                *inside,
                sys.executable,
                "-c",
                _SCRIPT,
                network.address(name),  # the clients are in the machine's own network, beside those of other tests
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            stage.members[name] = member
            ends.push_async_callback(_end, member)
            assert member.stdout is not None
            assert await asyncio.wait_for(member.stdout.readline(), 20) == b"ready\n"
        for broker_id in stage.broker_ids:
            await stage.start_broker(broker_id)
        ends.callback(lambda: [process.stop(1_000) for process in stage.sleepers.values()])
        yield stage


async def _end(member: asyncio.subprocess.Process) -> None:
    member.kill()
    await member.wait()
