"""The rows of `tidelog clients`."""

from __future__ import annotations

import json
from typing import Any

from tidelog.cli.cluster.client_rows import (
    CLIENTS,
    CONNECTIONS,
    api_name,
    as_objects,
    connection_rows,
    grouped,
    summary_row,
)
from tidelog.cli.terminal.table import format_table
from tidelog.protocol.operator_messages import ApiUse, ConnectionReport, TopicUse


def topics(*names: str, count: int | None = None, complete: bool = True) -> TopicUse:
    return TopicUse(names, len(names) if count is None else count, complete)


def report(client_id: str = "till", **fields: Any) -> ConnectionReport:
    known: dict[str, Any] = {
        "software_name": "librdkafka",
        "software_version": "2.0.2",
        "host": "10.0.0.1",
        "port": 4711,
        "listener": "KAFKA",
        "apis": (),
        "reads": topics(),
        "writes": topics(),
        "received_bytes": 0,
        "sent_bytes": 0,
        "age_ms": 0,
        "idle_ms": 0,
    }
    return ConnectionReport(client_id, **(known | fields))


def lines(*connections: tuple[int, ConnectionReport]) -> list[str]:
    return list(format_table(CLIENTS.headings, [summary_row(group).cells for group in grouped(connections)]))[1:]


def test_connections_of_one_client_become_one_row() -> None:
    one = report(reads=topics("a"), received_bytes=100, sent_bytes=1024, age_ms=60_000, idle_ms=10)
    two = report(port=4712, reads=topics("b"), writes=topics("a"), received_bytes=200, age_ms=90_000, idle_ms=5000)
    assert lines((2, one), (1, two), (2, one)) == [
        "till    librdkafka/2.0.2  10.0.0.1  1,2                3  a,b    a           400B  2KiB  90s  10ms"
    ]


def test_rows_differ_by_id_software_version_or_host_and_are_sorted() -> None:
    found = grouped(
        [
            (1, report("b")),
            (1, report("a", host="10.0.0.2")),
            (1, report("a", software_version="1.9")),
            (1, report("a", software_name="", software_version="")),
            (1, report("a")),
        ]
    )
    assert [(group[0][1].client_id, group[0][1].software_version, group[0][1].host) for group in found] == [
        ("a", "", "10.0.0.1"),
        ("a", "1.9", "10.0.0.1"),
        ("a", "2.0.2", "10.0.0.1"),
        ("a", "2.0.2", "10.0.0.2"),
        ("b", "2.0.2", "10.0.0.1"),
    ]


def test_row_names_three_topics_and_counts_the_others() -> None:
    def shown(*uses: TopicUse) -> object:
        return summary_row([(1, report(reads=each)) for each in uses]).cells[5]

    assert shown(topics()) is None
    assert shown(topics("a", "b", "c")) == "a,b,c"
    assert shown(topics("a", "b", "c"), topics("c", "d", "e")) == "a,b,c,+2"
    assert shown(topics("a", "b", "c", "d", count=70)) == "a,b,c,+67"
    assert shown(topics("a", complete=False)) == "a,+"


def test_unknown_values_are_dashes() -> None:
    unknown = report("", software_name="", software_version="", host="", port=-1)
    assert lines((1, unknown))[0].split()[:3] == ["-", "-", "-"]
    ((row, *_),) = connection_rows([(1, unknown)])
    assert row[:3] == (None, None, None) and row[-1] is None


def test_each_connection_has_a_row_with_its_requests() -> None:
    one = report(apis=(ApiUse(0, 7, 12), ApiUse(18, 3, 1), ApiUse(75, 0, 2)), age_ms=5)
    two = report(host="::1", port=99, age_ms=10)
    first, second = (row.cells for row in connection_rows([(1, one), (2, two)]))
    assert len(first) == len(second) == len(CONNECTIONS.headings)
    assert (first[2], first[3]) == ("[::1]:99", 2), "the oldest comes first"
    assert second[2] == "10.0.0.1:4711"
    assert second[-1] == "Produce/7:12,ApiVersions/3:1,DescribeTopicPartitions/0:2"


def test_hostile_client_id_changes_neither_rows_nor_the_terminal() -> None:
    hostile = "\x1b[2J\x1b]0;pwned\x07\r\n\u202eadmin\x00\u2028"
    for table in (
        lines((1, report(hostile))),
        list(format_table(CONNECTIONS.headings, [row.cells for row in connection_rows([(1, report(hostile))])]))[1:],
    ):
        (line,) = table
        assert line.isprintable()
        assert line.startswith("\\x1b[2J\\x1b]0;pwned\\x07\\r\\n\\u202eadmin\\x00\\u2028 ")
    (shown,) = as_objects([(1, report(hostile))])
    assert json.dumps(shown).isascii() and json.loads(json.dumps(shown))["client_id"] == hostile


def test_json_has_every_field() -> None:
    connection = report(apis=(ApiUse(1, 11, 4),), reads=topics("a", count=60), port=-1)
    assert as_objects([(3, connection)]) == [
        {
            "client_id": "till",
            "software_name": "librdkafka",
            "software_version": "2.0.2",
            "host": "10.0.0.1",
            "port": None,
            "broker": 3,
            "listener": "KAFKA",
            "reads": {"topics": ["a"], "count": 60, "complete": True},
            "writes": {"topics": [], "count": 0, "complete": True},
            "received_bytes": 0,
            "sent_bytes": 0,
            "age_ms": 0,
            "idle_ms": 0,
            "requests": [{"api": "Fetch", "api_key": 1, "version": 11, "count": 4}],
        }
    ]


def test_api_names_are_those_of_kafka() -> None:
    assert [api_name(key) for key in (2, 60, 1005, 99)] == [
        "ListOffsets",
        "DescribeCluster",
        "DescribeClients",
        "Api99",
    ]
