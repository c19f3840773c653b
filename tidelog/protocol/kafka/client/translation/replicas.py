"""ElectLeaders, DescribeLogDirs, AlterReplicaLogDirs, and the reassignment of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tidelog.protocol import admin_messages as admin
from tidelog.protocol import partition_messages as partitions
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.client.translation.translation import Translation, always, raise_error_of
from tidelog.protocol.kafka.messages import replicas as kafka
from tidelog.protocol.messages import DescribePartition


def _numbers(wanted: Iterable[DescribePartition]) -> list[tuple[str, tuple[int, ...]]]:
    return by_topic((each.topic, each.partition) for each in wanted)


# --- ElectLeaders ------------------------------------------------------------------------------------


def _write_elect(request: partitions.ElectLeadersRequest, version: int) -> kafka.ElectLeadersRequest:
    wanted = None
    if request.partitions is not None:
        wanted = tuple(
            kafka.TopicPartitions(topic=name, partitions=numbers) for name, numbers in _numbers(request.partitions)
        )
    return kafka.ElectLeadersRequest(
        election_type=request.election_type, topic_partitions=wanted, timeout_ms=request.timeout_ms
    )


def _read_elect(
    response: kafka.ElectLeadersResponse, request: partitions.ElectLeadersRequest, version: int
) -> partitions.ElectLeadersResponse:
    raise_error_of(response)
    return partitions.ElectLeadersResponse(
        tuple(
            partitions.PartitionResult(topic.topic, each.partition_id, each.error_code, each.error_message)
            for topic in response.replica_election_results
            for each in topic.partition_result
        )
    )


ELECT_LEADERS = Translation(kafka.ElectLeadersRequest, always(1, 2), _write_elect, _read_elect)


# --- AlterPartitionReassignments, ListPartitionReassignments -----------------------------------------


def _write_reassign(
    request: partitions.AlterPartitionReassignmentsRequest, version: int
) -> kafka.AlterPartitionReassignmentsRequest:
    wanted = (
        (each.topic, kafka.ReassignablePartition(partition_index=each.partition, replicas=each.replicas))
        for each in request.partitions
    )
    return kafka.AlterPartitionReassignmentsRequest(
        timeout_ms=request.timeout_ms,
        topics=tuple(kafka.ReassignableTopic(name=name, partitions=parts) for name, parts in by_topic(wanted)),
    )


def _read_reassign(
    response: kafka.AlterPartitionReassignmentsResponse,
    request: partitions.AlterPartitionReassignmentsRequest,
    version: int,
) -> partitions.AlterPartitionReassignmentsResponse:
    raise_error_of(response)
    return partitions.AlterPartitionReassignmentsResponse(
        tuple(
            partitions.PartitionResult(topic.name, each.partition_index, each.error_code, each.error_message)
            for topic in response.responses
            for each in topic.partitions
        )
    )


ALTER_PARTITION_REASSIGNMENTS = Translation(
    kafka.AlterPartitionReassignmentsRequest, always(0, 0), _write_reassign, _read_reassign
)


def _write_reassignments(
    request: partitions.ListPartitionReassignmentsRequest, version: int
) -> kafka.ListPartitionReassignmentsRequest:
    if request.partitions is None:
        return kafka.ListPartitionReassignmentsRequest()
    return kafka.ListPartitionReassignmentsRequest(
        topics=tuple(
            kafka.ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in _numbers(request.partitions)
        )
    )


def _read_reassignments(
    response: kafka.ListPartitionReassignmentsResponse,
    request: partitions.ListPartitionReassignmentsRequest,
    version: int,
) -> partitions.ListPartitionReassignmentsResponse:
    raise_error_of(response)
    return partitions.ListPartitionReassignmentsResponse(
        tuple(
            partitions.PartitionReassignment(
                topic.name, each.partition_index, each.replicas, each.adding_replicas, each.removing_replicas
            )
            for topic in response.topics
            for each in topic.partitions
        )
    )


LIST_PARTITION_REASSIGNMENTS = Translation(
    kafka.ListPartitionReassignmentsRequest, always(0, 0), _write_reassignments, _read_reassignments
)


# --- DescribeLogDirs ---------------------------------------------------------------------------------


def _write_log_dirs(request: admin.DescribeLogDirsRequest, version: int) -> kafka.DescribeLogDirsRequest:
    if request.partitions is None:
        return kafka.DescribeLogDirsRequest(topics=None)
    return kafka.DescribeLogDirsRequest(
        topics=tuple(
            kafka.DescribableLogDirTopic(topic=name, partitions=numbers)
            for name, numbers in _numbers(request.partitions)
        )
    )


def _read_log_dirs(
    response: kafka.DescribeLogDirsResponse, request: admin.DescribeLogDirsRequest, version: int
) -> admin.DescribeLogDirsResponse:
    raise_error_of(response)
    return admin.DescribeLogDirsResponse(
        tuple(
            admin.LogDir(
                found.log_dir,
                found.error_code,
                None,
                tuple(
                    admin.LogDirReplica(
                        topic.name, each.partition_index, each.partition_size, each.offset_lag, each.is_future_key
                    )
                    for topic in found.topics
                    for each in topic.partitions
                ),
                found.total_bytes,
                found.usable_bytes,
            )
            for found in response.results
        )
    )


DESCRIBE_LOG_DIRS = Translation(kafka.DescribeLogDirsRequest, always(1, 4), _write_log_dirs, _read_log_dirs)


# --- AlterReplicaLogDirs -----------------------------------------------------------------------------


def _write_alter_log_dirs(request: admin.AlterReplicaLogDirsRequest, version: int) -> kafka.AlterReplicaLogDirsRequest:
    by_path: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    for each in request.replicas:
        by_path[each.log_dir].append((each.topic, each.partition))
    return kafka.AlterReplicaLogDirsRequest(
        dirs=tuple(
            kafka.AlterReplicaLogDir(
                path=path,
                topics=tuple(
                    kafka.AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in by_topic(moved)
                ),
            )
            for path, moved in by_path.items()
        )
    )


def _read_alter_log_dirs(
    response: kafka.AlterReplicaLogDirsResponse, request: admin.AlterReplicaLogDirsRequest, version: int
) -> admin.AlterReplicaLogDirsResponse:
    return admin.AlterReplicaLogDirsResponse(
        tuple(
            admin.ReplicaLogDirResult(topic.topic_name, each.partition_index, each.error_code)
            for topic in response.results
            for each in topic.partitions
        )
    )


ALTER_REPLICA_LOG_DIRS = Translation(
    kafka.AlterReplicaLogDirsRequest, always(1, 2), _write_alter_log_dirs, _read_alter_log_dirs
)
