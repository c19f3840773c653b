"""A Kafka client of one broker, which keeps the broker's APIs between its requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from node.controller.controller_elector import ControllerElector
from node.handlers.configs import Configs
from node.kafka.calls import NativeHandler
from node.kafka.translation.leaders import LatestLeader
from node.metadata.auto_topic_creation import AutoTopicCreation
from node.metadata.metadata_cache import MetadataCache
from node.net.server import RequestContext
from node.replication.sessions.consumer_sessions import ConsumerSessions
from tests.node.controller_cluster import Broker
from tests.node.kafka.kafka_requests import apis_of, ask_one_of, no_latest_leader
from tests.node.topic_settings import MemoryBrokers
from tidelog.protocol import messages as native
from tidelog.protocol.control_messages import UpdateMetadataRequest
from tidelog.protocol.kafka.schema import Request
from tidelog.protocol.listeners import CLIENTS
from tidelog.protocol.messages import ApiKey


class KafkaClient:
    """A client of one broker, without a network. Unlike a real one it may use any version that is offered.

    before_each   called before each request while `hears_news` is true
    """

    hears_news = True

    def __init__(
        self,
        handle: NativeHandler,
        metadata: MetadataCache,
        before_each: Callable[[], None] = lambda: None,
        sessions: ConsumerSessions | None = None,
        latest_leader: LatestLeader = no_latest_leader,
    ) -> None:
        self._before_each = before_each
        self._apis = apis_of(handle, metadata, sessions=sessions, latest_leader=latest_leader)

    async def ask(self, request: Request, version: int) -> Any:
        """Return the response, as the version carries it, to a request as the version carries it."""
        if self.hears_news:
            self._before_each()
        return await ask_one_of(self._apis, request, version)


def client_of(broker: Broker, *, auto_create_at: ControllerElector | None = None) -> KafkaClient:
    """Return a client of a broker whose commands are carried out by its controller's part.

    The broker's metadata cache applies what the controller has sent by the time of each request. With `auto_create_at`
    missing topics are created there.
    """
    metadata = MetadataCache("c")
    applied = 0
    elector = broker.elector
    settings = replace(broker.settings, auto_create_topics_enable=auto_create_at is not None)
    controller = auto_create_at or elector
    automatic = AutoTopicCreation(
        settings, metadata, lambda asked: controller.topics.create_topics(asked), broker.clock
    )
    configs = Configs(MemoryBrokers(broker.settings), broker.zk_client.topic_configs, metadata, broker.clock)
    table: dict[ApiKey, Any] = {
        ApiKey.METADATA: lambda request, _: automatic.describe(request, CLIENTS),
        ApiKey.CREATE_TOPICS: lambda request, _: elector.topics.create_topics(request),
        ApiKey.DELETE_TOPICS: lambda request, _: elector.topics.delete_topics(request),
        ApiKey.CREATE_PARTITIONS: lambda request, _: elector.partitions.create_partitions(request),
        ApiKey.ELECT_LEADERS: lambda request, _: elector.partitions.elect_leaders(request),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda request, _: elector.partitions.alter_reassignments(request),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda request, _: elector.partitions.list_reassignments(request),
        ApiKey.DESCRIBE_CONFIGS: lambda request, _: configs.describe(request, -1),
        ApiKey.ALTER_CONFIGS: lambda request, _: configs.replace(request, -1),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda request, _: configs.alter(request, -1),
    }

    def handle(request: native.Request, context: RequestContext) -> Any:
        return table[request.api](request, context)

    def apply_news() -> None:
        nonlocal applied
        for sent in broker.requests[applied:]:
            if isinstance(sent, UpdateMetadataRequest):
                metadata.update(sent)
                metadata.set_brokers(sent.live_brokers, 0)
        applied = len(broker.requests)

    return KafkaClient(handle, metadata, apply_news)
