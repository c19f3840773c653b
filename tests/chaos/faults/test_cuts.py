"""Test that each network fault blocks the directions of its row and nothing else, until it is healed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import permutations, product
from pathlib import Path

import pytest

from tests.chaos.faults.members import BROKERS, FOLLOWERS, LEADER, MEMBERS, Stage, network_stage
from tidelog.local.processes.process_placement import ZOOKEEPER
from verify.chaos.faults.network import network, slow_network
from verify.chaos.faults.support.namespaces import CLIENTS, Namespaces

#: A Heartbeat response of version 0 has a size, a correlation id and an error code.
SHORTEST_RESPONSE_BYTES = 10

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(Namespaces().missing() is not None, reason=f"{Namespaces().missing()}"),
]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with network_stage(tmp_path) as made:
        assert not await made.cut(), "everybody is heard by everybody"
        yield made
        assert not made.undo.perform(), "nothing is left to be undone that cannot be"


def between(ones: Iterable[str], others: Iterable[str]) -> set[tuple[str, str]]:
    """Return both directions."""
    pairs = set(product(ones, others))
    return pairs | {(other, one) for one, other in pairs}


def context(member: str) -> set[tuple[str, str]]:
    """Return all directions from and to the member."""
    return between([member], [each for each in MEMBERS if each != member])


CUTS = {
    network.LeaderCutFromFollowers: between([LEADER], FOLLOWERS),
    network.LeaderCutFromZooKeeper: between([LEADER], [ZOOKEEPER]),
    network.LeaderCutFromAllButClients: between([LEADER], [*FOLLOWERS, ZOOKEEPER]),
    network.LeaderUnheard: set(product([LEADER], FOLLOWERS)),
    network.LeaderDeaf: set(product(FOLLOWERS, [LEADER])),
    network.ClientsCutFromLeader: between([CLIENTS], [LEADER]),
    network.HalfOpen: context(LEADER),
}


@pytest.mark.parametrize("kind", CUTS, ids=lambda kind: kind.__name__)
async def test_each_cut_blocks_the_directions_of_its_row(stage: Stage, kind: type[network.NetworkFault]) -> None:
    fault = kind()
    try:
        await stage.inject(fault)
        assert await stage.cut() == CUTS[kind]
    finally:
        await fault.heal()
    assert not await stage.cut()
    assert fault.packets > 0, "what did not come through was counted"


async def test_pair_cut_separates_two_brokers_only(stage: Stage) -> None:
    fault = network.PairCut()
    await stage.inject(fault)
    cut = await stage.cut()
    await fault.heal()
    assert cut in [between([one], [other]) for one, other in permutations(BROKERS, 2)]
    assert not await stage.cut()


async def test_second_isolation_leaves_the_broker_reachable_for_clients(stage: Stage) -> None:
    fault = network.IsolationAndKill()
    await stage.inject(fault)
    cut = await stage.cut()
    await fault.heal()
    alone = {broker for broker in BROKERS if cut == context(broker) - between([broker], [CLIENTS])}
    assert len(alone) == 1
    assert all(stage.sleepers[broker].running for broker in stage.broker_ids)
    assert not await stage.cut()


async def test_packet_loss_affects_some_received_packets_only(stage: Stage) -> None:
    fault = network.PacketsLost()
    await stage.inject(fault)
    heard = await stage.heard(times=40, listens_s=1)
    await fault.heal()
    assert all(len(heard[other][LEADER]) == 40 for other in (*FOLLOWERS, CLIENTS))
    # Of 120; five standard deviations to each side.
    assert 59 < sum(len(heard[LEADER][other]) for other in (*FOLLOWERS, CLIENTS)) < 109


async def test_delay_affects_only_packets_of_the_leader(stage: Stage) -> None:
    fault = slow_network.Delayed()
    await stage.inject(fault)
    heard = await stage.heard(times=20, listens_s=1)
    await fault.heal()
    least, most = (found([heard[CLIENTS][each][0] for each in FOLLOWERS]) for found in (min, max))
    late = [t - least for t in heard[CLIENTS][LEADER]]
    assert len(late) == 20
    assert min(late) > 0.03, "of 50 ms and more"
    assert max(late) < 0.6
    assert most - least < 0.03


async def test_low_bandwidth_limits_the_throughput(stage: Stage) -> None:
    fault = slow_network.Narrow()
    await stage.inject(fault)
    through_s, beside_s = [await _copy(stage, *pair) for pair in ((LEADER, FOLLOWERS[0]), FOLLOWERS)]
    await fault.heal()
    healed_s = await _copy(stage, LEADER, FOLLOWERS[0])
    assert through_s > 1, "a MiB through 3 Mbit/s"
    assert max(beside_s, healed_s) < through_s / 2


async def test_connections_of_the_leader_are_reset_on_and_off(stage: Stage) -> None:
    fault = network.Resets()
    await stage.inject(fault)
    await asyncio.sleep(0.7)
    with pytest.raises(AssertionError):
        await _copy(stage, FOLLOWERS[0], LEADER, 1)
    await _copy(stage, *FOLLOWERS, 1)
    await fault.heal()
    await _copy(stage, FOLLOWERS[0], LEADER, 1)
    assert fault.packets > 0


async def test_answers_to_clients_are_lost_but_not_empty_packets(stage: Stage) -> None:
    fault = network.AnswersLost()
    await stage.inject(fault)
    await _copy(stage, CLIENTS, LEADER)
    await _copy(stage, LEADER, FOLLOWERS[0])
    for count in (SHORTEST_RESPONSE_BYTES, 1 << 20):
        with pytest.raises(AssertionError):
            await _copy(stage, LEADER, CLIENTS, count)
    await fault.heal()
    await _copy(stage, LEADER, CLIENTS, 100)


_RECEIVE = """
import socket, sys, time
door = socket.create_server(("", 9998))
door.settimeout(2)
print("ready", flush=True)
line, _ = door.accept()
line.settimeout(2)
began, left = time.monotonic(), int(sys.argv[1])
while left > 0 and (got := line.recv(left)):
    left -= len(got)
print(time.monotonic() - began if not left else "cut short")
"""
_SEND = """
import socket, sys
line = socket.create_connection((sys.argv[1], 9998), 2)
line.sendall(bytes(int(sys.argv[2])))
line.recv(1)
"""


async def _copy(stage: Stage, source: str, destination: str, count: int = 1 << 20) -> float:
    """Return the seconds that these bytes take through TCP. Raise AssertionError if they do not arrive."""

    async def run(member: str, code: str, *arguments: str) -> asyncio.subprocess.Process:
        inside = () if member == CLIENTS else stage.network.inside(member)
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *inside, "python3", "-c", code, *arguments, stdout=pipe, stderr=nothing
        )

    receiver = await run(destination, _RECEIVE, str(count))
    assert receiver.stdout is not None
    assert await receiver.stdout.readline() == b"ready\n"
    sender = await run(source, _SEND, stage.network.address(destination), str(count))
    said = (await asyncio.wait_for(receiver.stdout.read(), 30)).decode().strip()
    await asyncio.gather(receiver.wait(), sender.wait())
    assert receiver.returncode == 0, f"{count} bytes from {source} did not arrive at {destination}"
    return float(said)
