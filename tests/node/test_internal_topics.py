"""Requests that would destroy `__consumer_offsets`: the broker refuses them, whichever client sends them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from cluster.state import TopicAssignment
from node.controller.topic_validation import plan_partitions, plan_reassignment, plan_topic
from node.handlers.configs import Configs
from node.metadata.internal_topics import (
    InternalTopicRules,
    check_deletion,
    check_new_partitions,
    check_produce,
    check_record_deletion,
    is_internal,
)
from node.metadata.metadata_cache import MetadataCache
from storage.configs.log_config import LogConfig
from tests.node.client_requests import produce_request
from tests.node.controller_cluster import Cluster, run
from tests.node.memory_cluster import MemoryCluster
from tests.node.offsets_topic import OFFSETS
from tests.node.topic_settings import MemoryBrokers, TopicSettings, broker_settings
from tests.virtual_time import on_virtual_time
from tidelog.clock import SystemClock
from tidelog.errors import InvalidPartitionsError, InvalidTopicError, PolicyViolationError
from tidelog.groups.offsets_topic import OFFSETS_TOPIC
from tidelog.model import TopicPartition
from tidelog.protocol.admin_messages import (
    AlteredConfigs,
    ConfigAlteration,
    ConfigChange,
    ConfigOp,
    ConfigResourceType,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.control_messages import PartitionStateMessage, TopicInfo, UpdateMetadataRequest
from tidelog.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest, NewTopic
from tidelog.protocol.partition_messages import (
    AlterPartitionReassignmentsRequest,
    CreatePartitionsRequest,
    NewPartitions,
    WantedReplicas,
)

DAY_MS = 24 * 60 * 60 * 1000
DEFAULTS = LogConfig(min_insync_replicas=2)
RULES = InternalTopicRules(replication_factor=3, segment_bytes=100 << 20, defaults=DEFAULTS)
SAFE = RULES.creation_configs()


# --- the rules ---------------------------------------------------------------------------------------------


def test_only_the_offsets_topic_is_internal() -> None:
    assert is_internal(OFFSETS_TOPIC)
    for name in ("orders", "__consumer_offsets_backup", "__my_own", "consumer_offsets"):
        assert not is_internal(name)
        check_produce(name)
        check_record_deletion(name)
        check_deletion(name)
        check_new_partitions(name)


@pytest.mark.parametrize(
    ("check", "error", "message"),
    [
        (check_produce, InvalidTopicError, "only coordinators write there"),
        (check_record_deletion, InvalidTopicError, "its records may not be deleted"),
        (check_deletion, PolicyViolationError, "it may not be deleted"),
        (check_new_partitions, InvalidPartitionsError, "the number of partitions may not change"),
    ],
)
def test_each_destructive_request_is_refused_with_its_own_error(
    check: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"topic '{OFFSETS_TOPIC}': .*{message}"):
        check(OFFSETS_TOPIC)


def test_rules_accept_the_settings_that_coordinators_create_the_topic_with() -> None:
    RULES.check_configs(OFFSETS_TOPIC, SAFE, replicas=3)
    small = InternalTopicRules(replication_factor=1, segment_bytes=1024, defaults=LogConfig(min_insync_replicas=3))
    small.check_creation(OFFSETS_TOPIC, small.creation_configs(), {0: (1,)})


@pytest.mark.parametrize(
    ("setting", "unsafe", "safe", "message"),
    [
        ("cleanup.policy", "delete", "compact", "must be compact"),
        ("cleanup.policy", "compact,delete", "compact", "must be compact"),
        ("compression.type", "gzip", "producer", "must be producer"),
        ("compression.type", "uncompressed", "producer", "must be producer"),
        ("unclean.leader.election.enable", "true", "false", "must be false"),
        ("retention.ms", str(7 * DAY_MS - 1), str(7 * DAY_MS), f"must be at least {7 * DAY_MS}"),
        ("retention.ms", "0", "-1", f"must be at least {7 * DAY_MS}"),
        ("retention.bytes", str(1 << 40), "-1", "must be at least -1"),
        ("delete.retention.ms", str(DAY_MS - 1), str(DAY_MS), f"must be at least {DAY_MS}"),
        ("max.message.bytes", "1048587", "1048588", "must be at least 1048588"),
        ("segment.bytes", "1048587", "1048588", "must be at least 1048588"),
        ("min.insync.replicas", "1", "2", "must be at least 2"),
        ("min.insync.replicas", "4", "3", "must be at most 3"),
    ],
)
def test_a_setting_that_endangers_commits_is_refused_by_name(
    setting: str, unsafe: str, safe: str, message: str
) -> None:
    RULES.check_configs(OFFSETS_TOPIC, SAFE | {setting: safe}, replicas=3)
    with pytest.raises(PolicyViolationError, match=f"topic '{OFFSETS_TOPIC}': {setting}={unsafe}: {message}"):
        RULES.check_configs(OFFSETS_TOPIC, SAFE | {setting: unsafe}, replicas=3)
    RULES.check_configs("orders", {setting: unsafe}, replicas=3)


@pytest.mark.parametrize("setting", ["cleanup.policy", "compression.type"])
def test_a_setting_that_falls_back_to_an_unsafe_default_is_refused(setting: str) -> None:
    rules = InternalTopicRules(3, 100 << 20, LogConfig(compression_type="gzip"))
    with pytest.raises(PolicyViolationError, match=setting):
        rules.check_configs(OFFSETS_TOPIC, {name: value for name, value in SAFE.items() if name != setting}, 3)


def test_settings_without_danger_are_accepted() -> None:
    harmless = {"flush.messages": "1", "segment.ms": "60000", "min.cleanable.dirty.ratio": "0.1", "retention.ms": "-1"}
    RULES.check_configs(OFFSETS_TOPIC, SAFE | harmless, replicas=3)


def test_limits_follow_the_brokers_own_settings() -> None:
    defaults = LogConfig(unclean_leader_election_enable=True, max_message_bytes=2000, delete_retention_ms=5)
    rules = InternalTopicRules(replication_factor=1, segment_bytes=1024, defaults=defaults)
    chosen = {"unclean.leader.election.enable": "true", "max.message.bytes": "2000", "delete.retention.ms": "5"}
    rules.check_configs(OFFSETS_TOPIC, SAFE | chosen | {"segment.bytes": "1024"}, replicas=1)
    with pytest.raises(PolicyViolationError, match=r"segment\.bytes=1023: must be at least 1024"):
        rules.check_configs(OFFSETS_TOPIC, SAFE | {"segment.bytes": "1023"}, replicas=1)


def test_min_insync_is_compared_with_the_replicas_only_if_they_are_known() -> None:
    RULES.check_configs(OFFSETS_TOPIC, SAFE | {"min.insync.replicas": "9"}, replicas=None)


@pytest.mark.parametrize(
    ("current", "wanted", "min_insync", "refusal"),
    [
        ((1, 2, 3), (1, 2), "2", "replication factor 2: must be at least 3 .offsets_topic_replication_factor"),
        ((1, 2, 3, 4, 5), (1, 2, 3), "4", "replication factor 3: must be at least 4 .min.insync.replicas"),
        ((1, 2, 3, 4), (1, 2, 3), "2", ""),
        ((1, 2, 3), (4, 5, 6), "2", ""),
        ((1, 2), (3, 4), "2", ""),  # it has too few already
        ((1, 2), (1, 2, 3), "2", ""),
    ],
)
def test_a_reassignment_never_lowers_the_replicas_below_the_minimum(
    current: tuple[int, ...], wanted: tuple[int, ...], min_insync: str, refusal: str
) -> None:
    configs = SAFE | {"min.insync.replicas": min_insync}
    RULES.check_reassignment(TopicPartition("orders", 0), configs, current, wanted)
    if not refusal:
        RULES.check_reassignment(OFFSETS, configs, current, wanted)
        return
    with pytest.raises(PolicyViolationError, match=f"{OFFSETS_TOPIC}-0: {refusal}"):
        RULES.check_reassignment(OFFSETS, configs, current, wanted)


# --- what the controller plans -----------------------------------------------------------------------------


def planned(
    name: str,
    partitions: int = 1,
    factor: int = 3,
    configs: Mapping[str, str] | None = None,
) -> TopicAssignment:
    return plan_topic(
        NewTopic(name, partitions, factor, configs=configs),
        existing=(),
        brokers=(1, 2, 3),
        num_partitions=1,
        replication_factor=1,
        defaults=DEFAULTS,
        internal=RULES,
        rng=random.Random(0),
    )


def test_a_client_creates_the_offsets_topic_only_as_coordinators_need_it() -> None:
    assert len(planned(OFFSETS_TOPIC, 7, 3, SAFE).partitions) == 7
    with pytest.raises(PolicyViolationError, match="replication factor 2: must be at least 3"):
        planned(OFFSETS_TOPIC, 7, 2, SAFE)
    with pytest.raises(PolicyViolationError, match="replication factor 1: must be at least 3"):
        planned(OFFSETS_TOPIC, -1, -1, SAFE)
    with pytest.raises(PolicyViolationError, match=r"cleanup\.policy=delete"):
        planned(OFFSETS_TOPIC, 7, 3)


def test_no_topic_takes_a_name_that_would_keep_the_offsets_topic_away() -> None:
    with pytest.raises(InvalidTopicError, match=f"'__consumer.offsets' differs from '{OFFSETS_TOPIC}' only in"):
        planned("__consumer.offsets")
    planned("__consumer-offsets")


def test_the_offsets_topic_gets_no_more_partitions() -> None:
    with pytest.raises(InvalidPartitionsError, match="each group's coordinator"):
        plan_partitions(NewPartitions(OFFSETS_TOPIC, 2), TopicAssignment(OFFSETS_TOPIC, "id", {0: (1,)}), (1,))


def test_a_cancelled_reassignment_returns_to_the_replicas_before_it() -> None:
    grows = TopicAssignment(OFFSETS_TOPIC, "id", {0: (1, 2)}, adding={0: (2,)})
    assert plan_reassignment(WantedReplicas(OFFSETS_TOPIC, 0, None), grows, (1, 2), RULES).target == (1,)


# --- what a broker answers ---------------------------------------------------------------------------------


@on_virtual_time
async def test_leader_refuses_produces_and_record_deletions_of_the_offsets_topic() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OFFSETS)
        refused = (await cluster.leader.ask(produce_request(b"a", tp=OFFSETS))).partitions[0]
        assert (refused.error_code, refused.base_offset) == (InvalidTopicError.code, -1)
        assert "clients may not produce" in refused.error_message
        good = produce_request(b"a").partitions[0]
        both = replace(produce_request(b"a"), partitions=(replace(good, topic=OFFSETS_TOPIC), good))
        assert [each.error_code for each in (await cluster.leader.ask(both)).partitions] == [InvalidTopicError.code, 0]
        request = DeleteRecordsRequest((DeleteRecordsPartition(*OFFSETS, -1),), 5000)
        answer: Any = await cluster.leader.ask(request)
        assert answer.partitions[0].error_code == InvalidTopicError.code
        assert cluster.leader.log(OFFSETS).log_end_offset == 0


@on_virtual_time
async def test_a_produce_that_waits_for_a_busy_disk_is_refused_too() -> None:
    async with MemoryCluster() as cluster:
        await cluster.elect(1)
        await cluster.elect(1, tp=OFFSETS)
        cluster.leader.replicas.loop_budget.charge(300)
        assert cluster.leader.replicas.loop_budget.exhausted
        refused = (await cluster.leader.ask(produce_request(b"a", tp=OFFSETS))).partitions[0]
        assert (refused.error_code, cluster.leader.log(OFFSETS).log_end_offset) == (InvalidTopicError.code, 0)


def test_a_controller_refuses_to_delete_extend_or_shrink_the_offsets_topic() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(OFFSETS_TOPIC, assignment={0: (1, 2, 3)}, configs=SAFE)
        await cluster.create("orders")
        controller = cluster.controller
        deleted = await controller.topics.delete_topics(DeleteTopicsRequest((OFFSETS_TOPIC, "orders"), 5000))
        assert [each.error_code for each in deleted.topics] == [PolicyViolationError.code, 0]
        new = CreatePartitionsRequest((NewPartitions(OFFSETS_TOPIC, 2),), 5000)
        (extended,) = (await controller.partitions.create_partitions(new)).topics
        assert extended.error_code == InvalidPartitionsError.code
        fewer = AlterPartitionReassignmentsRequest((WantedReplicas(OFFSETS_TOPIC, 0, (1, 2)),), 5000)
        (moved,) = (await controller.partitions.alter_reassignments(fewer)).partitions
        assert moved.error_code == PolicyViolationError.code
        assert "offsets_topic_replication_factor" in (moved.error_message or "")
        small = CreateTopicsRequest((NewTopic("__consumer.offsets", 1, 1),), 5000)
        (created,) = (await controller.topics.create_topics(small)).topics
        assert created.error_code == InvalidTopicError.code
        topic = await cluster.brokers[1].zk_client.read_topic(OFFSETS_TOPIC)
        assert topic is not None and topic.partitions == {0: (1, 2, 3)}
        assert not cluster.exists(f"/admin/delete_topics/{OFFSETS_TOPIC}")

    run(story)


def test_a_controller_judges_a_reassignment_by_settings_that_changed_since() -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.create(OFFSETS_TOPIC, assignment={0: (1, 2, 3, 4)}, configs=SAFE)
        changed = SAFE | {"min.insync.replicas": "4"}
        await cluster.brokers[2].zk_client.topic_configs.change(OFFSETS_TOPIC, lambda before: changed)
        term = cluster.controller._term
        assert term is not None
        await cluster.until(lambda: term.controller.context.topics[OFFSETS_TOPIC].configs == changed)
        fewer = AlterPartitionReassignmentsRequest((WantedReplicas(OFFSETS_TOPIC, 0, (1, 2, 3)),), 5000)
        (moved,) = (await cluster.controller.partitions.alter_reassignments(fewer)).partitions
        assert moved.error_code == PolicyViolationError.code

    run(story, brokers=4)


def the_offsets_topic(*, replicas: int = 3) -> tuple[TopicSettings, MetadataCache]:
    metadata = MetadataCache("c")
    ids = tuple(range(1, replicas + 1))
    state = PartitionStateMessage(OFFSETS_TOPIC, 0, 1, 1, 0, ids, 0, ids)
    metadata.update(UpdateMetadataRequest(1, 1, (), (state,), (TopicInfo(OFFSETS_TOPIC, "id", SAFE, 1),)))
    return TopicSettings({OFFSETS_TOPIC: SAFE}), metadata


async def alter(configs: Configs, *changes: ConfigChange, dry: bool = False) -> AlteredConfigs:
    alteration = ConfigAlteration(ConfigResourceType.TOPIC, OFFSETS_TOPIC, changes)
    (altered,) = (await configs.alter(IncrementalAlterConfigsRequest((alteration,), dry), -1)).resources
    return altered


@on_virtual_time
@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        ConfigChange("cleanup.policy", "delete"),
        ConfigChange("cleanup.policy", "delete", ConfigOp.APPEND),
        ConfigChange("cleanup.policy", None, ConfigOp.DELETE),
        ConfigChange("min.insync.replicas", "4"),
        ConfigChange("unclean.leader.election.enable", "true"),
    ],
)
async def test_a_broker_refuses_settings_that_endanger_the_offsets_topic(change: ConfigChange, dry: bool) -> None:
    topics, metadata = the_offsets_topic()
    refused = await alter(Configs(MemoryBrokers(broker_settings()), topics, metadata, SystemClock()), change, dry=dry)
    assert (refused.error_code, topics.topics) == (PolicyViolationError.code, {OFFSETS_TOPIC: SAFE})
    assert change.name in (refused.error_message or "")


@on_virtual_time
async def test_a_broker_changes_harmless_settings_of_the_offsets_topic() -> None:
    topics, metadata = the_offsets_topic()
    configs = Configs(MemoryBrokers(broker_settings()), topics, metadata, SystemClock())
    changes = ConfigChange("flush.messages", "1"), ConfigChange("min.insync.replicas", "3")
    assert (await alter(configs, *changes)).error_code == 0
    assert topics.topics[OFFSETS_TOPIC] == SAFE | {"flush.messages": "1", "min.insync.replicas": "3"}


def test_metadata_calls_only_the_offsets_topic_internal() -> None:
    _, metadata = the_offsets_topic()
    metadata.update(UpdateMetadataRequest(1, 1, (), (), (TopicInfo("__my_own", "id", {}, 1),)))
    internal = {topic.name: topic.is_internal for topic in metadata.describe((OFFSETS_TOPIC, "__my_own")).topics}
    assert internal == {OFFSETS_TOPIC: True, "__my_own": False}
