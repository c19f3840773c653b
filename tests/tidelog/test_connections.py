"""Test which connections a client opens, shares and replaces."""

from __future__ import annotations

import asyncio

import pytest

from tests.tidelog.fake_cluster import FakeCluster, FakeConnection
from tests.virtual_time import VirtualClock, on_virtual_time
from tidelog.client.connections import AVOID_MS, Connections, Purpose
from tidelog.client.tasks.background import Background
from tidelog.errors import BrokerNotAvailableError, ClosedError, DisconnectedError, TimeoutError
from tidelog.model import Endpoint

HERE, THERE = Endpoint("fake", 1001), Endpoint("fake", 1002)
TIMEOUT_MS = 1_000


class Network:
    """The addresses of a cluster's brokers, which a test may change.

    says_ids   whether brokers say which broker they are, as those of Tidelog do
    opened     the addresses to which connections were opened, in order
    """

    def __init__(self, *, says_ids: bool = True) -> None:
        self.cluster = FakeCluster(brokers=2)
        self.broker_at = {HERE: 1, THERE: 2}
        self.says_ids = says_ids
        self.opened: list[Endpoint] = []
        self.connections = Connections("t", VirtualClock(), self.open, Background(lambda attempt: 100))

    async def open(self, endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> FakeConnection:
        self.opened.append(endpoint)
        there = Endpoint("fake", 1000 + self.broker_at[endpoint])
        peer = await self.cluster.open(there, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)
        peer.endpoint = endpoint
        if not self.says_ids:
            peer.broker_id = -1
        return peer

    async def to_broker(self, broker: int, at: Endpoint, purpose: Purpose = Purpose.GENERAL) -> FakeConnection:
        peer = await self.connections.to_broker(broker, at, purpose, TIMEOUT_MS, "")
        assert isinstance(peer, FakeConnection)
        return peer


@on_virtual_time
async def test_each_purpose_has_a_connection_of_its_own_that_callers_share() -> None:
    network = Network()
    peers = await asyncio.gather(*(network.to_broker(1, HERE, each) for each in (*Purpose, *Purpose)))
    assert len(set(peers)) == len(Purpose) == len(network.opened)
    assert peers[: len(Purpose)] == peers[len(Purpose) :]
    assert [network.connections.live(1, HERE, each) for each in Purpose] == peers[: len(Purpose)]


@on_virtual_time
@pytest.mark.parametrize("says_ids", [True, False])
async def test_connection_to_a_bootstrap_address_is_used_for_the_broker_there(says_ids: bool) -> None:
    network = Network(says_ids=says_ids)
    bootstrap = await network.connections.to_address(HERE, TIMEOUT_MS, "")
    assert await network.to_broker(1, HERE) is bootstrap
    assert await network.connections.to_address(HERE, TIMEOUT_MS, "") is bootstrap
    assert network.opened == [HERE]


@on_virtual_time
async def test_connection_that_has_ended_is_replaced() -> None:
    network = Network()
    first = await network.to_broker(1, HERE)
    first.close()
    assert network.connections.live(1, HERE, Purpose.GENERAL) is None
    second = await network.to_broker(1, HERE)
    assert second is not first and not second.closed


@on_virtual_time
async def test_connection_of_a_moved_broker_closes_when_the_new_one_is_open() -> None:
    network = Network()
    old, other = await network.to_broker(1, HERE), await network.to_broker(1, HERE, Purpose.FETCH)
    network.broker_at[THERE] = 1
    new = await network.to_broker(1, THERE)
    assert old.closed and not new.closed
    assert not other.closed, "a connection for another purpose is replaced when it is needed"


@on_virtual_time
async def test_another_broker_at_the_address_is_no_substitute() -> None:
    network = Network()
    for _ in range(2):
        with pytest.raises(BrokerNotAvailableError, match="fake:1002 is now broker 2, not broker 1"):
            await network.to_broker(1, THERE)
        assert network.connections.is_avoided(THERE)
    assert network.connections.live(1, THERE, Purpose.GENERAL) is None
    assert network.opened == [THERE], "the open connection shows who is there"
    assert await network.to_broker(2, THERE) is network.connections.live(2, THERE, Purpose.GENERAL)


@on_virtual_time
async def test_address_that_failed_is_avoided_for_a_while() -> None:
    network = Network()
    network.cluster.live[1] = False
    with pytest.raises(DisconnectedError, match="fake:1001 refuses"):
        await network.to_broker(1, HERE)
    assert network.connections.is_avoided(HERE) and not network.connections.is_avoided(THERE)
    await asyncio.sleep(AVOID_MS / 1000)
    assert not network.connections.is_avoided(HERE)


@on_virtual_time
async def test_caller_gives_up_at_its_timeout_and_the_attempt_goes_on() -> None:
    network = Network()
    network.cluster.hung.add(1)
    with pytest.raises(TimeoutError, match="no connection to broker 1 at fake:1001 in 100 ms"):
        await network.connections.to_broker(1, HERE, Purpose.GENERAL, 100, "")
    with pytest.raises(TimeoutError, match="does not shake hands"):
        await network.connections.to_broker(1, HERE, Purpose.GENERAL, 10_000, "")
    assert network.opened == [HERE]


@on_virtual_time
async def test_closed_client_opens_no_connection() -> None:
    network = Network()
    peer = await network.to_broker(1, HERE)
    network.connections.refuse_new()
    assert await network.to_broker(1, HERE) is peer
    with pytest.raises(ClosedError):
        await network.to_broker(2, THERE)
    network.connections.drop()
    assert peer.closed
