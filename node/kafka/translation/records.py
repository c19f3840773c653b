"""Produce and Fetch. Record bytes pass through untouched in both directions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from node.kafka.topic_names import TopicNames
from node.kafka.translation.leaders import LeaderHints
from node.metadata.metadata_cache import MetadataCache
from tidelog.errors import (
    BrokerError,
    InvalidRequestError,
    UnknownTopicIdError,
)
from tidelog.model import CONSUMER_REPLICA_ID
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.messages.records import (
    BatchIndexAndErrorMessage,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tidelog.protocol.kafka.primitives import uuid_to_text

#: The first version of Fetch that names topics by their ids.
_TOPIC_IDS = 13


class RecordTranslation:
    """The translations of Produce and Fetch; `handle` is the broker's own handler."""

    def __init__(self, handle: NativeHandler, metadata: MetadataCache, names: TopicNames) -> None:
        self._handle = handle
        self._metadata = metadata
        self._names = names

    # --- Produce -------------------------------------------------------------------------------------

    def produce(self, request: ProduceRequest, call: Call) -> Outcome:
        """Append the batches of a Produce request."""
        if request.transactional_id is not None:
            raise InvalidRequestError("transactions are not supported")
        partitions = tuple(
            native.ProducePartition(topic.name, each.index, b"" if each.records is None else each.records)
            for topic in request.topic_data
            for each in topic.partition_data
        )
        outcome = self._handle(native.ProduceRequest(request.acks, request.timeout_ms, partitions), call.context)
        return converted(outcome, lambda response: self._produced(response, call))

    def _produced(self, response: native.ProduceResponse, call: Call) -> ProduceResponse:
        hints = LeaderHints(self._metadata, call.context.listener)
        topics: defaultdict[str, list[PartitionProduceResponse]] = defaultdict(list)
        for each in response.partitions:
            topics[each.topic].append(
                PartitionProduceResponse(
                    index=each.partition,
                    error_code=each.error_code,
                    base_offset=each.base_offset,
                    log_append_time_ms=each.log_append_time_ms,
                    log_start_offset=each.log_start_offset,
                    record_errors=tuple(map(_record_error, each.record_errors)),
                    error_message=each.error_message,
                    **hints.of(each.topic, each.partition, each.error_code, call.version >= 10),
                )
            )
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(name=name, partition_responses=tuple(parts)) for name, parts in topics.items()
            ),
            node_endpoints=hints.endpoints,
        )

    @staticmethod
    def produce_refused(request: ProduceRequest, error: BrokerError) -> ProduceResponse:
        """Return the response in which every partition has this error."""
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(
                    name=topic.name,
                    partition_responses=tuple(
                        PartitionProduceResponse(
                            index=each.index, error_code=error.code, base_offset=-1, error_message=str(error)
                        )
                        for each in topic.partition_data
                    ),
                )
                for topic in request.topic_data
            )
        )

    # --- Fetch ---------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, call: Call) -> Outcome:
        """Read records. Only consumers may fetch here, because brokers replicate over their own protocol."""
        if request.replica_id != CONSUMER_REPLICA_ID or request.replica_state.replica_id != CONSUMER_REPLICA_ID:
            raise InvalidRequestError("followers do not fetch over Kafka's protocol")
        by_id = call.version >= _TOPIC_IDS
        names = (
            {topic.topic_id: self._names.name_of(uuid_to_text(topic.topic_id)) for topic in request.topics}
            if by_id
            else {}
        )
        unknown: list[tuple[bytes, int]] = []
        wanted: list[native.FetchPartition] = []
        for topic in request.topics:
            name = names[topic.topic_id] if by_id else topic.topic
            for each in topic.partitions:
                if name is None:
                    unknown.append((topic.topic_id, each.partition))
                    continue
                wanted.append(
                    native.FetchPartition(
                        name,
                        each.partition,
                        each.current_leader_epoch,
                        each.fetch_offset,
                        each.partition_max_bytes,
                        topic_id=uuid_to_text(topic.topic_id) if by_id else "",
                    )
                )
        ids = {name: topic_id for topic_id, name in names.items() if name is not None}
        wait_ms = 0 if unknown else request.max_wait_ms
        outcome = self._handle(
            native.FetchRequest(
                CONSUMER_REPLICA_ID,
                wait_ms,
                request.min_bytes,
                request.max_bytes,
                tuple(wanted),
                request.isolation_level,
            ),
            call.context,
        )
        return converted(outcome, lambda response: self._fetched(response, call, ids, unknown))

    def _fetched(
        self,
        response: native.FetchResponse,
        call: Call,
        ids: dict[str, bytes],
        unknown: Iterable[tuple[bytes, int]],
    ) -> FetchResponse:
        hints = LeaderHints(self._metadata, call.context.listener)
        topics: defaultdict[str, list[PartitionData]] = defaultdict(list)
        for each in response.partitions:
            topics[each.topic].append(
                PartitionData(
                    partition_index=each.partition,
                    error_code=each.error_code,
                    high_watermark=each.high_watermark,
                    last_stable_offset=each.last_stable_offset,
                    log_start_offset=each.log_start_offset,
                    aborted_transactions=None,
                    records=b"" if each.records is None else each.records,
                    **hints.of(each.topic, each.partition, each.error_code, call.version >= 12),
                )
            )
        found = [
            FetchableTopicResponse(
                topic=name if not ids else "", topic_id=ids.get(name, bytes(16)), partitions=tuple(parts)
            )
            for name, parts in topics.items()
        ]
        missing: defaultdict[bytes, list[PartitionData]] = defaultdict(list)
        for topic_id, partition in unknown:
            missing[topic_id].append(_failed(partition, UnknownTopicIdError.code))
        found += [FetchableTopicResponse(topic_id=key, partitions=tuple(parts)) for key, parts in missing.items()]
        return FetchResponse(responses=tuple(found), node_endpoints=hints.endpoints if call.version >= 16 else ())

    @staticmethod
    def fetch_refused(request: FetchRequest, error: BrokerError) -> FetchResponse:
        """Return the response that carries this error for the whole request, and for every partition."""
        return FetchResponse(
            error_code=error.code,
            responses=tuple(
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=tuple(_failed(each.partition, error.code) for each in topic.partitions),
                )
                for topic in request.topics
            ),
        )


def _record_error(error: native.RecordError) -> BatchIndexAndErrorMessage:
    return BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)


def _failed(partition: int, error_code: int) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=error_code, high_watermark=-1, aborted_transactions=None, records=b""
    )
