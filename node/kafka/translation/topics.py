"""CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from node.kafka.calls import Call, NativeHandler, Outcome, answer_to, converted
from node.kafka.topic_names import TopicNames
from tidelog.errors import (
    BrokerError,
    InvalidConfigError,
    InvalidReplicaAssignmentError,
    InvalidRequestError,
    UnknownTopicIdError,
)
from tidelog.protocol import admin_messages as admin
from tidelog.protocol import messages as native
from tidelog.protocol import partition_messages as partitions
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.messages.topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.protocol.kafka.primitives import ZERO_UUID, uuid_from_text, uuid_to_text

#: The first version of CreateTopics whose response has the settings of the new topics.
_CONFIGS_OF_NEW_TOPICS = 5
#: The first version of DeleteTopics that names topics by id.
_TOPIC_IDS = 6


#: Returns a topic's effective settings, given the settings that the topic itself has.
TopicConfigs = Callable[[Mapping[str, str]], Iterable[admin.ConfigEntry]]


class TopicTranslation:
    """The translations of this module; `handle` is the broker's own handler.

    topic_configs   returns a topic's effective settings, given the settings that the topic itself has
    """

    def __init__(self, handle: NativeHandler, names: TopicNames, topic_configs: TopicConfigs) -> None:
        self._handle = handle
        self._names = names
        self._topic_configs = topic_configs

    # --- CreateTopics --------------------------------------------------------------------------------

    async def create_topics(self, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
        """Create topics, or only check them if the request says so.

        From version 5 on, the response has the settings that each topic has, or would have.
        """
        refused: dict[str, BrokerError] = {}
        wanted: list[native.NewTopic] = []
        for topic in request.topics:
            try:
                wanted.append(_new_topic(topic))
            except BrokerError as error:
                refused[topic.name] = error
        if refused:
            await self._raise_unless_controller(call)
            wanted = [each for each in wanted if each.name not in refused]
        response: native.CreateTopicsResponse = await answer_to(
            self._handle,
            native.CreateTopicsRequest(tuple(wanted), request.timeout_ms, request.validate_only),
            call,
        )
        created = {each.name: each for each in response.topics}
        own = {topic.name: topic.configs or {} for topic in wanted}
        return CreateTopicsResponse(
            topics=tuple(
                _not_created(name, refused[name])
                if name in refused
                else self._created(created[name], own[name], call.version)
                for name in dict.fromkeys(topic.name for topic in request.topics)
            )
        )

    def _created(self, outcome: native.CreatedTopic, own: Mapping[str, str], version: int) -> CreatableTopicResult:
        has_configs = version >= _CONFIGS_OF_NEW_TOPICS and not outcome.error_code
        return CreatableTopicResult(
            name=outcome.name,
            topic_id=uuid_from_text(outcome.topic_id),
            error_code=outcome.error_code,
            error_message=outcome.error_message,
            num_partitions=outcome.num_partitions,
            replication_factor=outcome.replication_factor,
            configs=tuple(map(_config_of_new_topic, self._topic_configs(own))) if has_configs else (),
        )

    async def _raise_unless_controller(self, call: Call) -> None:
        """Raise NotControllerError if this broker is not the controller, before a topic is refused for its own errors.

        A client repeats the request at the controller only if this error comes for all topics. The request that lists
        no reassignments has no other effect than this check.
        """
        await answer_to(self._handle, partitions.ListPartitionReassignmentsRequest(()), call)

    @staticmethod
    def create_topics_error(request: CreateTopicsRequest, error: BrokerError, version: int) -> CreateTopicsResponse:
        """Return the response in which every topic has this error."""
        return CreateTopicsResponse(topics=tuple(_not_created(topic.name, error) for topic in request.topics))

    # --- DeleteTopics --------------------------------------------------------------------------------

    async def delete_topics(self, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
        """Delete topics, from version 6 on by name or by id.

        The controller compares the ids again, because a topic of the same name may have been created meanwhile.
        """
        topics = _topics_to_delete(request, call.version)
        wanted, refused = self._names_to_delete(topics)
        if refused:
            await self._raise_unless_controller(call)
        ids = {name: uuid_from_text(self._names.id_of(name)) for name in wanted.values()}
        response: native.DeleteTopicsResponse = await answer_to(
            self._handle,
            native.DeleteTopicsRequest(
                tuple(wanted.values()),
                request.timeout_ms,
                {name: uuid_to_text(each.topic_id) for each, name in wanted.items() if each.topic_id != ZERO_UUID},
            ),
            call,
        )
        deleted = {each.name: each for each in response.topics}
        results = []
        for each in topics:
            if each in refused:
                results.append(_not_deleted(each, refused[each]))
                continue
            name = wanted[each]
            results.append(
                DeletableTopicResult(
                    name=name,
                    topic_id=ids[name] if each.topic_id == ZERO_UUID else each.topic_id,
                    error_code=deleted[name].error_code,
                    error_message=deleted[name].error_message,
                )
            )
        return DeleteTopicsResponse(responses=tuple(results))

    def _names_to_delete(
        self, topics: list[DeleteTopicState]
    ) -> tuple[dict[DeleteTopicState, str], dict[DeleteTopicState, BrokerError]]:
        """Return the names of the topics that can be deleted, and the errors of the others."""
        names: dict[DeleteTopicState, str] = {}
        refused: dict[DeleteTopicState, BrokerError] = {}
        for topic in topics:
            try:
                names[topic] = self._name_to_delete(topic)
            except BrokerError as error:
                refused[topic] = error
        counts = Counter(names.values())
        wanted = {topic: name for topic, name in names.items() if counts[name] == 1}
        for topic, name in names.items():
            if topic not in wanted:
                refused[topic] = InvalidRequestError(f"the request names topic {name!r} both by its name and by its id")
        return wanted, refused

    def _name_to_delete(self, topic: DeleteTopicState) -> str:
        if topic.topic_id == ZERO_UUID:
            if topic.name is None:
                raise InvalidRequestError("a topic has neither a name nor an id")
            return topic.name
        if topic.name is not None:
            raise InvalidRequestError(f"topic {topic.name!r} has an id too; only one of them is allowed")
        name = self._names.name_of(uuid_to_text(topic.topic_id))
        if name is None:
            raise UnknownTopicIdError(f"no topic has the id {uuid_to_text(topic.topic_id)}")
        return name

    @staticmethod
    def delete_topics_error(request: DeleteTopicsRequest, error: BrokerError, version: int) -> DeleteTopicsResponse:
        """Return the response in which every topic has this error."""
        named = (DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in request.topic_names)
        return DeleteTopicsResponse(responses=tuple(_not_deleted(each, error) for each in (*request.topics, *named)))

    # --- CreatePartitions ----------------------------------------------------------------------------

    def create_partitions(self, request: CreatePartitionsRequest, call: Call) -> Outcome:
        """Add partitions to topics."""
        outcome = self._handle(
            partitions.CreatePartitionsRequest(
                tuple(map(_new_partitions, request.topics)), request.timeout_ms, request.validate_only
            ),
            call.context,
        )

        def convert(response: partitions.CreatePartitionsResponse) -> CreatePartitionsResponse:
            return CreatePartitionsResponse(
                results=tuple(
                    CreatePartitionsTopicResult(
                        name=each.name, error_code=each.error_code, error_message=each.error_message
                    )
                    for each in response.topics
                )
            )

        return converted(outcome, convert)

    @staticmethod
    def create_partitions_error(
        request: CreatePartitionsRequest, error: BrokerError, version: int
    ) -> CreatePartitionsResponse:
        """Return the response in which every topic has this error."""
        return CreatePartitionsResponse(
            results=tuple(
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=str(error))
                for topic in request.topics
            )
        )

    # --- DeleteRecords -------------------------------------------------------------------------------

    def delete_records(self, request: DeleteRecordsRequest, call: Call) -> Outcome:
        """Delete the records below an offset of each partition."""
        wanted = tuple(
            admin.DeleteRecordsPartition(topic.name, each.partition_index, each.offset)
            for topic in request.topics
            for each in topic.partitions
        )
        outcome = self._handle(admin.DeleteRecordsRequest(wanted, request.timeout_ms), call.context)

        def convert(response: admin.DeleteRecordsResponse) -> DeleteRecordsResponse:
            return _records_deleted(
                (each.topic, each.partition, each.low_watermark, each.error_code) for each in response.partitions
            )

        return converted(outcome, convert)

    @staticmethod
    def delete_records_error(request: DeleteRecordsRequest, error: BrokerError, version: int) -> DeleteRecordsResponse:
        """Return the response in which every partition has this error."""
        return _records_deleted(
            (topic.name, each.partition_index, -1, error.code) for topic in request.topics for each in topic.partitions
        )


def _new_topic(topic: CreatableTopic) -> native.NewTopic:
    assignment = {each.partition_index: each.broker_ids for each in topic.assignments}
    if len(assignment) < len(topic.assignments):
        raise InvalidReplicaAssignmentError(f"topic {topic.name!r}: the assignment names a partition twice")
    configs: dict[str, str] = {}
    for config in topic.configs:
        if config.value is None:
            raise InvalidConfigError(f"topic {topic.name!r}: {config.name} has no value")
        configs[config.name] = config.value
    return native.NewTopic(
        topic.name, topic.num_partitions, topic.replication_factor, assignment or None, configs or None
    )


def _config_of_new_topic(entry: admin.ConfigEntry) -> CreatableTopicConfigs:
    return CreatableTopicConfigs(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
    )


def _not_created(name: str, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def _topics_to_delete(request: DeleteTopicsRequest, version: int) -> list[DeleteTopicState]:
    """Return the topics without repetitions."""
    if version >= _TOPIC_IDS:
        return list(dict.fromkeys(request.topics))
    return [DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in dict.fromkeys(request.topic_names)]


def _not_deleted(topic: DeleteTopicState, error: BrokerError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=str(error)
    )


def _new_partitions(topic: CreatePartitionsTopic) -> partitions.NewPartitions:
    """Number the new partitions: Kafka lists the replicas of the last ones, without numbers."""
    if topic.assignments is None:
        return partitions.NewPartitions(topic.name, topic.count)
    first = topic.count - len(topic.assignments)
    assignment = {number: each.broker_ids for number, each in enumerate(topic.assignments, first)}
    return partitions.NewPartitions(topic.name, topic.count, assignment)


def _records_deleted(results: Iterable[tuple[str, int, int, int]]) -> DeleteRecordsResponse:
    found = (
        (topic, DeleteRecordsPartitionResult(partition_index=number, low_watermark=offset, error_code=error_code))
        for topic, number, offset, error_code in results
    )
    return DeleteRecordsResponse(
        topics=tuple(DeleteRecordsTopicResult(name=name, partitions=parts) for name, parts in by_topic(found))
    )
