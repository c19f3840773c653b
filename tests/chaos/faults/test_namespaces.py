"""Test the network of a run: which members reach each other before, during and after a rule."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tidelog.local.processes.process_placement import DEFAULT_PLACEMENT
from verify.chaos.faults.support.namespaces import CLIENTS, NAMESPACES, Namespaces
from verify.chaos.faults.support.packets import Installed, Rule, one_way
from verify.chaos.targets.undo import UndoFile

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Namespaces().missing() is not None, reason=f"{Namespaces().missing()}"),
]


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[Namespaces]:
    made, undo = Namespaces(), UndoFile(tmp_path)
    places = await made.set_up(undo, tmp_path, dict.fromkeys(("1", "2", "zookeeper"), DEFAULT_PLACEMENT))
    assert len({place.address for place in places.values()}) == 3
    yield made
    await made.tear_down()
    assert not (NAMESPACES / made.namespace("1")).exists()
    assert undo.perform() == [], "what was taken down already does no harm"


def reaches(network: Namespaces, source: str, destination: str) -> bool:
    """Send a datagram and wait for an answer, which may be a refusal; give up soon without one."""
    address = network.address(destination)
    code = f"""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
s.settimeout(0.4)
try:
    s.connect(("{address}", 9))
except ConnectionRefusedError:
    print("reached")
except OSError:
    pass
"""
    inside = () if source == CLIENTS else network.inside(source)
    return "reached" in subprocess.run([*inside, "python3", "-c", code], capture_output=True, text=True).stdout


async def test_all_members_of_the_network_reach_each_other(network: Namespaces) -> None:
    assert reaches(network, "1", "2")
    assert reaches(network, "2", "zookeeper")
    assert reaches(network, CLIENTS, "1")


async def test_dropped_packets_are_counted_and_pass_after_the_removal(network: Namespaces, tmp_path: Path) -> None:
    rule = Installed(network, one_way("1", "2")(network))
    await rule.install(UndoFile(tmp_path))
    assert not reaches(network, "1", "2")
    assert reaches(network, "1", "zookeeper")
    assert await rule.count() > 0
    await rule.remove()
    assert rule.packets > 0
    assert reaches(network, "1", "2")
    await rule.remove()


async def test_packets_to_clients_are_dropped_at_the_sender(network: Namespaces, tmp_path: Path) -> None:
    rule = Installed(network, one_way("1", CLIENTS)(network))
    await rule.install(UndoFile(tmp_path))
    assert not reaches(network, CLIENTS, "1")
    assert reaches(network, CLIENTS, "2")
    await rule.remove()


@pytest.mark.parametrize("turns", [1, 2, 3, 5, 8])
async def test_cancelled_installation_or_removal_leaves_no_rule(
    network: Namespaces, tmp_path: Path, turns: int
) -> None:
    async def cancelled(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        for _ in range(turns):
            await asyncio.sleep(0.002)
        task.cancel()
        await asyncio.wait({task})

    rule = Installed(network, Rule("1", "INPUT"))
    await cancelled(rule.install(UndoFile(tmp_path)))
    await rule.remove()
    assert reaches(network, "2", "1")
    await rule.install(UndoFile(tmp_path))
    await cancelled(rule.remove())
    await rule.remove()
    assert reaches(network, "2", "1")


async def test_undo_log_removes_the_rule_of_a_killed_run(network: Namespaces, tmp_path: Path) -> None:
    directory = tmp_path / "killed"
    directory.mkdir()
    await Installed(network, Rule("1", "INPUT")).install(UndoFile(directory))
    assert not reaches(network, "2", "1")
    assert UndoFile(directory).perform() == []
    assert reaches(network, "2", "1")
