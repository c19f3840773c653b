"""The APIs that are generated, with their versions, grouped into the files of `tidelog/protocol/kafka/messages/`."""

from __future__ import annotations

from typing import NamedTuple


class Family(NamedTuple):
    """One generated file. `apis` has the versions of each API by its name, as Kafka's definitions write them."""

    file: str
    purpose: str
    apis: dict[str, str]


#: The versions are those of Kafka 3.9's and 4.x clients whose functions a broker has. Later versions are for
#: transactions, tiered storage, share groups, and groups of KIP-848.
FAMILIES = (
    Family("records", "Produce and Fetch", {"Produce": "0-11", "Fetch": "4-17"}),
    Family("log_offsets", "look-ups of offsets in logs", {"ListOffsets": "0-9", "OffsetForLeaderEpoch": "2-4"}),
    Family(
        "metadata",
        "the cluster, its brokers and topics",
        {
            "ApiVersions": "0-4",
            "Metadata": "0-12",
            "FindCoordinator": "0-4",
            "DescribeCluster": "0-1",
            "DescribeTopicPartitions": "0",
        },
    ),
    Family(
        "group_membership",
        "members of groups",
        {"JoinGroup": "0-9", "SyncGroup": "0-5", "Heartbeat": "0-4", "LeaveGroup": "0-5"},
    ),
    Family("group_offsets", "committed offsets", {"OffsetCommit": "0-9", "OffsetFetch": "0-8", "OffsetDelete": "0"}),
    Family("group_admin", "groups as a whole", {"DescribeGroups": "0-5", "ListGroups": "0-5", "DeleteGroups": "0-2"}),
    Family(
        "topics",
        "the creation and deletion of topics, partitions and records",
        {"CreateTopics": "2-7", "DeleteTopics": "1-6", "CreatePartitions": "0-3", "DeleteRecords": "0-2"},
    ),
    Family(
        "configs",
        "the configs of topics and brokers",
        {"DescribeConfigs": "1-4", "AlterConfigs": "0-2", "IncrementalAlterConfigs": "0-1"},
    ),
    Family(
        "replicas",
        "the replicas of partitions",
        {
            "ElectLeaders": "0-2",
            "AlterPartitionReassignments": "0",
            "ListPartitionReassignments": "0",
            "DescribeLogDirs": "1-4",
            "AlterReplicaLogDirs": "1-2",
        },
    ),
    Family("producers", "the ids of producers", {"InitProducerId": "0-4"}),
)

#: Names of structures that would be the same in two messages of one file.
RENAMED = {
    ("IncrementalAlterConfigs", "AlterConfigsResource"): "IncrementalAlterConfigsResource",
    ("IncrementalAlterConfigs", "AlterableConfig"): "IncrementalAlterableConfig",
    ("IncrementalAlterConfigs", "AlterConfigsResourceResponse"): "IncrementalAlterConfigsResourceResponse",
}
