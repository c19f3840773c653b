"""The connections of a follower to its leader: when, under which registration, and how often it connects."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

from tests.node.client_requests import TP
from tests.node.scripted_leader import LEADER, OTHER, ScriptedFollower, replica_of
from tests.virtual_time import on_virtual_time, until
from tidelog.errors import (
    DisconnectedError,
)


@on_virtual_time
async def test_fetcher_reconnects_to_a_live_leader_that_never_answers() -> None:
    async with ScriptedFollower() as following:
        leader = await following.begin(replica_of())
        await leader.next_fetch()
        await until(lambda: leader.closed, timeout_s=70)
        await (await following.connection(1)).next_fetch()


@on_virtual_time
async def test_fetcher_soon_replaces_a_connection_that_has_worked() -> None:
    async with ScriptedFollower() as following:
        following.refuse = 8
        leader = await following.begin(replica_of())
        await leader.answer_fetch()
        _, answer = await leader.next_fetch()
        answer.set_exception(DisconnectedError("gone"))
        failed_at = asyncio.get_running_loop().time()
        await following.connection(1)
        assert following.connected_at[-1] - failed_at < 0.06


@on_virtual_time
async def test_lost_leader_is_known_until_reached_again_or_for_seconds() -> None:
    async with ScriptedFollower() as following:
        fetchers, replica = following.fetchers, replica_of()
        leader = await following.begin(replica)
        assert not fetchers.has_lost(1)
        await leader.answer_fetch()
        following.refuse = 3
        (await leader.next_fetch())[1].set_exception(DisconnectedError("gone"))
        await until(lambda: fetchers.has_lost(1))
        await (await following.connection(1)).answer_fetch()
        assert not fetchers.has_lost(1), "the leader has been reached"
        (await following.connections[-1].next_fetch())[1].set_exception(DisconnectedError("gone"))
        await until(lambda: fetchers.has_lost(1))
        fetchers.drop(replica.topic_partition)
        await asyncio.sleep(4.9)
        assert fetchers.has_lost(1), "also when nothing is fetched from it any more"
        await asyncio.sleep(0.2)
        assert not fetchers.has_lost(1)
        assert not fetchers.has_lost(2)


@on_virtual_time
async def test_fetcher_backs_off_from_a_leader_that_refuses_connections() -> None:
    async with ScriptedFollower() as following:
        following.refuse = 8
        following.fetchers.follow(replica_of())
        await following.connection()
        pauses = [round(after - before, 2) for before, after in pairwise(following.connected_at)]
        assert pauses[0] == 0.05
        assert pauses == sorted(pauses)
        assert pauses[-1] == 0.25


@on_virtual_time
async def test_fetcher_leaves_a_port_of_another_broker() -> None:
    async with ScriptedFollower() as following:
        following.answering_broker = 3
        stranger = await following.begin(replica_of())
        await until(lambda: stranger.closed)
        assert stranger.asked == []


@on_virtual_time
async def test_fetcher_does_not_connect_to_a_leader_that_is_not_live() -> None:
    async with ScriptedFollower() as following:
        following.fetchers.brokers_changed({})
        following.fetchers.follow(replica_of())
        await asyncio.sleep(1)
        assert following.connected_at == []
        following.fetchers.brokers_changed({1: LEADER})
        await following.connection()


@on_virtual_time
async def test_new_registration_uses_a_new_connection() -> None:
    async with ScriptedFollower() as following:
        first = await following.begin(replica_of())
        await first.next_fetch()
        following.fetchers.reconnect()
        second = await following.connection(1)
        assert first.closed
        await second.next_fetch()


@on_virtual_time
async def test_new_registration_reconnects_while_an_epoch_request_waits() -> None:
    async with ScriptedFollower() as following:
        first = await following.begin(replica_of(TP, b"a"))
        await until(lambda: bool(first.asked))
        following.fetchers.reconnect()
        await until(lambda: len(following.connections) == 2, timeout_s=0.01)
        assert first.closed


@on_virtual_time
async def test_fetcher_connects_at_once_to_a_leader_that_registered_again() -> None:
    async with ScriptedFollower() as following:
        following.refuse = 8
        following.fetchers.follow(replica_of())
        await until(lambda: len(following.connected_at) == 8)
        following.fetchers.brokers_changed({1: replace(LEADER, epoch=102)})
        await until(lambda: len(following.connections) == 1, timeout_s=0.01)


@on_virtual_time
async def test_added_partitions_do_not_shorten_the_connection_backoff() -> None:
    async with ScriptedFollower() as following:
        following.refuse = 8
        following.fetchers.follow(replica_of())
        await until(lambda: len(following.connected_at) == 7)
        following.fetchers.follow(replica_of(OTHER))
        await until(lambda: len(following.connected_at) == 8)
        assert round(following.connected_at[7] - following.connected_at[6], 2) == 0.25
