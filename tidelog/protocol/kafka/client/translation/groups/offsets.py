"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of groups.

Version 0 of OffsetCommit and OffsetFetch keeps the offsets in ZooKeeper.
"""

from __future__ import annotations

from tidelog.errors import ProtocolError
from tidelog.protocol import group_messages as native
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.client.translation.translation import Translation, always, needs_tidelog
from tidelog.protocol.kafka.messages import group_offsets as kafka
from tidelog.protocol.kafka.schema import Versions

_IN_ZOOKEEPER = Versions(0, 0)
_COMMIT = Versions(2, 8)
#: The versions of OffsetCommit that state how long offsets are kept, and those that name static members.
_RETENTION, _STATIC = Versions(2, 4), Versions(7, 8)
_FETCH = Versions(2, 8)
#: The first version of OffsetFetch that names several groups.
_SEVERAL_GROUPS = 8


def _commit_versions(request: native.OffsetCommitRequest) -> Versions:
    if request.in_zookeeper:
        return _IN_ZOOKEEPER
    if request.group_instance_id is not None:
        return _STATIC
    return _COMMIT if request.retention_ms < 0 else _RETENTION


def _write_commit(request: native.OffsetCommitRequest, version: int) -> kafka.OffsetCommitRequest:
    commits = (
        (
            each.topic,
            kafka.OffsetCommitRequestPartition(
                partition_index=each.partition,
                committed_offset=each.committed_offset,
                committed_leader_epoch=each.committed_leader_epoch,
                committed_metadata=each.committed_metadata,
            ),
        )
        for each in request.partitions
    )
    return kafka.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        retention_time_ms=request.retention_ms,
        topics=tuple(kafka.OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic(commits)),
    )


def _read_commit(
    response: kafka.OffsetCommitResponse, request: native.OffsetCommitRequest, version: int
) -> native.OffsetCommitResponse:
    return native.OffsetCommitResponse(
        tuple(
            native.CommittedPartition(topic.name, each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        )
    )


OFFSET_COMMIT = Translation(kafka.OffsetCommitRequest, _commit_versions, _write_commit, _read_commit)


def _fetch_versions(request: native.OffsetFetchRequest) -> Versions:
    if request.in_zookeeper and request.partitions is None:
        raise needs_tidelog(request)  # version 0 must name the partitions
    return _IN_ZOOKEEPER if request.in_zookeeper else _FETCH


def _write_fetch(request: native.OffsetFetchRequest, version: int) -> kafka.OffsetFetchRequest:
    topics = None
    if request.partitions is not None:
        topics = by_topic((each.topic, each.partition) for each in request.partitions)
    if version < _SEVERAL_GROUPS:
        return kafka.OffsetFetchRequest(
            group_id=request.group_id,
            topics=None
            if topics is None
            else tuple(kafka.OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in topics),
        )
    wanted = (
        None
        if topics is None
        else tuple(kafka.OffsetFetchRequestTopics(name=name, partition_indexes=parts) for name, parts in topics)
    )
    return kafka.OffsetFetchRequest(groups=(kafka.OffsetFetchRequestGroup(group_id=request.group_id, topics=wanted),))


def _read_fetch(
    response: kafka.OffsetFetchResponse, request: native.OffsetFetchRequest, version: int
) -> native.OffsetFetchResponse:
    found: kafka.OffsetFetchResponse | kafka.OffsetFetchResponseGroup = response
    if version >= _SEVERAL_GROUPS:
        if len(response.groups) != 1:
            raise ProtocolError(f"an OffsetFetch response has {len(response.groups)} groups instead of one")
        (found,) = response.groups
    if found.error_code:
        return native.OffsetFetchResponse(found.error_code)
    return native.OffsetFetchResponse(
        0,
        tuple(
            native.OffsetFetchPartition(
                topic.name,
                each.partition_index,
                each.error_code,
                each.committed_offset,
                each.committed_leader_epoch,
                each.metadata or "",
            )
            for topic in found.topics
            for each in topic.partitions
        ),
    )


OFFSET_FETCH = Translation(kafka.OffsetFetchRequest, _fetch_versions, _write_fetch, _read_fetch)


def _write_delete(request: native.OffsetDeleteRequest, version: int) -> kafka.OffsetDeleteRequest:
    wanted = (
        (each.topic, kafka.OffsetDeleteRequestPartition(partition_index=each.partition)) for each in request.partitions
    )
    return kafka.OffsetDeleteRequest(
        group_id=request.group_id,
        topics=tuple(kafka.OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in by_topic(wanted)),
    )


def _read_delete(
    response: kafka.OffsetDeleteResponse, request: native.OffsetDeleteRequest, version: int
) -> native.OffsetDeleteResponse:
    return native.OffsetDeleteResponse(
        response.error_code,
        tuple(
            native.CommittedPartition(topic.name, each.partition_index, each.error_code)
            for topic in response.topics
            for each in topic.partitions
        ),
    )


OFFSET_DELETE = Translation(kafka.OffsetDeleteRequest, always(0, 0), _write_delete, _read_delete)
