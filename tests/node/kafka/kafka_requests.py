"""Requests of a Kafka client to a broker in memory, through the bytes of Kafka's protocol in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cluster.state import LeaderAndEpoch
from node.kafka.calls import Call, KafkaApi, Later, NativeHandler
from node.kafka.translation.apis import kafka_apis
from node.kafka.translation.leaders import LatestLeader
from node.metadata.metadata_cache import MetadataCache
from node.net.client_connections import ClientConnection, ClientConnections, Traffic
from node.net.identity import Identity
from node.net.server import RequestContext
from node.replication.sessions.consumer_sessions import ConsumerSessions
from storage.configs.descriptions import describe_topic
from storage.configs.log_config import LogConfig
from tests.node.memory_node import Node
from tidelog.clock import Clock, SystemClock
from tidelog.errors import BrokerError
from tidelog.model import NO_LEADER, TopicPartition
from tidelog.protocol.kafka.codec import decode, encode
from tidelog.protocol.kafka.schema import Request, Response

CONTEXT = RequestContext(b"kafka-1", "a client", -1, -1, False, "KAFKA", "10.0.0.1", hears_failures=True)


def new_sessions() -> ConsumerSessions:
    """Return the fetch sessions of a broker on which no fetch waits for the end of its session."""
    return ConsumerSessions(on_end=lambda session: None)


def no_latest_leader(tp: TopicPartition) -> LeaderAndEpoch:
    """Return the latest leader that a broker knows of which no controller has told anything."""
    return LeaderAndEpoch(NO_LEADER, -1)


def apis_of(
    handle: NativeHandler,
    metadata: MetadataCache | None = None,
    clock: Clock | None = None,
    sessions: ConsumerSessions | None = None,
    has_lost: Callable[[int], bool] = lambda broker_id: False,
    latest_leader: LatestLeader = no_latest_leader,
) -> list[KafkaApi]:
    """Return the APIs of a broker whose file has no settings, in front of a handler of typed requests."""
    return kafka_apis(
        handle,
        metadata or MetadataCache("c"),
        clock or SystemClock(),
        new_sessions() if sessions is None else sessions,
        lambda configs: describe_topic(configs, lambda name: (), LogConfig()),
        has_lost,
        latest_leader,
        Identity("c", 1),
    )


def a_connection() -> ClientConnection:
    """Return a connection of a broker on which every topic exists."""
    return ClientConnections(SystemClock(), lambda name: name).add("KAFKA", ("10.0.0.1", 4711), Traffic())


async def ask(node: Node, request: Request, version: int) -> Any:
    """Send a request in this version to the broker's handlers, and return the response."""
    apis = apis_of(node.handlers.handle, node.metadata, sessions=node.purgatories.consumer_sessions)
    return await ask_one_of(apis, request, version)


async def ask_handler(handle: NativeHandler, request: Request, version: int) -> Any:
    """Send a request in this version to a handler of typed requests, and return the response."""
    return await ask_one_of(apis_of(handle), request, version)


async def ask_one_of(apis: Iterable[KafkaApi], request: Request, version: int) -> Any:
    api = next(each for each in apis if each.request is type(request))
    assert version in api.versions, "the version is offered"
    received = decode(type(request), version, encode(request, version))
    try:
        outcome = api.handle(received, Call(version, CONTEXT, a_connection()))
        if isinstance(outcome, Later):
            outcome = outcome.convert(await outcome.deferred)
        elif outcome is not None and not isinstance(outcome, Response):
            outcome = await outcome
    except BrokerError as error:
        outcome = api.error_response(received, error, version)
    assert outcome is not None, "every request but a Produce with acks=0 gets a response"
    assert type(outcome) is type(request).response
    return decode(type(outcome), version, encode(outcome, version))
