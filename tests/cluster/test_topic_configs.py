"""Settings of topics, on ZooKeeper and on its twin; unknown outcomes on the twin, which can withhold answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence

import pytest

from cluster.state import ControllerLease, TopicAssignment
from cluster.uuids import random_uuid
from cluster.zookeeper import znodes
from cluster.zookeeper.client import ZkClient
from cluster.zookeeper.in_memory import MemoryStore
from cluster.zookeeper.store import Operation, Result
from cluster.zookeeper.topic_configs import Change
from tests.cluster.stores import Server
from tests.cluster.test_zk_client import TOPIC, begin_term, join, twin
from tidelog.clock import SystemClock


def having(**settings: str) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def adding(**settings: str) -> Change:
    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        return {**before, **having(**settings)}

    return change


async def test_a_change_is_written_and_announced_as_kafka_does(server: Server) -> None:
    one, other = await join(server), await join(server)
    lease: ControllerLease = await begin_term(one)
    await one.create_topic(TOPIC, lease.epoch_version)
    assert await other.topic_configs.read("t") == having(retention_ms="-1")
    await other.topic_configs.change("t", adding(segment_bytes="100"))
    assert await one.topic_configs.read_all(["t"]) == {"t": having(retention_ms="-1", segment_bytes="100")}
    changes = await one.read_config_changes()
    assert changes == {"/config/changes/config_change_0000000000": "t"}
    stored = await one.store.get("/config/changes/config_change_0000000000")
    assert json.loads(stored.data) == {"version": 2, "entity_path": "topics/t"}
    await one.drop_notifications(changes, lease.epoch_version)
    await other.topic_configs.change("t", adding(segment_bytes="100"))
    assert await one.read_config_changes() == {}, "nothing was changed"
    await one.store.close()
    await other.store.close()


async def test_changes_at_the_same_time_all_take_effect(server: Server) -> None:
    one, other = await join(server), await join(server)
    await one.create_topic(TOPIC, (await begin_term(one)).epoch_version)
    names = [f"setting.{number}" for number in range(6)]
    await asyncio.gather(
        *(
            (one if number % 2 else other).topic_configs.change("t", lambda before, name=name: {**before, name: "1"})
            for number, name in enumerate(names)
        )
    )
    assert (await one.topic_configs.read("t") or {}).keys() == {"retention.ms", *names}
    assert len(await one.read_config_changes()) == 6
    await one.store.close()
    await other.store.close()


async def test_a_topic_that_does_not_exist_has_no_settings_and_gets_none(server: Server) -> None:
    one = await join(server)
    assert await one.topic_configs.read("t") is None
    assert await one.topic_configs.change("t", adding(segment_bytes="100")) is None
    assert await one.store.exists(znodes.topic_config_path("t")) is None
    await one.store.close()


async def test_topic_without_a_settings_znode_gets_one(server: Server) -> None:
    one = await join(server)
    topic = TopicAssignment("t", TOPIC.topic_id, TOPIC.partitions)
    await one.store.create(znodes.topic_path("t"), znodes.encode_topic(topic))
    assert await one.topic_configs.read("t") == {}
    await one.topic_configs.change("t", adding(segment_bytes="100"))
    assert await one.topic_configs.read("t") == having(segment_bytes="100")
    await one.store.close()


async def test_change_that_raises_writes_nothing(server: Server) -> None:
    one = await join(server)
    await one.create_topic(TOPIC, (await begin_term(one)).epoch_version)

    def refuse(before: Mapping[str, str]) -> Mapping[str, str]:
        raise ValueError(before)

    with pytest.raises(ValueError, match="retention"):
        await one.topic_configs.change("t", refuse)
    assert await one.read_config_changes() == {}
    await one.store.close()


async def test_settings_change_with_a_lost_answer_is_made_and_notified_once() -> None:
    _, store, zk_client = await twin()
    await zk_client.create_topic(TOPIC, (await begin_term(zk_client)).epoch_version)
    store.lose_answers = 1
    await zk_client.topic_configs.change("t", adding(segment_bytes="100"))
    assert await zk_client.topic_configs.read("t") == having(retention_ms="-1", segment_bytes="100")
    assert len(await zk_client.read_config_changes()) == 1


async def test_change_of_a_removed_topics_settings_starts_from_the_new_topics() -> None:
    zookeeper, _, other = await twin()
    epoch_version = (await begin_term(other)).epoch_version
    await other.create_topic(TOPIC, epoch_version)
    anew = TopicAssignment("t", random_uuid(), TOPIC.partitions, having(segment_bytes="5"))

    class Slow(MemoryStore):
        """A client before whose write the topic is deleted and created again."""

        async def multi(self, operations: Sequence[Operation]) -> list[Result]:
            if await other.read_topic("t") == TOPIC:
                while await other.remove_some("t", epoch_version):
                    pass
                await other.create_topic(anew, epoch_version)
            return await super().multi(operations)

    slow = ZkClient(zookeeper.connect(Slow), SystemClock(), time_limit_ms=500)
    assert await slow.topic_configs.change("t", adding(flush_ms="9")) == having(segment_bytes="5", flush_ms="9")
    assert await other.topic_configs.read("t") == having(segment_bytes="5", flush_ms="9")
    assert len(await other.read_config_changes()) == 1


@pytest.mark.parametrize(
    ("data", "topic"),
    [
        ({"version": 2, "entity_path": "topics/t"}, "t"),
        ({"version": 1, "entity_type": "topics", "entity_name": "t"}, "t"),
        ({"version": 2, "entity_path": "brokers/1"}, None),
        ({"version": 2, "entity_path": "topics/"}, None),
    ],
)
def test_notifications_of_either_version_are_read(data: dict[str, object], topic: str | None) -> None:
    assert znodes.decode_config_change(json.dumps(data).encode()) == topic
