"""Produce and Fetch. Record bytes pass through this file untouched in both directions."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.model import Buffer
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.client.translation.committed_records import CommittedRecords
from tidelog.protocol.kafka.client.translation.translation import Translation, always, raise_error_of
from tidelog.protocol.kafka.messages import records as kafka
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_from_text
from tidelog.protocol.kafka.schema import Versions
from tidelog.records.aborted import AbortedTransaction

#: The first version of Fetch that names topics by id.
_TOPIC_IDS = 13
_FETCH_BY_NAME, _FETCH = Versions(4, _TOPIC_IDS - 1), Versions(4, 17)


def _write_produce(request: native.ProduceRequest, version: int) -> kafka.ProduceRequest:
    batches = (
        (each.topic, kafka.PartitionProduceData(index=each.partition, records=each.records))
        for each in request.partitions
    )
    return kafka.ProduceRequest(
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=tuple(kafka.TopicProduceData(name=name, partition_data=parts) for name, parts in by_topic(batches)),
    )


def _read_produce(
    response: kafka.ProduceResponse, request: native.ProduceRequest, version: int
) -> native.ProduceResponse:
    return native.ProduceResponse(
        tuple(
            native.ProducePartitionResponse(
                topic.name,
                each.index,
                each.error_code,
                each.base_offset,
                each.log_append_time_ms,
                each.log_start_offset,
                each.error_message,
                tuple(
                    native.RecordError(error.batch_index, error.batch_index_error_message)
                    for error in each.record_errors
                ),
            )
            for topic in response.responses
            for each in topic.partition_responses
        )
    )


PRODUCE = Translation(kafka.ProduceRequest, always(3, 11), _write_produce, _read_produce)


def _fetch_versions(request: native.FetchRequest) -> Versions:
    """Name topics by id only if all ids are known, because one request cannot do both."""
    return _FETCH if all(each.topic_id for each in request.partitions) else _FETCH_BY_NAME


def _write_fetch(request: native.FetchRequest, version: int) -> kafka.FetchRequest:
    by_id = version >= _TOPIC_IDS
    wanted = (
        (
            (each.topic, each.topic_id),
            kafka.FetchPartition(
                partition=each.partition,
                current_leader_epoch=each.current_leader_epoch,
                fetch_offset=each.fetch_offset,
                partition_max_bytes=each.partition_max_bytes,
            ),
        )
        for each in request.partitions
    )
    return kafka.FetchRequest(
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        topics=tuple(
            kafka.FetchTopic(
                topic="" if by_id else name, topic_id=uuid_from_text(topic_id) if by_id else ZERO_UUID, partitions=parts
            )
            for (name, topic_id), parts in by_topic(wanted)
        ),
    )


def _read_fetch(response: kafka.FetchResponse, request: native.FetchRequest, version: int) -> native.FetchResponse:
    raise_error_of(response)
    names = _names(request) if version >= _TOPIC_IDS else {}
    return native.FetchResponse(
        tuple(
            _read_partition(names.get(topic.topic_id, "") if names else topic.topic, each)
            for topic in response.responses
            for each in topic.partitions
        )
    )


def _read_partition(topic: str, data: kafka.PartitionData) -> native.FetchPartitionResponse:
    values = (
        topic,
        data.partition_index,
        data.error_code,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        _received(data.records),
    )
    if not data.aborted_transactions:
        return native.FetchPartitionResponse(*values)
    aborted = (AbortedTransaction(each.producer_id, each.first_offset) for each in data.aborted_transactions)
    return CommittedRecords(*values, tuple(aborted))


def _names(request: native.FetchRequest) -> Mapping[bytes, str]:
    """Return the topics of a request that names them by id."""
    return {uuid_from_text(topic_id): topic for topic, topic_id in {(p.topic, p.topic_id) for p in request.partitions}}


def _received(records: object) -> Buffer | None:
    # A decoded response has no stored bytes.
    assert records is None or isinstance(records, bytes | bytearray | memoryview)
    return records or None


FETCH = Translation(kafka.FetchRequest, _fetch_versions, _write_fetch, _read_fetch)
