"""Test how results look in a Python session and in a notebook."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from html.parser import HTMLParser
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidelog
from tests.tidelog.clients import a_consumer, a_producer, an_admin, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.tidelog.group_members import join
from tests.virtual_time import on_virtual_time
from tidelog import (
    ClusterDescription,
    ConfigResource,
    ConsumerGroupListings,
    ConsumerRecord,
    Endpoint,
    FetchedBatches,
    MemberToRemove,
    Metrics,
    NewTopic,
    OffsetAndMetadata,
    PartitionDescription,
    PartitionLag,
    TopicDescription,
    TopicPartition,
)
from tidelog.display.html_table import MOST_CHARACTERS, MOST_ROWS, html_table
from tidelog.display.listing import ByBroker, Errors, ErrorsByGroup, Listing, Table
from tidelog.display.short_repr import short_repr
from tidelog.errors import InvalidRecordError, TimeoutError, UnknownMemberIdError

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SCRIPT = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """Reads a table: `rows` has the texts of the cells, first those of the headings; `tags` all tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.caption = ""
        self._in = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        self._in = tag
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in = ""

    def handle_data(self, data: str) -> None:
        if self._in in ("td", "th"):
            self.rows[-1][-1] += data
        elif self._in == "caption":
            self.caption += data


def shown(value: Any) -> list[list[str]]:
    """Return the rows that a notebook shows for the value."""
    return Cells(value._repr_html_()).rows


def a_record(offset: int, value: bytes | None = b"v") -> ConsumerRecord:
    return ConsumerRecord("t", 0, 3, offset, 1_700_000_000_000, 0, b"k", value, (("name", b"x"),))


# --- tables ------------------------------------------------------------------------------------------


@on_virtual_time
async def test_topics_are_shown_with_one_row_for_each_partition() -> None:
    cluster = FakeCluster()
    async with an_admin(cluster) as admin:
        await admin.create_topics([NewTopic("a", 1), NewTopic("b", 2)])
        rows = shown(await admin.describe_topics())
    assert rows[0][:5] == ["topic", "partition", "leader", "leader_epoch", "replicas"]
    assert [row[:5] for row in rows[1:]] == [
        ["a", "0", "1", "0", "1, 2, 3"],
        ["b", "0", "1", "0", "1, 2, 3"],
        ["b", "1", "2", "0", "1, 2, 3"],
    ]


@on_virtual_time
async def test_cluster_is_shown_with_its_kind_brokers_and_controller() -> None:
    async with an_admin(FakeCluster(brokers=2)) as admin:
        described = await admin.describe_cluster()
    assert shown(described) == [["broker", "address"], ["1", "fake:1001"], ["2", "fake:1002"]]
    assert Cells(described._repr_html_()).caption == "cluster fake-cluster (Tidelog), controller 1"


@on_virtual_time
async def test_offsets_of_a_group_are_shown_by_partition() -> None:
    cluster = FakeCluster()
    put(cluster.create("t", 2)[0], b"a", b"b", b"c")
    async with an_admin(cluster) as admin:
        await admin.alter_consumer_group_offsets("g", {P0: OffsetAndMetadata(1, "here")})
        assert shown(await admin.list_consumer_group_offsets("g", [P0, P1])) == [
            ["topic", "partition", "offset", "metadata", "leader_epoch"],
            ["t", "0", "1", "here", "–"],
            ["t", "1", "", "", ""],
        ]
        headings, row = shown(await admin.consumer_group_lag("g"))
        assert dict(zip(headings, row, strict=True))["lag"] == "2"


@on_virtual_time
async def test_groups_are_shown_with_their_members() -> None:
    cluster = FakeCluster()
    member_id = await join(cluster, "g", P0, P1)
    async with an_admin(cluster) as admin:
        headings, row = shown(await admin.describe_consumer_groups(["g"]))
        cells = dict(zip(headings, row, strict=True))
        names = ("group", "state", "assignor", "member", "instance", "assignment")
        assert [cells[each] for each in names] == ["g", "Stable", "range", member_id, "one", "t-0, t-1"]
        assert shown(await admin.list_consumer_groups()) == [
            ["group", "state", "type", "coordinator"],
            ["g", "Stable", "consumer", "1"],
        ]


@on_virtual_time
async def test_polled_records_are_shown_with_readable_times_and_values() -> None:
    cluster = FakeCluster()
    put(cluster.create("t")[0], b"caf\xc3\xa9", b"\xff\x00", at_ms=1_700_000_000_000)
    async with a_consumer(cluster) as consumer:
        consumer.assign([P0])
        polled = await consumer.poll(5_000)
    headings, *rows = shown(polled)
    assert headings[:2] == ["topic", "partition"]
    cells = [dict(zip(headings, row, strict=True)) for row in rows]
    assert [each["offset"] for each in cells] == ["0", "1"]
    assert cells[0]["timestamp"] == "2023-11-14T22:13:20.000Z"
    assert [each["value"] for each in cells] == ["café", "\\xff\\x00"]
    assert shown(polled[P0]) == [headings, *rows]


def test_listings_name_brokers_that_did_not_answer() -> None:
    listings = ConsumerGroupListings((), {2: TimeoutError("no answer")}, (P0,))
    assert [row[-1] for row in shown(listings)] == [
        "error",
        "TimeoutError: no answer",
        "t-0 has no leader, so that its groups are missing",
    ]


def test_outcomes_are_shown_with_an_error_or_a_dash() -> None:
    outcomes = Errors({MemberToRemove("m"): None, MemberToRemove("", "one"): UnknownMemberIdError("no such")})
    assert shown(outcomes) == [
        ["member_id", "group_instance_id", "error"],
        ["m", "–", "–"],
        ["", "one", "UnknownMemberIdError: no such"],
    ]
    assert shown(ErrorsByGroup({"g": None})) == [["group", "error"], ["g", "–"]]


def test_keys_without_fields_have_a_heading() -> None:
    assert shown(ByBroker({1: (Endpoint("h", 1), Endpoint("h", 2))})) == [
        ["broker", "host", "port"],
        ["1", "h", "1"],
        ["1", "h", "2"],
    ]
    assert shown(Table({P0: 7})) == [["topic", "partition", "value"], ["t", "0", "7"]]
    settings = Table({ConfigResource.topic("t"): Table({"retention.ms": 5})})
    assert shown(settings) == [["type", "name", "key", "value"], ["topic", "t", "retention.ms", "5"]]


def test_metrics_are_shown_by_group() -> None:
    assert shown(Metrics({"producer-metrics": {"byte-total": 12_345.0}})) == [
        ["group", "metric", "value"],
        ["producer-metrics", "byte-total", "12,345"],
    ]


def test_result_without_entries_is_shown_as_such() -> None:
    assert shown(Listing())[-1] == ["no entries"]


# --- what no table does ------------------------------------------------------------------------------


def with_script() -> Iterator[Any]:
    topic = TopicDescription(SCRIPT, "id", False, (PartitionDescription(0, 1, 0, (1,), (1,)),))
    yield topic
    yield Listing([topic])
    yield Listing([SCRIPT])
    yield ClusterDescription(SCRIPT, 1, {1: Endpoint(SCRIPT, 1)}, SCRIPT)
    yield Table({TopicPartition(SCRIPT, 0): OffsetAndMetadata(1, SCRIPT)})
    yield Table({P0: Listing([a_record(0, SCRIPT.encode())])})
    yield Table({SCRIPT: {SCRIPT: SCRIPT}})
    yield Errors({P0: TimeoutError(SCRIPT)})
    yield Table({P0: PartitionLag(None, error=TimeoutError(SCRIPT))})
    yield ConsumerGroupListings((), {1: TimeoutError(SCRIPT)})
    yield Metrics({SCRIPT: {SCRIPT: 1.0}})


@pytest.mark.parametrize("value", list(with_script()), ids=lambda value: type(value).__name__)
def test_no_value_becomes_a_tag_of_the_page(value: Any) -> None:
    html = value._repr_html_()
    assert "<script" not in html and "&lt;script&gt;" in html


@given(st.lists(st.dictionaries(st.text(), st.text() | st.binary() | st.none() | st.lists(st.text()))), st.text())
def test_any_text_stays_a_text(rows: list[dict[str, object]], caption: str) -> None:
    cells = Cells(html_table(rows, caption=caption))
    assert cells.tags <= {"table", "thead", "tbody", "tr", "th", "td", "caption"}
    assert cells.rows[0] == list(dict.fromkeys(heading for row in rows for heading in row))


def test_table_is_bounded_and_says_how_much_is_left_out() -> None:
    rows = shown(Listing(a_record(offset) for offset in range(MOST_ROWS + 2_000)))
    assert len(rows) == 1 + MOST_ROWS + 1
    assert rows[-1] == ["… and 2,000 more"]
    assert len(shown(Listing(range(MOST_ROWS)))) == 1 + MOST_ROWS


def test_long_value_is_cut_in_its_cell() -> None:
    (_, (cell,)) = shown(Listing([b"x" * 10_000_000]))
    assert cell == "x" * MOST_CHARACTERS + "…"


# --- listings stay lists and dicts -------------------------------------------------------------------


@given(st.lists(st.integers()))
def test_listing_is_its_list_in_all_else(values: list[int]) -> None:
    listing = Listing(values)
    assert listing == values and repr(listing) == repr(values) and json.dumps(listing) == json.dumps(values)
    assert pickle.loads(pickle.dumps(listing)) == values and isinstance(listing, list)


@given(st.dictionaries(st.text(), st.integers()))
def test_table_is_its_dict_in_all_else(values: dict[str, int]) -> None:
    table = Table(values)
    assert table == values and repr(table) == repr(values) and json.dumps(table) == json.dumps(values)
    assert pickle.loads(pickle.dumps(table)) == values and isinstance(table, dict)


# --- repr --------------------------------------------------------------------------------------------


def test_repr_of_a_record_cuts_long_keys_and_values() -> None:
    assert repr(a_record(7)) == (
        "ConsumerRecord(topic='t', partition=0, leader_epoch=3, offset=7, timestamp=1700000000000, timestamp_type=0, "
        "key=b'k', value=b'v', headers=(('name', b'x'),))"
    )
    assert f"value={b'v' * 80!r}… (1,000,000 bytes)" in repr(a_record(7, b"v" * 1_000_000))


def test_repr_of_batches_shows_their_size() -> None:
    assert repr(FetchedBatches(memoryview(b"x" * 70_000), 1, 9, 9, 0)) == (
        "FetchedBatches(records=<70,000 bytes>, fetch_offset=1, next_offset=9, high_watermark=9, log_start_offset=0, "
        "leader_epoch=-1)"
    )


def test_repr_of_a_topic_with_many_partitions_says_how_many() -> None:
    partitions = tuple(PartitionDescription(number, 1, 0, (1,), (1,)) for number in range(1_000))
    text = repr(TopicDescription("t", "id", False, partitions))
    assert text.startswith("TopicDescription(topic='t', topic_id='id', is_internal=False, partitions=(Partition")
    assert text.endswith(", … (1000 in all)))") and text.count("PartitionDescription(") == 5


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a", "'a'"),
        ("a" * 100, f"'{'a' * 80}'… (100 characters)"),
        ((1,), "(1,)"),
        ((), "()"),
        ([1, 2, 3, 4, 5, 6], "[1, 2, 3, 4, 5, … (6 in all)]"),
        (MappingProxyType({"a": 1}), "{'a': 1}"),
        (dict.fromkeys(range(9)), "{0: None, 1: None, 2: None, 3: None, 4: None, … (9 in all)}"),
        (P0, "TopicPartition(topic='t', partition=0)"),
        (None, "None"),
    ],
)
def test_short_repr_is_the_usual_one_of_short_values(value: object, text: str) -> None:
    assert short_repr(value) == text


@on_virtual_time
async def test_repr_of_a_future_shows_its_offset_or_its_error() -> None:
    cluster = FakeCluster()
    good, bad = cluster.create("t", 2)
    bad.max_batch_bytes, bad.too_large = 0, InvalidRecordError
    async with a_producer(cluster) as producer:
        stored, failed = [await producer.send("t", b"v", partition=number) for number in range(2)]
        assert repr(stored) == "<RecordFuture t-0 pending>"
        run = await producer.send_values("t", [b"a", b"b"], partition=0)
        assert repr(run) == "<RecordRun t-0 2 records, 0 settled>"
        await producer.flush()
        assert repr(stored) == "<RecordFuture t-0 offset=0>"
        assert repr(failed).startswith("<RecordFuture t-1 failed: InvalidRecordError(")
        assert repr(run) == "<RecordRun t-0 2 records, 2 settled>"
    assert len(good.values()) == 3


def test_every_public_class_shows_more_than_its_address() -> None:
    for name in set(tidelog.__all__) - {"ConsumerRebalanceListener"}:  # a base class for users
        public = getattr(tidelog, name)
        if isinstance(public, type) and not issubclass(public, BaseException):
            assert public.__repr__ is not object.__repr__, name
