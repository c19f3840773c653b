"""Test the load of a run and its JSON form."""

from __future__ import annotations

import pytest

from verify.chaos.load import TOPICS, Load, LoadTopic, Part, Times


def test_client_task_survives_a_json_round_trip() -> None:
    part = Part(
        Load(rate=77, groups=("range",), idle_partitions=3_000), "h:1,h:2", "/somewhere", process=3, life=2, seed=5
    )
    assert Part.of_json(part.to_json()) == part


def test_topics_have_every_kind_that_the_invariants_need() -> None:
    assert any(topic.is_compacted and topic.keys for topic in TOPICS)
    assert any(topic.keys and not topic.is_compacted for topic in TOPICS)
    assert any(topic.times is Times.SCATTERED for topic in TOPICS)
    assert any(topic.configs.get("message.timestamp.type") == "LogAppendTime" for topic in TOPICS)
    assert len(Load().tps) == 8


@pytest.mark.parametrize(("replicas", "min_isr"), [(1, "1"), (2, "1"), (3, "2")])
def test_acks_all_works_without_one_replica(replicas: int, min_isr: str) -> None:
    topic = LoadTopic("t", 1).new_topic(replicas)
    assert topic.configs is not None and topic.configs["min.insync.replicas"] == min_isr


def test_topics_and_groups_have_unique_names_in_a_shared_cluster() -> None:
    load, apart = Load(processes=2), Load(processes=2).named_apart("chaos-7-")
    assert {tp.topic for tp in apart.tps} == {f"chaos-7-{tp.topic}" for tp in load.tps}
    assert [*apart.member_groups.values()] == [f"chaos-7-{strategy}" for strategy in load.groups]
    assert all(group.startswith("chaos-7-") for process in (0, 1) for group in apart.registers(process))


def test_idle_topic_is_created_but_gets_no_load() -> None:
    load = Load(idle_partitions=3_000)
    assert load.all_topics == (*TOPICS, LoadTopic("chaos-idle", 3_000))
    assert load.tps == Load().tps
    assert load.named_apart("chaos-7-").all_topics[-1] == LoadTopic("chaos-7-idle", 3_000)
    assert Load().all_topics == TOPICS


def test_empty_load_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a topic"):
        Load(rate=0)
