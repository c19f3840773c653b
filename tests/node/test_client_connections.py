"""The list of a broker's client connections, its limits, and the totals by software."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from node.handlers.inspection.describe_clients import MAX_EXAMINED, MAX_NAMED_TOPICS, describe_clients
from node.net import client_connections
from node.net.client_connections import MAX_CLIENT_ID, ClientConnection, ClientConnections, Traffic
from node.net.client_software import MAX_NAMED, OTHER, UNKNOWN, Software, valid_software
from node.observability.client_metrics import client_families
from tests.hand_clock import HandClock
from tidelog.protocol.operator_messages import ApiUse, ConnectionReport, DescribeClientsRequest, TopicUse


def a_list(known: Sequence[str] | None = None) -> tuple[ClientConnections, HandClock]:
    """Return a list of connections on whose broker these topics exist; None: all."""
    clock = HandClock()
    return ClientConnections(clock, lambda name: name if known is None or name in known else None), clock


def connect(clients: ClientConnections, software: Software | None = None) -> ClientConnection:
    client = clients.add("KAFKA", ("10.0.0.1", 4711), Traffic())
    if software is not None:
        client.identify(software)
    return client


def described(clients: ClientConnections, *topics: str) -> list[ConnectionReport]:
    """Return all parts of the answer."""
    found: list[ConnectionReport] = []
    following = 0
    while following >= 0:
        answer = describe_clients(clients, DescribeClientsRequest(following, topics), 0)
        found += answer.connections
        following = answer.next
    return found


async def series(clients: ClientConnections) -> dict[tuple[str, ...], list[float]]:
    """Return connections, requests, received and sent bytes by software."""
    values: dict[tuple[str, ...], list[float]] = {}
    for family in await client_families(clients):
        for sample in family.samples:
            assert isinstance(sample.value, int)
            values.setdefault(sample.labels, []).append(sample.value)
    return values


@pytest.mark.parametrize("text", ["a", "1", "librdkafka", "2.16.1-rdkafka-2.16.1", "a--b", "x" * 3000])
def test_software_may_have_letters_digits_hyphens_and_dots(text: str) -> None:
    assert valid_software(text, "1") == Software(text[:100], "1")
    assert valid_software("a", text) == Software("a", text[:100])


@pytest.mark.parametrize("text", ["", "-a", "a-", ".", "a b", "a\n", "\x1b[2J", "ä", "a_b", "a" + "-" * 30_000])
def test_software_with_other_characters_is_refused(text: str) -> None:
    assert valid_software(text, "1") is None
    assert valid_software("a", text) is None


def test_connection_is_described_with_what_has_passed_over_it() -> None:
    clients, clock = a_list(["orders", "lines"])
    client = connect(clients, Software("librdkafka", "2.0.2"))
    client.name_itself("till")
    client.requests = {1 << 16 | 11: 4, 0 << 16 | 7: 3}
    client.traffic.received_bytes, client.traffic.sent_bytes = 100, 200
    client.note_read("lines", "lines")
    client.note_read(b"\x01" * 16, "orders")
    client.note_read("nowhere", "nowhere")
    client.note_read(b"\x02" * 16, None)
    client.note_written("orders")
    opened_ms = clock.monotonic_ms()
    client.traffic.last_active_ms = opened_ms + 30
    answer = describe_clients(clients, DescribeClientsRequest(), opened_ms + 50)
    assert answer.next == -1
    assert answer.connections == (
        ConnectionReport(
            "till",
            "librdkafka",
            "2.0.2",
            "10.0.0.1",
            4711,
            "KAFKA",
            (ApiUse(0, 7, 3), ApiUse(1, 11, 4)),
            TopicUse(("lines", "orders"), 2, True),
            TopicUse(("orders",), 1, True),
            100,
            200,
            50,
            20,
        ),
    )
    clients.remove(client)
    assert described(clients) == []


def test_connection_without_stated_software_is_described_without_one() -> None:
    clients, _ = a_list()
    connect(clients)
    (report,) = described(clients)
    assert (report.software_name, report.software_version) == ("", "")


def test_answers_are_limited_and_continued() -> None:
    clients, _ = a_list()
    for _ in range(2 * MAX_EXAMINED + 1):
        connect(clients)
    first = describe_clients(clients, DescribeClientsRequest(), 0)
    assert (len(first.connections), first.next) == (MAX_EXAMINED, MAX_EXAMINED)
    assert len(described(clients)) == 2 * MAX_EXAMINED + 1


def test_filter_finds_a_topic_beyond_those_that_are_named() -> None:
    clients, _ = a_list()
    client = connect(clients)
    connect(clients)
    for number in range(MAX_NAMED_TOPICS + 30):
        client.note_written(f"topic-{number:03}")
    (report,) = described(clients, f"topic-{MAX_NAMED_TOPICS + 29:03}")
    assert (len(report.writes.topics), report.writes.count) == (MAX_NAMED_TOPICS, MAX_NAMED_TOPICS + 30)
    assert described(clients, "topic") == []


def test_topics_of_all_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connections, "MAX_NOTED_TOPICS", 3)
    clients, _ = a_list()
    first, second = connect(clients), connect(clients)
    first.note_read("a", "a")
    first.note_read("a", "a")
    first.note_written("a")
    for name in ("a", "b", "a"):
        second.note_read(name, name)
    assert [(each.reads.topics, each.reads.complete) for each in described(clients)] == [
        (("a",), True),
        (("a",), False),
    ]
    clients.remove(first)
    second.note_read("b", "b")
    assert described(clients)[0].reads.topics == ("a", "b"), "an ended connection makes room"


def test_long_client_id_is_shortened() -> None:
    clients, _ = a_list()
    connect(clients).name_itself("x" * 30_000)
    assert described(clients)[0].client_id == "x" * MAX_CLIENT_ID


async def test_counters_go_on_after_the_end_of_a_connection() -> None:
    clients, _ = a_list()
    software = Software("a", "1")
    one, other = connect(clients, software), connect(clients, software)
    for client, count in ((one, 1), (other, 10)):
        client.requests[3 << 16] = count
        client.traffic.received_bytes, client.traffic.sent_bytes = 100 * count, 1000 * count
    assert (await series(clients))["a", "1"] == [2, 11, 1100, 11_000]
    one.requests[3 << 16] += 1
    clients.remove(one)
    assert (await series(clients))["a", "1"] == [1, 12, 1100, 11_000]
    clients.remove(other)
    assert (await series(clients))["a", "1"] == [0, 12, 1100, 11_000]


async def test_metrics_have_a_limited_number_of_software() -> None:
    clients, _ = a_list()
    many = [connect(clients, Software("invented", str(number))) for number in range(MAX_NAMED + 30)]
    named = await series(clients)
    assert len(named) == MAX_NAMED + 2
    assert named[OTHER][0] == 30 and named[UNKNOWN][0] == 0
    for number, client in enumerate(many):
        client.traffic.sent_bytes = 1 + number
        clients.remove(client)
    connect(clients, Software("librdkafka", "2.0.2"))
    after = await series(clients)
    assert len(after) == MAX_NAMED + 2
    assert after["librdkafka", "2.0.2"][0] == 1, "software that is gone makes room for software that comes"
    assert ("invented", "0") not in after, "it had moved the fewest bytes"
    assert sum(values[3] for values in after.values()) == sum(range(1, MAX_NAMED + 31)), "no byte is lost"


async def test_client_called_other_has_a_series_of_its_own() -> None:
    clients, _ = a_list()
    connect(clients, Software("other", "1"))
    connect(clients, Software("unknown", "1"))
    named = await series(clients)
    assert named["other", "1"][0] == named["unknown", "1"][0] == 1
    assert named[OTHER][0] == named[UNKNOWN][0] == 0
