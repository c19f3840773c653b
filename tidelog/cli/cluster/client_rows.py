"""Make rows of connections: one row for each client id, software and address, or one for each connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tidelog.cli.terminal.long_tables import Kind, Row
from tidelog.cli.terminal.table import Quantity
from tidelog.model import Endpoint
from tidelog.protocol.messages import ApiKey
from tidelog.protocol.operator_messages import ConnectionReport, TopicUse
from tidelog.quantities import format_duration, format_size

#: A connection with the broker at which it ends.
Connection = tuple[int, ConnectionReport]

_TRAFFIC = ("reads", "writes", "received", "sent", "age", "idle")
CLIENTS = Kind(
    ("client", "software", "address", "brokers", "connections", *_TRAFFIC), noun="client", sums=("connections",)
)
CONNECTIONS = Kind(("client", "software", "address", "broker", "listener", *_TRAFFIC, "requests"), noun="connection")
#: Topics that a row names.
_SHOWN_TOPICS = 3
#: APIs of Kafka's protocol that Tidelog's own does not have.
_KAFKA_APIS = {33: "AlterConfigs", 60: "DescribeCluster", 75: "DescribeTopicPartitions"}


def api_name(api_key: int) -> str:
    """Return the name of an API as Kafka writes it: ListOffsets."""
    if api_key in ApiKey.__members__.values():
        return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))
    return _KAFKA_APIS.get(api_key, f"Api{api_key}")


def grouped(connections: Iterable[Connection]) -> list[list[Connection]]:
    """Return the connections by client id, software and host, in the order of these texts."""
    groups: defaultdict[tuple[str, ...], list[Connection]] = defaultdict(list)
    for broker, each in connections:
        groups[each.client_id, each.software_name, each.software_version, each.host].append((broker, each))
    return [groups[key] for key in sorted(groups)]


def summary_row(group: Sequence[Connection]) -> Row:
    """Return the row of one client: the sums of its connections, the oldest age and the shortest idle time.

    The row with the most connections is the worst one.
    """
    first = group[0][1]
    reports = [each for _, each in group]
    cells = (
        first.client_id or None,
        _software(first),
        first.host or None,
        ",".join(map(str, sorted({broker for broker, _ in group}))),
        len(group),
        _topics([each.reads for each in reports]),
        _topics([each.writes for each in reports]),
        Quantity(format_size(sum(each.received_bytes for each in reports))),
        Quantity(format_size(sum(each.sent_bytes for each in reports))),
        Quantity(format_duration(max(each.age_ms for each in reports))),
        Quantity(format_duration(min(each.idle_ms for each in reports))),
    )
    return Row(cells, weight=len(group))


def connection_rows(group: Iterable[Connection]) -> Iterator[Row]:
    """Yield the row of each connection of one client, the oldest first."""
    for broker, each in sorted(group, key=lambda pair: -pair[1].age_ms):
        cells = (
            each.client_id or None,
            _software(each),
            _address(each),
            broker,
            each.listener,
            _topics([each.reads]),
            _topics([each.writes]),
            Quantity(format_size(each.received_bytes)),
            Quantity(format_size(each.sent_bytes)),
            Quantity(format_duration(each.age_ms)),
            Quantity(format_duration(each.idle_ms)),
            ",".join(f"{api_name(use.api_key)}/{use.version}:{use.requests}" for use in each.apis) or None,
        )
        yield Row(cells)


def as_objects(connections: Iterable[Connection]) -> list[Mapping[str, object]]:
    """Return an object for each connection, in one list; those of one client are next to each other."""
    return [_as_object(broker, each) for group in grouped(connections) for broker, each in group]


def _as_object(broker: int, each: ConnectionReport) -> Mapping[str, object]:
    return {
        "client_id": each.client_id,
        "software_name": each.software_name or None,
        "software_version": each.software_version or None,
        "host": each.host or None,
        "port": each.port if each.port >= 0 else None,
        "broker": broker,
        "listener": each.listener,
        "reads": _topics_as_object(each.reads),
        "writes": _topics_as_object(each.writes),
        "received_bytes": each.received_bytes,
        "sent_bytes": each.sent_bytes,
        "age_ms": each.age_ms,
        "idle_ms": each.idle_ms,
        "requests": [
            {"api": api_name(use.api_key), "api_key": use.api_key, "version": use.version, "count": use.requests}
            for use in each.apis
        ],
    }


def _topics_as_object(used: TopicUse) -> Mapping[str, object]:
    return {"topics": list(used.topics), "count": used.count, "complete": used.complete}


def _software(each: ConnectionReport) -> str | None:
    return f"{each.software_name}/{each.software_version}" if each.software_name else None


def _address(each: ConnectionReport) -> str | None:
    return str(Endpoint(each.host, each.port)) if each.port >= 0 else each.host or None


def _topics(uses: Sequence[TopicUse]) -> str | None:
    """Return some of the topics and how many there are besides: `a,b,c,+47`. A `+` without a number: some more.

    If an answer has left out names, the number is the least that there can be, because connections may use the same
    topics.
    """
    names = sorted({name for used in uses for name in used.topics})
    count = max(len(names), *(used.count for used in uses))
    more = count - min(len(names), _SHOWN_TOPICS)
    shown = names[:_SHOWN_TOPICS]
    if more:
        shown.append(f"+{more}")
    elif not all(used.complete for used in uses):
        shown.append("+")
    return ",".join(shown) or None
