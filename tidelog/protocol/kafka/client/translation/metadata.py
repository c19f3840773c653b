"""Metadata and FindCoordinator: where the brokers and the leaders are."""

from __future__ import annotations

from tidelog.errors import BrokerNotAvailableError
from tidelog.protocol import group_messages as groups
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.client.translation.translation import Translation, always
from tidelog.protocol.kafka.messages import metadata as kafka
from tidelog.protocol.kafka.primitives import uuid_to_text
from tidelog.protocol.kafka.schema import Versions

#: The first version of FindCoordinator that asks for several groups.
_SEVERAL_GROUPS = 4


def _write_metadata(request: native.MetadataRequest, version: int) -> kafka.MetadataRequest:
    names = request.topics
    return kafka.MetadataRequest(
        topics=None if names is None else tuple(kafka.MetadataRequestTopic(name=name) for name in names),
        allow_auto_topic_creation=request.allow_auto_topic_creation,
    )


def _read_metadata(
    response: kafka.MetadataResponse, request: native.MetadataRequest, version: int
) -> native.MetadataResponse:
    """Return the typed response.

    Raise BrokerNotAvailableError if a request for all topics gets a response without brokers. A broker that the
    controller has not informed yet answers so, because the response has no place for an error of the whole request.
    Without the error, a client would take all topics for deleted.
    """
    if request.topics is None and not response.brokers:
        raise BrokerNotAvailableError("this broker does not know all topics yet; try another broker")
    return native.MetadataResponse(
        response.cluster_id or "",
        response.controller_id,
        tuple(native.BrokerAddress(each.node_id, each.host, each.port, each.rack or None) for each in response.brokers),
        tuple(
            native.TopicMetadata(
                topic.name or "",
                topic.error_code,
                uuid_to_text(topic.topic_id),
                topic.is_internal,
                tuple(map(_partition, sorted(topic.partitions, key=lambda each: each.partition_index))),
            )
            for topic in response.topics
        ),
    )


def _partition(partition: kafka.MetadataResponsePartition) -> native.PartitionMetadata:
    return native.PartitionMetadata(
        partition.partition_index,
        partition.error_code,
        partition.leader_id,
        partition.leader_epoch,
        partition.replica_nodes,
        partition.isr_nodes,
        partition.offline_replicas,
    )


METADATA = Translation(kafka.MetadataRequest, always(4, 12), _write_metadata, _read_metadata)


def _coordinator_versions(request: groups.FindCoordinatorRequest) -> Versions:
    return Versions(1 if len(request.keys) == 1 else _SEVERAL_GROUPS, _SEVERAL_GROUPS)


def _write_coordinator(request: groups.FindCoordinatorRequest, version: int) -> kafka.FindCoordinatorRequest:
    if version >= _SEVERAL_GROUPS:
        return kafka.FindCoordinatorRequest(key_type=request.key_type, coordinator_keys=request.keys)
    return kafka.FindCoordinatorRequest(key_type=request.key_type, key=request.keys[0])


def _read_coordinator(
    response: kafka.FindCoordinatorResponse, request: groups.FindCoordinatorRequest, version: int
) -> groups.FindCoordinatorResponse:
    if version >= _SEVERAL_GROUPS:
        return groups.FindCoordinatorResponse(
            tuple(
                groups.Coordinator(each.key, each.error_code, each.node_id, each.host, each.port, each.error_message)
                for each in response.coordinators
            )
        )
    only = groups.Coordinator(
        request.keys[0], response.error_code, response.node_id, response.host, response.port, response.error_message
    )
    return groups.FindCoordinatorResponse((only,))


FIND_COORDINATOR = Translation(
    kafka.FindCoordinatorRequest, _coordinator_versions, _write_coordinator, _read_coordinator
)
