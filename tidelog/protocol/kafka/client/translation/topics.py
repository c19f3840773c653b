"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from tidelog.protocol import admin_messages as admin
from tidelog.protocol import messages as native
from tidelog.protocol import partition_messages as partitions
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.client.translation.translation import Translation, always
from tidelog.protocol.kafka.messages import topics as kafka
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_from_text, uuid_to_text
from tidelog.protocol.kafka.schema import Versions

#: The first version of DeleteTopics that names topics by name or by id.
_TOPIC_IDS = 6


def _write_create(request: native.CreateTopicsRequest, version: int) -> kafka.CreateTopicsRequest:
    return kafka.CreateTopicsRequest(
        topics=tuple(map(_creatable, request.topics)),
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )


def _creatable(topic: native.NewTopic) -> kafka.CreatableTopic:
    return kafka.CreatableTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            kafka.CreatableReplicaAssignment(partition_index=number, broker_ids=replicas)
            for number, replicas in (topic.assignment or {}).items()
        ),
        configs=tuple(
            kafka.CreatableTopicConfig(name=name, value=value) for name, value in (topic.configs or {}).items()
        ),
    )


def _read_create(
    response: kafka.CreateTopicsResponse, request: native.CreateTopicsRequest, version: int
) -> native.CreateTopicsResponse:
    return native.CreateTopicsResponse(
        tuple(
            native.CreatedTopic(
                each.name,
                each.error_code,
                each.error_message,
                uuid_to_text(each.topic_id),
                each.num_partitions,
                each.replication_factor,
            )
            for each in response.topics
        )
    )


CREATE_TOPICS = Translation(kafka.CreateTopicsRequest, always(4, 7), _write_create, _read_create)


def _delete_versions(request: native.DeleteTopicsRequest) -> Versions:
    return Versions(_TOPIC_IDS if request.topic_ids else 1, _TOPIC_IDS)


def _write_delete(request: native.DeleteTopicsRequest, version: int) -> kafka.DeleteTopicsRequest:
    if version < _TOPIC_IDS:
        return kafka.DeleteTopicsRequest(topic_names=request.topics, timeout_ms=request.timeout_ms)
    ids = {name: uuid_from_text(topic_id) for name, topic_id in (request.topic_ids or {}).items()}
    return kafka.DeleteTopicsRequest(
        topics=tuple(
            kafka.DeleteTopicState(topic_id=ids[name])
            if name in ids
            else kafka.DeleteTopicState(name=name, topic_id=ZERO_UUID)
            for name in request.topics
        ),
        timeout_ms=request.timeout_ms,
    )


def _read_delete(
    response: kafka.DeleteTopicsResponse, request: native.DeleteTopicsRequest, version: int
) -> native.DeleteTopicsResponse:
    names = {topic_id: name for name, topic_id in (request.topic_ids or {}).items()}
    return native.DeleteTopicsResponse(
        tuple(
            native.DeletedTopic(
                names.get(uuid_to_text(each.topic_id), each.name or ""), each.error_code, each.error_message
            )
            for each in response.responses
        )
    )


DELETE_TOPICS = Translation(kafka.DeleteTopicsRequest, _delete_versions, _write_delete, _read_delete)


def _write_partitions(request: partitions.CreatePartitionsRequest, version: int) -> kafka.CreatePartitionsRequest:
    return kafka.CreatePartitionsRequest(
        topics=tuple(
            kafka.CreatePartitionsTopic(
                name=each.name, count=each.total_count, assignments=_assignments(each.assignment)
            )
            for each in request.topics
        ),
        timeout_ms=request.timeout_ms,
        validate_only=request.validate_only,
    )


def _assignments(assignment: dict[int, tuple[int, ...]] | None) -> tuple[kafka.CreatePartitionsAssignment, ...] | None:
    """Return the replicas of the new partitions in order: Kafka's message has no numbers of partitions."""
    if assignment is None:
        return None
    return tuple(kafka.CreatePartitionsAssignment(broker_ids=assignment[number]) for number in sorted(assignment))


def _read_partitions(
    response: kafka.CreatePartitionsResponse, request: partitions.CreatePartitionsRequest, version: int
) -> partitions.CreatePartitionsResponse:
    return partitions.CreatePartitionsResponse(
        tuple(partitions.ExtendedTopic(each.name, each.error_code, each.error_message) for each in response.results)
    )


CREATE_PARTITIONS = Translation(kafka.CreatePartitionsRequest, always(0, 3), _write_partitions, _read_partitions)


def _write_records(request: admin.DeleteRecordsRequest, version: int) -> kafka.DeleteRecordsRequest:
    wanted = (
        (each.topic, kafka.DeleteRecordsPartition(partition_index=each.partition, offset=each.offset))
        for each in request.partitions
    )
    return kafka.DeleteRecordsRequest(
        topics=tuple(kafka.DeleteRecordsTopic(name=name, partitions=parts) for name, parts in by_topic(wanted)),
        timeout_ms=request.timeout_ms,
    )


def _read_records(
    response: kafka.DeleteRecordsResponse, request: admin.DeleteRecordsRequest, version: int
) -> admin.DeleteRecordsResponse:
    return admin.DeleteRecordsResponse(
        tuple(
            admin.DeletedRecords(topic.name, each.partition_index, each.error_code, each.low_watermark)
            for topic in response.topics
            for each in topic.partitions
        )
    )


DELETE_RECORDS = Translation(kafka.DeleteRecordsRequest, always(0, 2), _write_records, _read_records)
