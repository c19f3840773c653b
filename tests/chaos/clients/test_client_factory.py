"""Test which clients run in which process."""

from __future__ import annotations

import asyncio

import pytest

from tests.chaos.clients.chaos_stage import World
from tests.virtual_time import on_virtual_time
from tidelog.history.operations import ProduceInvoked, ProduceOk
from verify.chaos.clients import clients_of
from verify.chaos.load import Load, LoadTopic
from verify.chaos.payload import producer_of

TOPICS = (LoadTopic("orders", 2),)


@pytest.mark.slow
@on_virtual_time
async def test_all_processes_together_have_the_rate_of_the_load() -> None:
    stage = World(*TOPICS)
    load = Load(TOPICS, rate=90, processes=3, groups=(), committers=0)
    clients = [client for process in range(3) for client in clients_of(stage.context, load, process)]
    async with stage.running(*clients):
        await asyncio.sleep(4)
    assert 300 <= len(stage.ids(ProduceInvoked)) <= 370
    unsafe = {diary.header.acks for diary in stage.diaries.values() if not diary.header.idempotent}
    assert unsafe == {1, -1, 0}


@on_virtual_time
async def test_restart_keeps_names_and_changes_producer_numbers() -> None:
    names: list[set[str]] = []
    numbers: list[set[int]] = []
    for process, life in ((0, 0), (0, 1), (1, 0)):
        stage = World(*TOPICS)
        clients = list(clients_of(stage.context, Load(TOPICS, rate=50), process, life))
        async with stage.running(*clients):
            await asyncio.sleep(1)
        names.append({client.name for client in clients})
        numbers.append({producer_of(each) for each in stage.ids(ProduceOk)})
    assert names[0] == names[1] and names[0].isdisjoint(names[2])
    assert len(names[0]) == len(clients)
    assert not (numbers[0] & numbers[1] or numbers[0] & numbers[2] or numbers[1] & numbers[2])


def test_exhausted_record_ids_are_refused() -> None:
    stage = World(*TOPICS)
    for load, process, life in ((Load(producers=16), 0, 0), (Load(), 1_000, 0), (Load(), 0, 5_000)):
        with pytest.raises(ValueError, match="unique record ids are exhausted"):
            next(clients_of(stage.context, load, process, life))
