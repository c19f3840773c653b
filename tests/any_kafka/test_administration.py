"""Test the administration of any Kafka by our Admin, and its answer for calls that need a cluster of Tidelog."""

from __future__ import annotations

import pytest

from tests.any_kafka.clusters import AnyCluster
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, ConfigResource, ElectionType, NewPartitions, NewTopic, Producer, TopicPartition
from tidelog.errors import (
    ElectionNotNeededError,
    InvalidConfigError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_topics_are_created_described_extended_and_deleted(cluster: AnyCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        (created,) = admin.create_topics([NewTopic("life", 2, 3, configs={"retention.ms": "60000"})])
        assert (created.num_partitions, created.replication_factor) == (2, 3)
        with pytest.raises(TopicAlreadyExistsError, match="life"):
            admin.create_topics([NewTopic("life", 2, 3)])
        (described,) = admin.describe_topics(["life"])
        assert described.topic_id == created.topic_id != ""
        assert [each.partition for each in described.partitions] == [0, 1]
        admin.create_partitions([NewPartitions("life", 3)])
        assert len(admin.describe_topics(["life"])[0].partitions) == 3
        wait_for("each broker to list the topic", lambda: "life" in admin.list_topics(), 30)
        admin.delete_topics(["life"])
        wait_for("the topic to be gone", lambda: "life" not in admin.list_topics(), 30)

        def is_unknown() -> bool:
            try:
                admin.describe_topics(["life"])
            except UnknownTopicOrPartitionError:
                return True
            return False

        wait_for("every broker to have forgotten the topic", is_unknown, 30)


def test_settings_are_described_and_changed(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    topic, broker = ConfigResource.topic(tp.topic), ConfigResource.broker(1)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_configs({topic: {"retention.ms": "61000", "min.insync.replicas": None}})

        def retention() -> str | None:
            return admin.describe_configs([topic])[topic]["retention.ms"].value

        wait_for("the change to be applied", lambda: retention() == "61000", 30)
        found = admin.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)
        assert found[topic]["min.insync.replicas"].value == "1"
        assert found[topic]["retention.ms"].documentation
        assert len(found[broker]) > 20
        with pytest.raises(InvalidConfigError, match=r"retention\.ms"):
            admin.alter_configs({topic: {"retention.ms": "soon"}})


def test_records_are_deleted_up_to_an_offset(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for _ in range(10):
            producer.send(tp.topic, b"v")
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert admin.delete_records({tp: 7}) == {tp: 7}
        assert admin.delete_records({tp: -1}) == {tp: 10}


def test_partition_moves_and_elects_its_preferred_leader(cluster: AnyCluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("moving", assignment={0: (1, 2)})])
        tp = TopicPartition("moving", 0)
        admin.alter_partition_reassignments({tp: (2, 3)})
        wait_for("the move to end", lambda: not admin.list_partition_reassignments([tp]), 60)

        def replicas() -> tuple[int, ...]:
            return admin.describe_topics(["moving"])[0].partitions[0].replicas

        wait_for("the replicas to be the new ones", lambda: replicas() == (2, 3), 30)
        errors = admin.elect_leaders(ElectionType.PREFERRED, [tp])
        assert errors[tp] is None or isinstance(errors[tp], ElectionNotNeededError)
        wait_for("the preferred leader", lambda: admin.describe_topics(["moving"])[0].partitions[0].leader == 2, 30)


def test_log_directories_and_the_cluster_are_described(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        described = admin.describe_cluster()
        assert set(described.brokers) == {1, 2, 3} and described.cluster_id

        def brokers_with_the_log() -> set[int]:
            return {
                broker
                for broker, directories in admin.describe_log_dirs().items()
                if any((each.topic, each.partition) == tp for directory in directories for each in directory.replicas)
            }

        wait_for("each broker to show the log", lambda: brokers_with_the_log() == {1, 2, 3}, 30)


def test_call_that_kafka_lacks_is_refused_with_the_reason(cluster: AnyCluster) -> None:
    (tp,) = cluster.create_topic()
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        if cluster.is_kafka:
            for call in (admin.describe_clients, lambda: admin.partition_facts(tp)):
                with pytest.raises(UnsupportedVersionError, match="needs a cluster of Tidelog"):
                    call()
        else:
            assert set(admin.describe_clients()) == {1, 2, 3}
