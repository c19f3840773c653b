"""ListOffsets and OffsetForLeaderEpoch: positions in the log by time and by leader epoch."""

from __future__ import annotations

from tidelog.model import MAX_TIMESTAMP
from tidelog.protocol import list_offsets_v0_messages as segments
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.client.translation.translation import Translation, always
from tidelog.protocol.kafka.messages import log_offsets as kafka
from tidelog.protocol.kafka.schema import Versions

#: All versions that return one offset, and those of them that can ask for the largest timestamp.
_ONE_OFFSET, _LARGEST = Versions(1, 9), Versions(7, 9)


def _list_versions(request: native.ListOffsetsRequest) -> Versions:
    return _LARGEST if any(each.timestamp == MAX_TIMESTAMP for each in request.partitions) else _ONE_OFFSET


def _write_list(request: native.ListOffsetsRequest, version: int) -> kafka.ListOffsetsRequest:
    wanted = (
        (
            each.topic,
            kafka.ListOffsetsPartition(
                partition_index=each.partition,
                current_leader_epoch=each.current_leader_epoch,
                timestamp=each.timestamp,
            ),
        )
        for each in request.partitions
    )
    return kafka.ListOffsetsRequest(
        replica_id=request.replica_id,
        isolation_level=request.isolation_level,
        topics=tuple(kafka.ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic(wanted)),
    )


def _read_list(
    response: kafka.ListOffsetsResponse, request: native.ListOffsetsRequest, version: int
) -> native.ListOffsetsResponse:
    return native.ListOffsetsResponse(
        tuple(
            native.ListOffsetsPartitionResponse(
                topic.name, each.partition_index, each.error_code, each.timestamp, each.offset, each.leader_epoch
            )
            for topic in response.topics
            for each in topic.partitions
        )
    )


LIST_OFFSETS = Translation(kafka.ListOffsetsRequest, _list_versions, _write_list, _read_list)


def _write_segments(request: segments.ListSegmentOffsetsRequest, version: int) -> kafka.ListOffsetsRequest:
    wanted = (
        (
            each.topic,
            kafka.ListOffsetsPartition(
                partition_index=each.partition,
                current_leader_epoch=each.current_leader_epoch,
                timestamp=each.timestamp,
                max_num_offsets=each.max_num_offsets,
            ),
        )
        for each in request.partitions
    )
    return kafka.ListOffsetsRequest(
        replica_id=request.replica_id,
        topics=tuple(kafka.ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic(wanted)),
    )


def _read_segments(
    response: kafka.ListOffsetsResponse, request: segments.ListSegmentOffsetsRequest, version: int
) -> segments.ListSegmentOffsetsResponse:
    return segments.ListSegmentOffsetsResponse(
        tuple(
            segments.SegmentOffsets(topic.name, each.partition_index, each.error_code, each.old_style_offsets)
            for topic in response.topics
            for each in topic.partitions
        )
    )


LIST_SEGMENT_OFFSETS = Translation(kafka.ListOffsetsRequest, always(0, 0), _write_segments, _read_segments)


def _write_epochs(request: native.OffsetForLeaderEpochRequest, version: int) -> kafka.OffsetForLeaderEpochRequest:
    wanted = (
        (
            each.topic,
            kafka.OffsetForLeaderPartition(
                partition=each.partition,
                current_leader_epoch=each.current_leader_epoch,
                leader_epoch=each.leader_epoch,
            ),
        )
        for each in request.partitions
    )
    return kafka.OffsetForLeaderEpochRequest(
        replica_id=request.replica_id,
        topics=tuple(kafka.OffsetForLeaderTopic(topic=name, partitions=parts) for name, parts in by_topic(wanted)),
    )


def _read_epochs(
    response: kafka.OffsetForLeaderEpochResponse, request: native.OffsetForLeaderEpochRequest, version: int
) -> native.OffsetForLeaderEpochResponse:
    return native.OffsetForLeaderEpochResponse(
        tuple(
            native.EpochEndOffset(topic.topic, each.partition, each.error_code, each.leader_epoch, each.end_offset)
            for topic in response.topics
            for each in topic.partitions
        )
    )


OFFSET_FOR_LEADER_EPOCH = Translation(kafka.OffsetForLeaderEpochRequest, always(2, 4), _write_epochs, _read_epochs)
