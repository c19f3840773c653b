"""The APIs that this broker offers to Kafka clients, with their versions."""

from __future__ import annotations

from collections.abc import Callable

from node.kafka.api_versions import SOFTWARE_FROM, api_versions_error, note_software, offered
from node.kafka.calls import Call, KafkaApi, NativeHandler, Outcome
from node.kafka.topic_names import TopicNames
from node.kafka.translation.configs import ConfigTranslation
from node.kafka.translation.extensions import extension_apis
from node.kafka.translation.groups.admin import GroupAdminTranslation
from node.kafka.translation.groups.membership import GroupMembershipTranslation
from node.kafka.translation.groups.offsets import GroupOffsetTranslation
from node.kafka.translation.leaders import LatestLeader
from node.kafka.translation.log_offsets import LogOffsetTranslation
from node.kafka.translation.metadata import MetadataTranslation
from node.kafka.translation.producers import ProducerTranslation
from node.kafka.translation.records import RecordTranslation
from node.kafka.translation.replicas import ReplicaTranslation
from node.kafka.translation.topics import TopicConfigs, TopicTranslation
from node.metadata.metadata_cache import MetadataCache
from node.net.identity import Identity
from node.replication.sessions.consumer_sessions import ConsumerSessions
from node.settings.dynamic_settings import DynamicSettings
from storage.configs.descriptions import describe_topic
from tidelog.clock import Clock
from tidelog.protocol.kafka.extensions import OWN_SOFTWARE
from tidelog.protocol.kafka.messages.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from tidelog.protocol.kafka.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from tidelog.protocol.kafka.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from tidelog.protocol.kafka.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from tidelog.protocol.kafka.messages.log_offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from tidelog.protocol.kafka.messages.metadata import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from tidelog.protocol.kafka.messages.producers import InitProducerIdRequest
from tidelog.protocol.kafka.messages.records import FetchRequest, ProduceRequest
from tidelog.protocol.kafka.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDirsRequest,
    DescribeLogDirsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)
from tidelog.protocol.kafka.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from tidelog.protocol.kafka.schema import Versions


def topic_configs_by(settings: DynamicSettings) -> TopicConfigs:
    """Return the function that describes topics of a broker with these settings; see `describe_topic`."""
    return lambda configs: describe_topic(configs, settings.synonyms, settings.current.topic_defaults)


def kafka_apis(
    handle: NativeHandler,
    metadata: MetadataCache,
    clock: Clock,
    sessions: ConsumerSessions,
    topic_configs: TopicConfigs,
    has_lost: Callable[[int], bool],
    latest_leader: LatestLeader,
    identity: Identity,
) -> list[KafkaApi]:
    """Return the APIs of one broker, in front of its handler of typed requests.

    The response to ApiVersions lists the extensions only for clients of Tidelog.

    sessions        the fetch sessions, whose members the handler makes active when their partitions change
    topic_configs   returns a topic's effective settings, given the settings that the topic itself has
    has_lost        returns whether this broker has lost the connection to the broker of this id
    latest_leader   returns the leader of a partition in the latest epoch that this broker knows
    identity        what the broker tells clients of Tidelog about itself
    """
    names = TopicNames(metadata)
    records = RecordTranslation(handle, metadata, names, clock, sessions, latest_leader)
    offsets = LogOffsetTranslation(handle)
    where, producers = MetadataTranslation(handle, metadata, names, clock, has_lost), ProducerTranslation(handle)
    apis = [
        KafkaApi(ProduceRequest, Versions(0, 10), records.produce, records.produce_error),
        KafkaApi(FetchRequest, Versions(4, 17), records.fetch, records.fetch_error),
        KafkaApi(ListOffsetsRequest, Versions(0, 9), offsets.list_offsets, offsets.list_offsets_error),
        # librdkafka leaves three bytes after a request for all topics. Kafka ignores the rest of every request.
        KafkaApi(MetadataRequest, Versions(0, 12), where.metadata, where.metadata_error, ignores_rest=True),
        KafkaApi(
            DescribeTopicPartitionsRequest,
            Versions(0, 0),
            where.describe_topic_partitions,
            where.describe_topic_partitions_error,
        ),
        KafkaApi(FindCoordinatorRequest, Versions(0, 4), where.find_coordinator, where.find_coordinator_error),
        KafkaApi(DescribeClusterRequest, Versions(0, 1), where.describe_cluster, where.describe_cluster_error),
        KafkaApi(InitProducerIdRequest, Versions(0, 4), producers.init_producer_id, producers.init_producer_id_error),
        KafkaApi(OffsetForLeaderEpochRequest, Versions(2, 4), offsets.offset_for_leader_epoch, offsets.epoch_error),
        *_group_apis(handle),
        *_administration_apis(handle, names, topic_configs),
    ]

    extensions = extension_apis(handle, identity)

    def api_versions(request: ApiVersionsRequest, call: Call) -> Outcome:
        if call.version >= SOFTWARE_FROM:
            note_software(request, call.client)
        is_own_client = request.client_software_name == OWN_SOFTWARE
        return offered([*apis, *extensions] if is_own_client else apis)

    apis.append(KafkaApi(ApiVersionsRequest, Versions(0, 4), api_versions, api_versions_error))
    return [*apis, *extensions]


def _group_apis(handle: NativeHandler) -> list[KafkaApi]:
    members, commits = GroupMembershipTranslation(handle), GroupOffsetTranslation(handle)
    groups = GroupAdminTranslation(handle)
    return [
        KafkaApi(OffsetCommitRequest, Versions(0, 8), commits.commit, commits.commit_error),
        KafkaApi(OffsetFetchRequest, Versions(0, 8), commits.fetch, commits.fetch_error),
        KafkaApi(OffsetDeleteRequest, Versions(0, 0), commits.delete, commits.delete_error),
        KafkaApi(JoinGroupRequest, Versions(0, 9), members.join, members.join_error),
        KafkaApi(SyncGroupRequest, Versions(0, 5), members.sync, members.sync_error),
        KafkaApi(HeartbeatRequest, Versions(0, 4), members.heartbeat, members.heartbeat_error),
        KafkaApi(LeaveGroupRequest, Versions(0, 5), members.leave, members.leave_error),
        KafkaApi(DescribeGroupsRequest, Versions(0, 5), groups.describe, groups.describe_error),
        KafkaApi(ListGroupsRequest, Versions(0, 5), groups.list, groups.list_error),
        KafkaApi(DeleteGroupsRequest, Versions(0, 2), groups.delete, groups.delete_error),
    ]


def _administration_apis(handle: NativeHandler, names: TopicNames, topic_configs: TopicConfigs) -> list[KafkaApi]:
    topics = TopicTranslation(handle, names, topic_configs)
    configs, replicas = ConfigTranslation(handle), ReplicaTranslation(handle)
    return [
        KafkaApi(CreateTopicsRequest, Versions(2, 7), topics.create_topics, topics.create_topics_error),
        KafkaApi(DeleteTopicsRequest, Versions(1, 6), topics.delete_topics, topics.delete_topics_error),
        KafkaApi(CreatePartitionsRequest, Versions(0, 3), topics.create_partitions, topics.create_partitions_error),
        KafkaApi(DeleteRecordsRequest, Versions(0, 2), topics.delete_records, topics.delete_records_error),
        KafkaApi(DescribeConfigsRequest, Versions(1, 4), configs.describe, configs.describe_error),
        KafkaApi(AlterConfigsRequest, Versions(0, 2), configs.replace, configs.replace_error),
        KafkaApi(IncrementalAlterConfigsRequest, Versions(0, 1), configs.alter, configs.alter_error),
        KafkaApi(AlterReplicaLogDirsRequest, Versions(1, 2), replicas.alter_log_dirs, replicas.alter_log_dirs_error),
        KafkaApi(DescribeLogDirsRequest, Versions(1, 4), replicas.log_dirs, replicas.log_dirs_error),
        KafkaApi(ElectLeadersRequest, Versions(0, 2), replicas.elect, replicas.elect_error),
        KafkaApi(AlterPartitionReassignmentsRequest, Versions(0, 0), replicas.reassign, replicas.reassign_error),
        KafkaApi(
            ListPartitionReassignmentsRequest,
            Versions(0, 0),
            replicas.reassignments,
            replicas.reassignments_error,
        ),
    ]
