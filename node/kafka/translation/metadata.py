"""Metadata, DescribeTopicPartitions, FindCoordinator and DescribeCluster: where clients find brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

from node.kafka.calls import Call, NativeHandler, Outcome, answer_to, converted
from node.kafka.topic_names import TopicNames
from node.kafka.translation.encoded_topics import EncodedAs, EncodedTopics
from node.metadata.metadata_cache import MetadataCache
from storage.steps import SteppedWork
from tidelog.clock import Clock
from tidelog.errors import BrokerError, InvalidRequestError, UnknownTopicIdError
from tidelog.protocol import group_messages
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.extensions import OWN_SOFTWARE
from tidelog.protocol.kafka.messages.metadata import (
    Coordinator,
    Cursor,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_from_text, uuid_to_text
from tidelog.protocol.kafka.schema import Response

#: The first version of FindCoordinator that asks for several groups.
_SEVERAL_GROUPS = 4
#: The types of coordinators.
_GROUP, _TRANSACTION = 0, 1
#: TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Each client stops at this error and reports it, while librdkafka repeats the
#: request after any other one until its caller's timeout.
_NO_TRANSACTIONS = 53
#: The first version in which an empty list of topics means none, and null means all.
_NULL_MEANS_ALL = 1
#: The first version of Metadata that names topics by id. Versions 10 and 11 have the field, but no use for it.
_TOPIC_IDS = 12
#: `max.request.partition.size.limit`: the most partitions in one response of DescribeTopicPartitions.
_MAX_DESCRIBED_PARTITIONS = 2000


def _operations(*numbers: int) -> int:
    """Return these operations, numbered as Kafka's AclOperation, as one bit each."""
    return sum(1 << number for number in numbers)


#: What a client may do with a topic: READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
#: Without authorization, these are all operations that topics have.
_TOPIC_OPERATIONS = _operations(3, 4, 5, 6, 7, 8, 10, 11)
#: What a client may do with the cluster: CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and
#: IDEMPOTENT_WRITE.
_CLUSTER_OPERATIONS = _operations(5, 7, 8, 9, 10, 11, 12)
#: What a response says of operations if the client did not ask for them.
_NOT_ASKED = -(2**31)


#: A client that asks for metadata again after this time has lost a connection, or its metadata is old.
_PAUSE_MS = 1_000
#: How long such a client waits, because this broker may notice the loss of the same broker a moment later.
_NOTICE_MS = 10
#: How long it waits for other leaders, once this broker has noticed the loss.
_ELECTION_MS = 400
#: How long a broker that is not live any more is still listed.
_DEPARTED_MS = 10_000


class MetadataTranslation:
    """The translations of this module.

    handle     the broker's own handler
    has_lost   returns whether this broker has lost the connection to the broker of this id
    """

    def __init__(
        self,
        handle: NativeHandler,
        metadata: MetadataCache,
        names: TopicNames,
        clock: Clock,
        has_lost: Callable[[int], bool],
    ) -> None:
        self._handle = handle
        self._metadata = metadata
        self._topics = EncodedTopics(metadata)
        self._names = names
        self._clock = clock
        self._has_lost = has_lost

    # --- Metadata ------------------------------------------------------------------------------------

    def metadata(self, request: MetadataRequest, call: Call) -> Outcome:
        """Describe topics, by name or by id, with the brokers' addresses of the client's listener.

        Requests below version 4 allow the creation of topics, because they cannot forbid it.

        A client whose broker dies asks another broker within a millisecond. If the response named the dead leader,
        librdkafka would ask again a second later. So a client that asks again waits a moment for the election.
        """
        topics = request.topics or ()
        asks_all = request.topics is None or (call.version < _NULL_MEANS_ALL and not request.topics)
        if call.version < _TOPIC_IDS and any(each.name is None or each.topic_id != ZERO_UUID for each in topics):
            raise InvalidRequestError(f"Metadata version {call.version} names topics by name only")
        unknown: list[bytes] = []
        names: list[str] = []
        for topic in topics:
            if topic.name is not None:
                names.append(topic.name)
            elif (name := self._names.name_of(uuid_to_text(topic.topic_id))) is not None:
                names.append(name)
            else:
                unknown.append(topic.topic_id)
        asked = native.MetadataRequest(None if asks_all else tuple(names), request.allow_auto_topic_creation)
        if self._asks_again(names, call):
            return self._after_election(request, asked, unknown, call)
        outcome = self._handle(asked, call.context)
        assert isinstance(outcome, native.MetadataResponse), "metadata is in memory"
        return self._described(request, outcome, unknown, call)

    def _asks_again(self, names: list[str], call: Call) -> bool:
        """Return whether the request names topics after a pause of at least `_PAUSE_MS`, and note its time.

        The pause begins with the connection, or with its previous request that named topics.
        """
        if not names:
            return False
        now_ms, before_ms = self._clock.monotonic_ms(), call.client.metadata_ms
        call.client.metadata_ms = now_ms
        return now_ms - before_ms >= _PAUSE_MS

    async def _after_election(
        self, request: MetadataRequest, asked: native.MetadataRequest, unknown: Sequence[bytes], call: Call
    ) -> Response:
        """Return the response after `_NOTICE_MS`, or at once if the connection to a topic's leader is lost by now.

        While such a leader is lost, wait up to `_ELECTION_MS` for other leaders first.
        """
        names = asked.topics or ()
        await self._metadata.progress.until(lambda: self._is_leader_lost(names), _NOTICE_MS)
        await self._metadata.progress.until(lambda: not self._is_leader_lost(names), _ELECTION_MS)
        response: native.MetadataResponse = await answer_to(self._handle, asked, call)
        described = self._described(request, response, unknown, call)
        return described if isinstance(described, Response) else await described

    def _is_leader_lost(self, names: Iterable[str]) -> bool:
        topics = filter(None, map(self._metadata.topic, names))
        leaders = {state.leader for topic in topics for state in topic.partitions.values()}
        return any(map(self._has_lost, leaders))

    def _described(
        self, request: MetadataRequest, response: native.MetadataResponse, unknown: Sequence[bytes], call: Call
    ) -> Response | Awaitable[Response]:
        """Return the response in Kafka's protocol; later, if many partitions must be encoded.

        `unknown` are the ids of the request that no topic has.
        """
        on_topic = _TOPIC_OPERATIONS if request.include_topic_authorized_operations else _NOT_ASKED
        how = EncodedAs(call.context.listener, call.version, on_topic)
        encoding = SteppedWork(self._topics.array_of(response.topics, [_unknown_id(each) for each in unknown], how))
        encoding.resume()
        brokers = tuple(
            MetadataResponseBroker(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in (*response.brokers, *self._departed(call))
        )

        def described() -> MetadataResponse:
            return MetadataResponse(
                brokers=brokers,
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                topics=encoding.result,
                cluster_authorized_operations=(
                    _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_ASKED
                ),
            )

        async def described_later() -> MetadataResponse:
            while not encoding.finished:
                await asyncio.sleep(0)  # other requests run
                encoding.resume()
            return described()

        return described() if encoding.finished else described_later()

    def _departed(self, call: Call) -> list[native.BrokerAddress]:
        """Return the addresses of brokers that were live in the last `_DEPARTED_MS` and are not live now.

        librdkafka drops a broker that a response does not list. If the same response names another leader for its
        partitions, librdkafka sends their records a second later. Tidelog's own clients do not, and get the live
        brokers only, because they tell their users which brokers are live.
        """
        if call.client.software.name == OWN_SOFTWARE:
            return []
        return self._metadata.departed(self._clock.monotonic_ms() - _DEPARTED_MS, call.context.listener)

    @staticmethod
    def metadata_error(request: MetadataRequest, error: BrokerError, version: int) -> MetadataResponse:
        """Return the response in which every named topic has this error; without topics if the request asks for all."""
        topics = tuple(_topic_with_error(each.name or "", each.topic_id, error.code) for each in request.topics or ())
        return MetadataResponse(brokers=(), topics=topics)

    # --- DescribeTopicPartitions ---------------------------------------------------------------------

    def describe_topic_partitions(self, request: DescribeTopicPartitionsRequest, call: Call) -> Outcome:
        """Describe topics page by page, in the order of their names; no topics means all of them.

        The cursor is the first partition of the page. The lists of eligible leaders (KIP-966) are empty.
        """
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise InvalidRequestError(f"the cursor's partition {cursor.partition_index}: must be at least 0")
        names = tuple(sorted({topic.name for topic in request.topics}))
        if cursor is not None:
            names = tuple(name for name in names if name >= cursor.topic_name)
        asked = None if not request.topics else names
        outcome = self._handle(native.MetadataRequest(asked), call.context)
        limit = max(1, min(request.response_partition_limit, _MAX_DESCRIBED_PARTITIONS))
        return converted(outcome, lambda response: _page(response.topics, cursor, limit))

    @staticmethod
    def describe_topic_partitions_error(
        request: DescribeTopicPartitionsRequest, error: BrokerError, version: int
    ) -> DescribeTopicPartitionsResponse:
        """Return the response in which every named topic has this error."""
        return DescribeTopicPartitionsResponse(
            topics=tuple(
                DescribeTopicPartitionsResponseTopic(
                    error_code=error.code, name=topic.name, topic_id=ZERO_UUID, partitions=()
                )
                for topic in request.topics
            )
        )

    # --- FindCoordinator -----------------------------------------------------------------------------

    def find_coordinator(self, request: FindCoordinatorRequest, call: Call) -> Outcome:
        """Find the coordinators of groups.

        Transactional ids get TRANSACTIONAL_ID_AUTHORIZATION_FAILED, and keys of other types INVALID_REQUEST.
        """
        keys = _keys(request, call.version)
        if request.key_type != _GROUP:
            # One answer for each key, because a request without keys has no other place for the error.
            code, reason = _NO_TRANSACTIONS, "transactions are not supported"
            if request.key_type != _TRANSACTION:
                code, reason = InvalidRequestError.code, f"coordinators of type {request.key_type} are not supported"
            return _coordinators(
                [_no_coordinator(key, code, reason) for key in keys], several=call.version >= _SEVERAL_GROUPS
            )
        outcome = self._handle(group_messages.FindCoordinatorRequest(keys), call.context)

        def convert(response: group_messages.FindCoordinatorResponse) -> FindCoordinatorResponse:
            found = [
                Coordinator(
                    key=each.key,
                    node_id=each.broker_id,
                    host=each.host,
                    port=each.port,
                    error_code=each.error_code,
                    error_message=each.error_message,
                )
                for each in response.coordinators
            ]
            return _coordinators(found, several=call.version >= _SEVERAL_GROUPS)

        return converted(outcome, convert)

    @staticmethod
    def find_coordinator_error(
        request: FindCoordinatorRequest, error: BrokerError, version: int
    ) -> FindCoordinatorResponse:
        """Return the response in which every group has this error."""
        failed = [_no_coordinator(key, error.code, str(error)) for key in _keys(request, version)]
        return _coordinators(failed, several=version >= _SEVERAL_GROUPS)

    # --- DescribeCluster -----------------------------------------------------------------------------

    def describe_cluster(self, request: DescribeClusterRequest, call: Call) -> Outcome:
        """Describe the brokers that have the client's listener."""
        outcome = self._handle(native.MetadataRequest(()), call.context)
        allowed = _CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else _NOT_ASKED

        def convert(response: native.MetadataResponse) -> DescribeClusterResponse:
            return DescribeClusterResponse(
                error_code=0,
                error_message=None,
                cluster_id=response.cluster_id,
                controller_id=response.controller_id,
                brokers=tuple(
                    DescribeClusterBroker(broker_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
                    for each in response.brokers
                ),
                cluster_authorized_operations=allowed,
            )

        return converted(outcome, convert)

    @staticmethod
    def describe_cluster_error(
        request: DescribeClusterRequest, error: BrokerError, version: int
    ) -> DescribeClusterResponse:
        """Return the response that carries this error."""
        return DescribeClusterResponse(
            error_code=error.code, error_message=str(error), cluster_id="", controller_id=-1, brokers=()
        )


def _page(
    topics: tuple[native.TopicMetadata, ...], cursor: Cursor | None, limit: int
) -> DescribeTopicPartitionsResponse:
    """Return at most `limit` partitions from the cursor on. The next cursor names the first partition left out."""
    described: list[DescribeTopicPartitionsResponseTopic] = []
    following: Cursor | None = None
    for topic in topics:
        first = 0
        if cursor is not None:
            if topic.name < cursor.topic_name:
                continue
            if topic.name == cursor.topic_name:
                first = cursor.partition_index
        if not limit:
            following = Cursor(topic_name=topic.name, partition_index=first)
            break
        rest = topic.partitions[first:]
        described.append(
            DescribeTopicPartitionsResponseTopic(
                error_code=topic.error_code,
                name=topic.name,
                topic_id=uuid_from_text(topic.topic_id),
                is_internal=topic.is_internal,
                partitions=tuple(map(_described_partition, rest[:limit])),
                topic_authorized_operations=_TOPIC_OPERATIONS,
            )
        )
        if len(rest) > limit:
            following = Cursor(topic_name=topic.name, partition_index=first + limit)
            break
        limit -= len(rest)
    return DescribeTopicPartitionsResponse(topics=tuple(described), next_cursor=following)


def _described_partition(partition: native.PartitionMetadata) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=partition.error_code,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        # Java's AdminClient reads both lists without a check for null.
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=partition.offline_replicas,
    )


def _unknown_id(topic_id: bytes) -> MetadataResponseTopic:
    return _topic_with_error(None, topic_id, UnknownTopicIdError.code)


def _topic_with_error(name: str | None, topic_id: bytes, error_code: int) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error_code, name=name, topic_id=topic_id or ZERO_UUID, partitions=())


def _keys(request: FindCoordinatorRequest, version: int) -> tuple[str, ...]:
    return request.coordinator_keys if version >= _SEVERAL_GROUPS else (request.key,)


def _no_coordinator(key: str, error_code: int, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error_code, error_message=message)


def _coordinators(found: list[Coordinator], *, several: bool) -> FindCoordinatorResponse:
    if several:
        return FindCoordinatorResponse(coordinators=tuple(found))
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )
