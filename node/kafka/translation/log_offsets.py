"""ListOffsets and OffsetForLeaderEpoch: positions in the log by time and by leader epoch."""

from __future__ import annotations

from collections.abc import Iterable

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from tidelog.errors import BrokerError, UnsupportedVersionError
from tidelog.model import CONSUMER_REPLICA_ID, EARLIEST_TIMESTAMP, MAX_TIMESTAMP
from tidelog.protocol import list_offsets_v0_messages as segments
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.messages.log_offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidelog.protocol.kafka.schema import Response

#: The start of the log on this broker's disks (KIP-405). Without tiered storage that is the start of the log.
_EARLIEST_LOCAL = -4
#: The last offset in tiered storage (KIP-1005), which no log has here.
_LATEST_TIERED = -5
#: The first version that returns the leader epoch of the found record.
_LEADER_EPOCHS = 4
#: The first version that knows each special timestamp; earlier ones know only the start and the end.
_KNOWN_FROM = {MAX_TIMESTAMP: 7, _EARLIEST_LOCAL: 8, _LATEST_TIERED: 9}


class LogOffsetTranslation:
    """The translations of this module; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler) -> None:
        self._handle = handle

    def list_offsets(self, request: ListOffsetsRequest, call: Call) -> Outcome:
        """Look up offsets by time. Version 0 looks them up by the times of segments, as Kafka's first versions did.

        From version 1 on, a partition with a special timestamp that the request's version does not have gets
        UNSUPPORTED_VERSION. The last tiered offset is −1 in every partition that this broker leads. A client that
        states the id of a replica sees what consumers see: some versions of kafka-python send 0, and brokers replicate
        over their own protocol.
        """
        replica_id = min(request.replica_id, CONSUMER_REPLICA_ID)
        if call.version == 0:
            return self._list_segment_offsets(request, replica_id, call)
        known: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
        tiered: set[tuple[str, int]] = set()
        wanted: list[native.ListOffsetsPartition] = []
        for topic in request.topics:
            for each in topic.partitions:
                timestamp, key = each.timestamp, (topic.name, each.partition_index)
                if _KNOWN_FROM.get(timestamp, 0) > call.version or timestamp < _LATEST_TIERED:
                    known[key] = _without_offset(each.partition_index, UnsupportedVersionError.code)
                else:
                    if timestamp == _LATEST_TIERED:
                        tiered.add(key)
                    timestamp = EARLIEST_TIMESTAMP if timestamp in (_EARLIEST_LOCAL, _LATEST_TIERED) else timestamp
                    wanted.append(
                        native.ListOffsetsPartition(
                            topic.name, each.partition_index, timestamp, each.current_leader_epoch
                        )
                    )
        outcome = self._handle(
            native.ListOffsetsRequest(tuple(wanted), replica_id, request.isolation_level), call.context
        )

        def convert(response: native.ListOffsetsResponse) -> Response:
            found = [
                (
                    each.topic,
                    _without_offset(each.partition, each.error_code)
                    if (each.topic, each.partition) in tiered
                    else ListOffsetsPartitionResponse(
                        partition_index=each.partition,
                        error_code=each.error_code,
                        timestamp=each.timestamp,
                        offset=each.offset,
                        leader_epoch=each.leader_epoch if call.version >= _LEADER_EPOCHS else -1,
                    ),
                )
                for each in response.partitions
            ]
            return _listed([*found, *((topic, answer) for (topic, _), answer in known.items())])

        return converted(outcome, convert)

    def _list_segment_offsets(self, request: ListOffsetsRequest, replica_id: int, call: Call) -> Outcome:
        wanted = tuple(
            segments.SegmentOffsetsPartition(
                topic.name, each.partition_index, each.timestamp, each.max_num_offsets, each.current_leader_epoch
            )
            for topic in request.topics
            for each in topic.partitions
        )

        def convert(response: segments.ListSegmentOffsetsResponse) -> Response:
            return _listed(
                (
                    each.topic,
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition, error_code=each.error_code, old_style_offsets=each.offsets
                    ),
                )
                for each in response.partitions
            )

        return converted(self._handle(segments.ListSegmentOffsetsRequest(wanted, replica_id), call.context), convert)

    @staticmethod
    def list_offsets_error(request: ListOffsetsRequest, error: BrokerError, version: int) -> ListOffsetsResponse:
        """Return the response in which every partition has this error."""
        return _listed(
            (topic.name, _without_offset(each.partition_index, error.code))
            for topic in request.topics
            for each in topic.partitions
        )

    def offset_for_leader_epoch(self, request: OffsetForLeaderEpochRequest, call: Call) -> Outcome:
        """Return where leader epochs end in the leader's log."""
        wanted = tuple(
            native.EpochPartition(topic.topic, each.partition, each.current_leader_epoch, each.leader_epoch)
            for topic in request.topics
            for each in topic.partitions
        )

        def convert(response: native.OffsetForLeaderEpochResponse) -> Response:
            return _epoch_ends(
                (
                    each.topic,
                    EpochEndOffset(
                        error_code=each.error_code,
                        partition=each.partition,
                        leader_epoch=each.leader_epoch,
                        end_offset=each.end_offset,
                    ),
                )
                for each in response.partitions
            )

        return converted(self._handle(native.OffsetForLeaderEpochRequest(wanted), call.context), convert)

    @staticmethod
    def epoch_error(
        request: OffsetForLeaderEpochRequest, error: BrokerError, version: int
    ) -> OffsetForLeaderEpochResponse:
        """Return the response in which every partition has this error."""
        return _epoch_ends(
            (topic.topic, EpochEndOffset(error_code=error.code, partition=each.partition))
            for topic in request.topics
            for each in topic.partitions
        )


def _without_offset(partition: int, error_code: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=partition, error_code=error_code)


def _listed(answers: Iterable[tuple[str, ListOffsetsPartitionResponse]]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=tuple(ListOffsetsTopicResponse(name=name, partitions=parts) for name, parts in by_topic(answers))
    )


def _epoch_ends(answers: Iterable[tuple[str, EpochEndOffset]]) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=tuple(OffsetForLeaderTopicResult(topic=topic, partitions=parts) for topic, parts in by_topic(answers))
    )
