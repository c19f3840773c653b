"""Produce and Fetch. Record bytes pass through this file untouched in both directions."""

from __future__ import annotations

from typing import cast

from node.kafka.calls import Call, NativeHandler, Outcome, converted
from node.kafka.old_requests import OldFormatPartition, ZstdFreePartition
from node.kafka.topic_names import TopicNames
from node.kafka.translation.leaders import LatestLeader, LeaderHints
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnection
from node.net.stored_fetch_partition import StoredFetchPartition
from node.replication.sessions.consumer_fetch import ConsumerFetch, ConsumerFetchResponse, check_limits
from node.replication.sessions.consumer_sessions import ConsumerSession, ConsumerSessions
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    FetchSessionIdNotFoundError,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpochError,
    InvalidRequestError,
    error_for,
)
from tidelog.model import CONSUMER_REPLICA_ID, Buffer, StoredBytes
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.by_topic import by_topic
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
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_to_text

#: The first version of Produce in which clients send record batches instead of message sets.
_BATCHES_IN_PRODUCE = 3
#: The first versions of Produce and Fetch whose records may be compressed with zstd (KIP-110).
_ZSTD_IN_PRODUCE, _ZSTD_IN_FETCH = 7, 10
#: Errors of a fetch session, which say nothing about partitions.
_SESSION_ERRORS = (FetchSessionIdNotFoundError, InvalidFetchSessionEpochError, FetchSessionTopicIdError)
#: The first versions of Fetch that name the new leader, and its address (KIP-951).
_LEADERS_IN_FETCH, _ADDRESSES_IN_FETCH = 12, 16
#: The first version of Produce that names the new leader and its address (KIP-951).
_LEADERS_IN_PRODUCE = 10


class RecordTranslation:
    """The translations of Produce and Fetch; `handle` is the broker's own handler."""

    def __init__(
        self,
        handle: NativeHandler,
        metadata: MetadataCache,
        names: TopicNames,
        clock: Clock,
        sessions: ConsumerSessions,
        latest_leader: LatestLeader,
    ) -> None:
        self._handle = handle
        self._metadata = metadata
        self._names = names
        self._clock = clock
        self._sessions = sessions
        self._latest_leader = latest_leader

    def _hints(self, call: Call, first_version: int) -> LeaderHints:
        return LeaderHints(self._metadata, self._latest_leader, call.context.listener, call.version >= first_version)

    # --- Produce -------------------------------------------------------------------------------------

    def produce(self, request: ProduceRequest, call: Call) -> Outcome:
        """Append the batches of a Produce request.

        With acks=0, raise the error of the first partition that failed, at once or when the outcome is awaited. The
        connection is closed then, as with Kafka, because the client learns of a new leader in no other way.
        """
        if request.transactional_id is not None:
            raise InvalidRequestError("transactions are not supported")
        written = call.client.written
        for topic in request.topic_data:
            if topic.name not in written:
                call.client.note_written(topic.name)
        partition_type = _partition_type(call.version)
        partitions = tuple(
            # Null records are refused in every version, unlike a message set without messages.
            native.ProducePartition(topic.name, each.index, b"")
            if each.records is None
            # A decoded request has no stored bytes.
            else partition_type(topic.name, each.index, cast(Buffer, each.records))
            for topic in request.topic_data
            for each in topic.partition_data
        )
        outcome = self._handle(native.ProduceRequest(request.acks, request.timeout_ms, partitions), call.context)
        if request.acks == 0:
            return converted(outcome, _raise_first)
        return converted(outcome, lambda response: self._produced(response, call))

    def _produced(self, response: native.ProduceResponse, call: Call) -> ProduceResponse:
        hints = self._hints(call, _LEADERS_IN_PRODUCE)
        produced = [
            (
                each.topic,
                PartitionProduceResponse(
                    index=each.partition,
                    error_code=each.error_code,
                    base_offset=each.base_offset,
                    log_append_time_ms=each.log_append_time_ms,
                    log_start_offset=each.log_start_offset,
                    record_errors=tuple(map(_record_error, each.record_errors)),
                    error_message=each.error_message,
                    **hints.note_leader(each.topic, each.partition, each.error_code),
                ),
            )
            for each in response.partitions
        ]
        return ProduceResponse(
            responses=tuple(
                TopicProduceResponse(name=name, partition_responses=parts) for name, parts in by_topic(produced)
            ),
            node_endpoints=hints.endpoints,
        )

    @staticmethod
    def produce_error(request: ProduceRequest, error: BrokerError, version: int) -> ProduceResponse:
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
        """Read records. Only consumers may fetch here, because brokers replicate over their own protocol.

        A fetch that names an unknown topic id does not wait for records, and that partition gets UNKNOWN_TOPIC_ID.
        """
        if request.replica_id != CONSUMER_REPLICA_ID or request.replica_state.replica_id != CONSUMER_REPLICA_ID:
            raise InvalidRequestError("followers do not fetch over Kafka's protocol")
        check_limits(request)  # before the session changes
        self._note_read(request, call.client)
        session = self._sessions.of_fetch(request, call.version, self._clock.monotonic_ms())
        self._find_topics(session)
        fetch = ConsumerFetch(
            CONSUMER_REPLICA_ID,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            (),
            request.isolation_level,
            session=session,
            reads_zstd=call.version >= _ZSTD_IN_FETCH,
        )
        return converted(self._handle(fetch, call.context), lambda response: self._fetched(response, call, session))

    def _find_topics(self, session: ConsumerSession) -> None:
        topics: dict[str | bytes, tuple[str, str]] = {}
        for member in session.active():
            topic, _ = member.key
            if topic not in topics:
                topics[topic] = self._id_and_name(topic)
            self._sessions.set_topic(session, member, *topics[topic])

    def _id_and_name(self, topic: str | bytes) -> tuple[str, str]:
        """Return the topic's id ("" if the request names topics by name), and its name ("" if the id is unknown)."""
        if isinstance(topic, str):
            return "", topic
        topic_id = uuid_to_text(topic)
        return topic_id, self._names.name_of(topic_id) or ""

    def _note_read(self, request: FetchRequest, client: ClientConnection) -> None:
        """Note the topics that the request names. The other topics of a fetch session are not noted again."""
        read = client.read
        for topic in request.topics:
            key = topic.topic or topic.topic_id
            if key not in read:
                client.note_read(key, topic.topic or self._names.name_of(uuid_to_text(topic.topic_id)))

    def _fetched(self, response: ConsumerFetchResponse, call: Call, session: ConsumerSession) -> FetchResponse:
        """Return the response, which has all partitions if the session is not kept, else those with news.

        The offsets in it are noted in the session.
        """
        hints = self._hints(call, _LEADERS_IN_FETCH)
        news: list[tuple[str | bytes, PartitionData]] = []
        for member, each in zip(response.members, response.partitions, strict=True):
            records, error_code = _records(each), each.error_code
            offsets = (each.high_watermark, each.log_start_offset)
            if session.is_kept and not member.has_news(offsets, error_code, len(records)):
                continue
            data = PartitionData(
                partition_index=each.partition,
                error_code=error_code,
                high_watermark=each.high_watermark,
                last_stable_offset=each.last_stable_offset,
                log_start_offset=each.log_start_offset,
                aborted_transactions=None,
                records=records,
                **hints.note_leader(each.topic, each.partition, error_code),
            )
            news.append((member.key[0], data))
        return FetchResponse(
            session_id=session.id,
            responses=tuple(
                FetchableTopicResponse(
                    topic=topic if isinstance(topic, str) else "",
                    topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
                    partitions=parts,
                )
                for topic, parts in by_topic(news)
            ),
            node_endpoints=hints.endpoints if call.version >= _ADDRESSES_IN_FETCH else (),
        )

    @staticmethod
    def fetch_error(request: FetchRequest, error: BrokerError, version: int) -> FetchResponse:
        """Return the response that carries this error for the whole request, and for every partition.

        An error of the session says nothing about partitions.
        """
        if isinstance(error, _SESSION_ERRORS):
            return FetchResponse(error_code=error.code, responses=())
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


def _partition_type(version: int) -> type[native.ProducePartition]:
    if version >= _ZSTD_IN_PRODUCE:
        return native.ProducePartition
    return ZstdFreePartition if version >= _BATCHES_IN_PRODUCE else OldFormatPartition


def _raise_first(failures: native.ProduceResponse) -> None:
    """Raise the error of the first partition that failed, if there is one."""
    for failed in failures.partitions:
        error = error_for(failed.error_code, failed.error_message or "")
        assert error is not None, "only failures are in the answer"
        raise error


def _records(partition: native.FetchPartitionResponse) -> Buffer | StoredBytes:
    if isinstance(partition, StoredFetchPartition) and partition.stored is not None:
        return partition.stored
    return b"" if partition.records is None else partition.records


def _record_error(error: native.RecordError) -> BatchIndexAndErrorMessage:
    return BatchIndexAndErrorMessage(batch_index=error.batch_index, batch_index_error_message=error.message)


def _failed(partition: int, error_code: int) -> PartitionData:
    return PartitionData(
        partition_index=partition, error_code=error_code, high_watermark=-1, aborted_transactions=None, records=b""
    )
