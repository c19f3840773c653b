"""DescribeClients: describe the connections of the broker's clients, for `tidelog clients`."""

from __future__ import annotations

from collections.abc import Collection

from node.net.client_connections import ClientConnection, ClientConnections, Topics
from tidelog.protocol.operator_messages import (
    ApiUse,
    ConnectionReport,
    DescribeClientsRequest,
    DescribeClientsResponse,
    TopicUse,
)

#: Connections that one request examines, so that it takes some milliseconds and its answer some hundred kilobytes.
MAX_EXAMINED = 250
#: Topics that an answer names for each direction of a connection.
MAX_NAMED_TOPICS = 50


def describe_clients(
    clients: ClientConnections, request: DescribeClientsRequest, now_ms: int
) -> DescribeClientsResponse:
    """Return those of the next MAX_EXAMINED connections after the number `request.after` that use a named topic.

    Without named topics all of them are returned, but none whose peer has gone. The response has the number to go on
    after; −1 if no connection follows.
    """
    examined, following = clients.after(request.after, MAX_EXAMINED)
    wanted = set(request.topics)
    chosen = [each for each in examined if not wanted or _uses(each, wanted)]
    return DescribeClientsResponse(0, tuple(_report(each, now_ms) for each in chosen), following)


def _uses(client: ClientConnection, wanted: Collection[str]) -> bool:
    return any(name in wanted for topics in (client.read, client.written) for name in topics.values())


def _report(client: ClientConnection, now_ms: int) -> ConnectionReport:
    is_complete = not client.omits_topics
    return ConnectionReport(
        client.client_id,
        # Without a version, the software is only a name for the metrics.
        client.software.name if client.software.version else "",
        client.software.version,
        client.host,
        client.port,
        client.listener,
        tuple(ApiUse(key >> 16, key & 0xFFFF, count) for key, count in sorted(client.requests.items())),
        _topic_use(client.read, is_complete),
        _topic_use(client.written, is_complete),
        client.traffic.received_bytes,
        client.traffic.sent_bytes,
        now_ms - client.opened_ms,
        now_ms - client.traffic.last_active_ms,
    )


def _topic_use(topics: Topics, is_complete: bool) -> TopicUse:
    names = sorted(set(topics.values()))
    return TopicUse(tuple(names[:MAX_NAMED_TOPICS]), len(names), is_complete)
