"""Test by a table over the public signatures that each public call of the clients rejects wrong values at the call.

For each method and parameter a list of wrong values is tried, with right values for the other parameters. The error is
one of Tidelog's, usually also a TypeError or a ValueError. The error names the parameter and shows the value. No
request is sent.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pytest

import tidelog
from tests.tidelog.clients import a_consumer, a_producer, an_admin, in_memory, put
from tests.tidelog.fake_cluster import FakeCluster
from tests.virtual_time import on_virtual_time
from tidelog import (
    ConfigChange,
    ConfigResource,
    ElectionType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    ToEarliest,
    ToOffset,
    TopicPartition,
    ToTime,
)
from tidelog.aio import Admin, Consumer, Producer
from tidelog.client.settings import AdminSettings, ConsumerSettings, ProducerSettings, make_settings, setting_fields
from tidelog.errors import InvalidTopicError, TidelogError
from tidelog.model import EARLIEST_TIMESTAMP
from tidelog.protocol.messages import ApiVersionsRequest, MetadataRequest
from tidelog.records import encode_batch

TP = TopicPartition("t", 0)
ANY: Any = object()

NO_INTEGERS = [1.5, math.nan, "0", b"0", True, [0], ANY]
OFFSETS = [*NO_INTEGERS, None, -1, 2**63]
NUMBERS = [*NO_INTEGERS, -1, 2**31]
TIMEOUTS_MS = [*NO_INTEGERS, -1, 2**63]
TIMEOUTS_S = [math.nan, -1.0, "1", True, [1], ANY]
FLAGS = [None, 0, 1, "yes", ANY]
TOPICS = [None, 5, b"t", ["t"], "", "no/name", "..", "t" * 250, ANY]
GROUPS = [None, 5, b"g", ["g"], "", "\udcff", "g" * 40_000, ANY]
PARTITIONS = [
    *(None, 5, "t-0", ("t",), ("t", 0, 1), (0, "t"), ("t", "0"), ("t", 1.5), ("t", True), ("t", -1), ("t", 2**31)),
    *([TP], [TP, TP], (b"t", 0), ("no/name", 0), TopicPartition("t", "0"), {"t": 0}, ANY),
]
LISTS_OF_PARTITIONS = [5, "t", TP, ANY, *([each] for each in PARTITIONS if each not in ([TP], [TP, TP]))]
TIMES = [None, "now", 1.5, True, -1, 2**63, datetime(2026, 1, 1), [0], ANY]
NO_BYTES = [5, "text", ["b"], 1.5, True, ANY]


def by_partition(*wrong: Any) -> list[Any]:
    """Mappings with one wrong key, and mappings with one wrong value."""
    keys = [
        each for each in PARTITIONS if getattr(type(each), "__hash__", None) and not isinstance(each, TopicPartition)
    ]
    return [5, "t", [TP], [(TP, 1)], ANY, *({key: 1} for key in keys), *({TP: value} for value in wrong)]


def replaced(right: Any, **wrong: list[Any]) -> list[Any]:
    """Lists of one message each, one field of which is wrong."""
    kind = type(right)
    return [
        [kind(**{each: getattr(right, each) for each in kind.__dataclass_fields__} | {name: value})]
        for name, values in wrong.items()
        for value in values
    ]


COMMITS = by_partition(
    *(5, (5,), (5, "", None), OffsetAndMetadata(1, 5), OffsetAndMetadata(1, "\udcff")),  # type: ignore[arg-type]
    *(OffsetAndMetadata(each) for each in OFFSETS),
    *(OffsetAndMetadata(1, "", each) for each in (1.5, True, "1", 2**31, -2)),  # type: ignore[arg-type]
)
ASSIGNMENTS = [5, [0], {0: 5}, {0: ["1"]}, {0: [True]}, {"0": [1]}, {0: [2**31]}]
SETTINGS = [5, ["a"], {5: "a"}, {"a": 5}, {"a": b"b"}, {"a": "\udcff"}]
NEW_TOPICS = [
    *(None, 5, "t", ["t"], NewTopic("t"), [None]),
    *replaced(
        NewTopic("t"),
        name=TOPICS,
        num_partitions=[*NO_INTEGERS, None, 2**31],
        replication_factor=[*NO_INTEGERS, None, 2**31],
        assignment=ASSIGNMENTS,
        configs=[*SETTINGS, {"a": None}],
    ),
]
NEW_PARTITIONS = [
    *(None, 5, "t", {"t": 3}, NewPartitions("t", 3)),
    *replaced(NewPartitions("t", 3), name=TOPICS, total_count=[*NO_INTEGERS, None, 2**31], assignment=ASSIGNMENTS),
]
NO_RESOURCES = [ConfigResource(kind, "t") for kind in (1, None, "topic", True)]  # type: ignore[arg-type]
NO_RESOURCES += [ConfigResource.topic(name) for name in (None, 5, "\udcff")]  # type: ignore[arg-type]
CHANGES = [5, "a", [5], [("a", "b")], ConfigChange("a", "b"), {"t": 5}, *SETTINGS]
CHANGES += replaced(ConfigChange("a", "b"), name=[None, 5], value=[5, b"b"], operation=[9, "SET", True])
IDS = [5, "1", [1.5], ["1"], [True], [2**31], [None], ANY]
TARGETS = [None, 5, "earliest", ToEarliest, *(ToOffset(each) for each in OFFSETS), *(ToTime(each) for each in TIMES)]
MEMBERS = [
    *(None, 5, "m", ["m"], [None], MemberToRemove("m"), [MemberToRemove()], [MemberToRemove("", "")]),
    *([MemberToRemove(each)] for each in (None, 5, b"m", "\udcff")),  # type: ignore[arg-type]
    *([MemberToRemove("m", each)] for each in (5, b"m", "\udcff")),  # type: ignore[arg-type]
]


class Call(NamedTuple):
    """One public method: right values for its required parameters, and wrong ones for each parameter."""

    right: dict[str, Any]
    wrong: dict[str, list[Any]]


MS = {"timeout_ms": [*TIMEOUTS_MS, -1]}
TOPICS_OF = [5, [None], [5], ["t", b"t"], ["no/name"], "no/name", ANY]
LISTED = {"topics": TOPICS_OF, "group_ids": [5, [None], [5], [""], "", ["\udcff"], ANY]}

CALLS: dict[type, dict[str, Call]] = {
    Producer: {
        "send": Call(
            {"topic": "t"},
            {
                "topic": TOPICS,
                "value": NO_BYTES,
                "key": NO_BYTES,
                "headers": [
                    *(5, "ab", b"ab", ["ab"], ["a"], [5], [("a",)], [("a", b"b", b"c")], [(5, b"b")], [(b"a", b"b")]),
                    *([("a", "b")], [("a", 5)], [("\udcff", b"b")], {"a": "b"}, {5: b"b"}, {"ab": 5}, ANY),
                ],
                "partition": NUMBERS,
                "timestamp_ms": [*TIMES[1:], 2**63 - 1],
            },
        ),
        "send_values": Call(
            {"topic": "t", "values": [b"a", b"b"]},
            {
                "topic": TOPICS,
                "values": [None, 5, "ab", b"ab", {0: b"a"}, [], [5], ["x"], iter([b"a"]), ANY],
                "start": [*NO_INTEGERS, None, -1, 2],
                "partition": NUMBERS,
                "timestamp_ms": [*TIMES[1:], 2**63 - 1],
            },
        ),
        "send_batch": Call(
            {"topic": "t", "batch": encode_batch([(0, None, b"v", ())]), "partition": 0},
            {"topic": TOPICS, "batch": [None, *NO_BYTES], "partition": [None, *NUMBERS]},
        ),
        "partitions_for": Call({"topic": "t"}, {"topic": TOPICS}),
        "flush": Call({}, {"timeout": TIMEOUTS_S}),
        "metrics": Call({}, {}),
        "close": Call({}, {"timeout": TIMEOUTS_S}),
    },
    Consumer: {
        "assign": Call({"partitions": [TP]}, {"partitions": [None, *LISTS_OF_PARTITIONS]}),
        "subscribe": Call(
            {"topics": ["t"]},
            {
                "topics": [5, "t", [5], [None], [b"t"], ["no/name"], ANY],
                "listener": [5, "x", print, ANY],
            },
        ),
        "subscribe by pattern": Call({"pattern": "t.*"}, {"pattern": [5, b"t", "(", ANY]}),
        "commit": Call({}, {"offsets": COMMITS, **MS}),
        "committed": Call(
            {"partitions": [TP]}, {"partitions": [None, *(e for e in LISTS_OF_PARTITIONS if e != TP)], **MS}
        ),
        "seek": Call({"partition": TP, "offset": 0}, {"partition": PARTITIONS, "offset": OFFSETS}),
        "seek_to_time": Call({"time": 0}, {"time": TIMES, **MS}),
        "poll": Call({}, {"timeout_ms": [None, *TIMEOUTS_MS], "max_records": [*NO_INTEGERS, 0, -1, 2**63]}),
        "consume": Call({}, {"max_records": [None, *NO_INTEGERS, 0, -1, 2**63], "timeout_ms": [None, *TIMEOUTS_MS]}),
        "poll_batches": Call({}, {"timeout_ms": [None, *TIMEOUTS_MS]}),
        "poll_arrow": Call(
            {},
            {
                "timeout_ms": [None, *TIMEOUTS_MS],
                "columns": [5, [None], ["vlaue"], ["key", "key"], [], ANY],
                "headers": FLAGS,
            },
        ),
        "position": Call({"partition": TP}, {"partition": PARTITIONS, **MS}),
        "highwater": Call({"partition": TP}, {"partition": PARTITIONS}),
        "offsets_for_times": Call({"times": {TP: 0}}, {"times": by_partition(*TIMES), "partial": FLAGS, **MS}),
        "offsets_before": Call(
            {"times": {TP: 0}},
            {
                "times": by_partition(*(each for each in TIMES if each != -1)),
                "max_num_offsets": [*NO_INTEGERS, None, -1, 2**31],
                **MS,
            },
        ),
        "beginning_offsets": Call({"partitions": [TP]}, {"partitions": [None, *LISTS_OF_PARTITIONS], **MS}),
        "end_offsets": Call({"partitions": [TP]}, {"partitions": [None, *LISTS_OF_PARTITIONS], **MS}),
        "partitions_for_topic": Call({"topic": "t"}, {"topic": TOPICS, **MS}),
        "topics": Call({}, MS),
        "metrics": Call({}, {}),
        "close": Call({}, {"autocommit": FLAGS, "timeout_ms": [None, *TIMEOUTS_MS]}),
    },
    Admin: {
        "create_topics": Call({"topics": [NewTopic("n", 1)]}, {"topics": NEW_TOPICS, "validate_only": FLAGS, **MS}),
        "delete_topics": Call({"topics": ["t"]}, {"topics": [None, 5, [None], [5], [b"t"], ["\udcff"], ANY], **MS}),
        "create_partitions": Call(
            {"topics": [NewPartitions("t", 3)]}, {"topics": NEW_PARTITIONS, "validate_only": FLAGS, **MS}
        ),
        "elect_leaders": Call(
            {"election_type": ElectionType.PREFERRED},
            {"election_type": [None, 5, "PREFERRED", True, 1.5, ANY], "partitions": LISTS_OF_PARTITIONS, **MS},
        ),
        "alter_partition_reassignments": Call(
            {"reassignments": {TP: [1]}}, {"reassignments": by_partition(*IDS), **MS}
        ),
        "list_partition_reassignments": Call({}, {"partitions": LISTS_OF_PARTITIONS, **MS}),
        "list_topics": Call({}, MS),
        "describe_topics": Call({}, {"topics": TOPICS_OF, **MS}),
        "describe_times": Call({"topic": "t"}, {"topic": TOPICS, **MS}),
        "describe_cluster": Call({}, MS),
        "describe_configs": Call(
            {"resources": [ConfigResource.topic("t")]},
            {
                "resources": [
                    *(None, 5, "t", ["t"], ConfigResource.topic("t"), ANY),
                    *([each] for each in NO_RESOURCES),
                ],
                "include_synonyms": FLAGS,
                "include_documentation": FLAGS,
                **MS,
            },
        ),
        "alter_configs": Call(
            {"configs": {ConfigResource.topic("t"): {"a": "b"}}},
            {
                "configs": [
                    *(None, 5, "t", [ConfigResource.topic("t")], {"t": {"a": "b"}}, ANY),
                    *({each: {"a": "b"}} for each in NO_RESOURCES),
                    *({ConfigResource.topic("t"): each} for each in CHANGES),
                ],
                "validate_only": FLAGS,
                **MS,
            },
        ),
        "partition_facts": Call({"partition": TP}, {"partition": PARTITIONS, **MS}),
        "delete_records": Call(
            {"before": {TP: 0}}, {"before": by_partition(*(each for each in OFFSETS if each != -1), -2), **MS}
        ),
        "describe_log_dirs": Call({}, {"brokers": IDS, **MS}),
        "alter_replica_log_dirs": Call(
            {"broker": 1, "log_dirs": {TP: "/d"}},
            {"broker": [5.5, "1", True, 2**31, None], "log_dirs": by_partition(None, 5, b"/d", "\udcff"), **MS},
        ),
        "describe_clients": Call({}, {"brokers": IDS, "topics": [5, *([each] for each in TOPICS), ANY], **MS}),
        "list_zookeeper_groups": Call({}, MS),
        "list_zookeeper_group_offsets": Call({"group_id": "g"}, {"group_id": GROUPS, **MS}),
        "alter_zookeeper_group_offsets": Call(
            {"group_id": "g", "offsets": {TP: 1}}, {"group_id": GROUPS, "offsets": by_partition(*OFFSETS), **MS}
        ),
        "migrate_zookeeper_group": Call(
            {"group_id": "g"}, {"group_id": GROUPS, "force": FLAGS, "execute": FLAGS, **MS}
        ),
        "list_consumer_groups": Call({}, {"states": [None, 5, [5], [None], ANY], **MS}),
        "describe_consumer_groups": Call(
            {"group_ids": ["g"]}, {"group_ids": LISTED["group_ids"], "partial": FLAGS, **MS}
        ),
        "list_consumer_group_offsets": Call(
            {"group_id": "g"}, {"group_id": GROUPS, "partitions": LISTS_OF_PARTITIONS, **MS}
        ),
        "alter_consumer_group_offsets": Call(
            {"group_id": "g", "offsets": {TP: OffsetAndMetadata(1)}}, {"group_id": GROUPS, "offsets": COMMITS, **MS}
        ),
        "delete_consumer_groups": Call({"group_ids": ["g"]}, {"group_ids": LISTED["group_ids"], **MS}),
        "delete_consumer_group_offsets": Call(
            {"group_id": "g", "partitions": [TP]},
            {"group_id": GROUPS, "partitions": [None, *LISTS_OF_PARTITIONS], **MS},
        ),
        "remove_group_members": Call(
            {"group_id": "g", "members": [MemberToRemove("m")]},
            {"group_id": GROUPS, "members": MEMBERS, **MS},
        ),
        "consumer_group_lag": Call({"group_id": "g"}, {"group_id": GROUPS, "partitions": LISTS_OF_PARTITIONS, **MS}),
        "reset_consumer_group_offsets": Call(
            {"group_id": "g", "target": ToEarliest()},
            {"group_id": GROUPS, "target": TARGETS, "partitions": LISTS_OF_PARTITIONS, "execute": FLAGS, **MS},
        ),
        "metrics": Call({}, {}),
        "close": Call({}, {}),
    },
}
#: Methods that take several partitions as separate arguments.
OF_PARTITIONS = ["pause", "resume", "seek_to_beginning", "seek_to_end", "seek_to_time"]
#: Methods without a value of the user's, and those for the synchronous clients.
WITHOUT = {
    *("start", "send_and_wait", "queues_of", "sender", "bootstrap_connected"),
    *("subscription", "unsubscribe", "group_metadata", "assignment", "paused"),
}


def methods(client: type) -> Iterator[tuple[str, Any]]:
    for name, function in vars(client).items():
        if not name.startswith("_") and name not in WITHOUT:
            yield name, function


def texts_of(value: Any) -> list[str]:
    """Return the forms in which a message may show a value: whole, cut, or only its wrong part."""
    found = [repr(value)[:150], str(value)[:150]]
    if isinstance(value, datetime):
        found.append(value.isoformat())
    if isinstance(value, dict):
        found += [text for pair in value.items() for each in pair for text in texts_of(each)]
    elif isinstance(value, list | tuple):
        found += [text for each in value for text in texts_of(each)]
    elif hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        found += [text for name in value.__dataclass_fields__ for text in texts_of(getattr(value, name))]
    return [text for text in found if text]


def complain(parameter: str, value: Any, error: BaseException | None, raised: bool) -> str | None:
    """Return the fault in the error for a wrong value; None if there is none."""
    shown = repr(value)[:80]
    if not raised:
        return f"{parameter}={shown} was accepted"
    if not isinstance(error, TidelogError):
        return f"{parameter}={shown}: {error!r}"
    text = str(error)
    if not text.startswith(parameter):
        return f"{parameter}={shown}: does not begin with the parameter: {error!r}"
    if not any(part in text.removeprefix(parameter) for part in texts_of(value)):
        return f"{parameter}={shown}: does not show the value: {error!r}"
    return None


def a_cluster() -> FakeCluster:
    cluster = FakeCluster()
    (partition,) = cluster.create("t")
    put(partition, b"v")
    return cluster


def sent(cluster: FakeCluster, since: int) -> list[str]:
    """Return the requests of a call, without metadata requests and fetches."""
    own = (MetadataRequest, ApiVersionsRequest)
    names = {"FetchRequest", "ListOffsetsRequest", "OffsetFetchRequest", "FindCoordinatorRequest"}
    return [
        type(each).__name__
        for _, each in cluster.requests[since:]
        if not isinstance(each, own) and type(each).__name__ not in names
    ]


@pytest.mark.parametrize("client", [Producer, Consumer, Admin])
def test_table_has_each_method_and_each_of_its_parameters(client: type) -> None:
    public = dict(methods(client))
    table: dict[str, set[str]] = {}
    for name, call in CALLS[client].items():
        table.setdefault(name.partition(" ")[0], set()).update(call.wrong)
    assert public.keys() - set(OF_PARTITIONS[:-1]) == table.keys()
    for name, function in public.items():
        taken = {
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.name != "self" and each.kind is not inspect.Parameter.VAR_POSITIONAL
        }
        assert table.get(name, set()) == taken, name


MAKE: dict[type, Callable[..., Any]] = {Producer: a_producer, Consumer: a_consumer, Admin: an_admin}
EVERY = [(client, name) for client, calls in CALLS.items() for name in calls]


@pytest.mark.parametrize(("client", "name"), EVERY)
@on_virtual_time
async def test_wrong_values_are_rejected_at_the_call(client: type, name: str) -> None:
    cluster = a_cluster()
    options = {"group_id": "g"} if client is Consumer else {}
    async with MAKE[client](cluster, **options) as made:
        if client is Consumer and not name.startswith("subscribe"):
            made.assign([TP])
        if client is Producer:
            await made.partitions_for("t")
        since = len(cluster.requests)
        wrong = []
        call = CALLS[client][name]
        for parameter, values in call.wrong.items():
            for value in values:
                error, raised = None, False
                try:
                    result = getattr(made, name.partition(" ")[0])(**{**call.right, parameter: value})
                    if inspect.isawaitable(result):
                        await result
                except Exception as refused:
                    error, raised = refused, True
                wrong.append(complain(parameter, value, error, raised))
        assert [each for each in wrong if each] == []
        assert sent(cluster, since) == []


@pytest.mark.parametrize("name", OF_PARTITIONS)
@on_virtual_time
async def test_wrong_partitions_among_several_are_rejected_at_the_call(name: str) -> None:
    async with a_consumer(a_cluster()) as consumer:
        consumer.assign([TP])
        wrong = []
        first = (0,) if name == "seek_to_time" else ()
        for value in [*PARTITIONS, TopicPartition("t", 7)]:
            error, raised = None, False
            try:
                result = getattr(consumer, name)(*first, TP, value)
                if inspect.isawaitable(result):
                    await result
            except Exception as refused:
                error, raised = refused, True
            wrong.append(complain("partitions", value, error, raised))
        assert [each for each in wrong if each] == []
        assert consumer.paused() == set(), "one wrong partition, and none is paused"


@pytest.mark.parametrize(("core", "name"), EVERY)
def test_synchronous_clients_refuse_the_same_values(core: type, name: str) -> None:
    cluster = a_cluster()
    table = CALLS[core][name]
    client: Any = getattr(tidelog, core.__name__)
    options: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False} if client is tidelog.Consumer else {}
    with in_memory(client, cluster, **options) as made:
        if client is tidelog.Consumer and not name.startswith("subscribe"):
            made.assign([TP])
        if client is tidelog.Producer:
            made.partitions_for("t")
        since = len(cluster.requests)
        wrong = []
        for parameter, values in table.wrong.items():
            for value in values:
                error, raised = None, False
                try:
                    getattr(made, name.partition(" ")[0])(**{**table.right, parameter: value})
                except Exception as refused:
                    error, raised = refused, True
                wrong.append(complain(parameter, value, error, raised))
        assert [each for each in wrong if each] == []
        assert sent(cluster, since) == []


@pytest.mark.parametrize("settings", [ProducerSettings, ConsumerSettings, AdminSettings])
def test_each_setting_refuses_wrong_values_and_names_itself(settings: Any) -> None:
    wrong = []
    for each in setting_fields(settings):
        kinds = {"int": [*NO_INTEGERS, -1, 2**64], "bool": [1, "no", 1.5, ANY, [True]]}
        for value in kinds.get(str(each.type), [5.5, b"x", ["nonsense"], [["x"]], "nonsense \udcff", {}, ANY]):
            if value is None or (each.name == "client_id" and value == ""):
                continue
            error, raised = None, False
            try:
                make_settings(settings, "h:1", {each.name: value})
            except Exception as refused:
                error, raised = refused, True
            wrong.append(complain(each.name, value, error, raised))
    assert [each for each in wrong if each] == []


# --- right values ------------------------------------------------------------------------------------


@on_virtual_time
async def test_integers_of_any_kind_are_offsets_and_partitions() -> None:
    cluster = a_cluster()
    async with a_consumer(cluster) as consumer:
        consumer.assign([TopicPartition("t", np.int32(0))])  # type: ignore[arg-type]
        consumer.seek(("t", np.int64(0)), np.int64(1))  # type: ignore[arg-type]
        assert await consumer.position(TP) == 1
        assert type(await consumer.position(TP)) is int
        consumer.seek(TP, 2**63 - 1)
        assert await consumer.position(TP) == 2**63 - 1
        assert (await consumer.offsets_for_times({TP: np.int64(0)})).keys() == {TP}  # type: ignore[dict-item]
        assert await consumer.offsets_before({TP: EARLIEST_TIMESTAMP}, np.int16(1)) is not None  # type: ignore[arg-type]
        consumer.seek_to_beginning()
        assert len((await consumer.poll(np.int64(1000), np.int64(1)))[TP]) == 1  # type: ignore[arg-type]
    async with a_producer(cluster, linger_ms=np.int32(5)) as producer:
        place = await producer.send_and_wait("t", b"v", partition=np.int64(0), timestamp_ms=np.int64(5))
        assert (place.partition, place.timestamp) == (0, 5)


@on_virtual_time
async def test_headers_may_be_a_dict_or_pairs() -> None:
    cluster = a_cluster()
    given: list[Any] = [
        {"a": b"b", "n": None},
        [("a", b"b"), ("n", None)],
        (("a", b"b"), ("n", None)),
        [["a", bytearray(b"b")], ("n", None)],
        iter([("a", b"b"), ("n", None)]),
        {"a": b"b", "n": None}.items(),
    ]
    async with a_producer(cluster) as producer, a_consumer(cluster) as consumer:
        for headers in given:
            await producer.send_and_wait("t", b"v", headers=headers)
        consumer.assign([TP])
        consumer.seek(TP, 1)
        read = [tuple(record.headers) for record in (await consumer.poll(1000))[TP]]
        assert read == [(("a", b"b"), ("n", None))] * len(given)


def test_synchronous_producer_takes_a_dict_of_headers_and_any_buffer() -> None:
    cluster = a_cluster()
    with in_memory(tidelog.Producer, cluster) as producer:
        sent = producer.send("t", bytearray(b"v"), key=memoryview(b"k"), headers={"a": b"b"}, partition=np.int8(0))  # type: ignore[arg-type]
        assert sent.get(10).offset == 1


@on_virtual_time
async def test_last_timestamp_that_a_record_can_bear_is_accepted() -> None:
    async with a_producer(a_cluster()) as producer:
        assert (await producer.send_and_wait("t", b"v", timestamp_ms=2**63 - 2)).timestamp == 2**63 - 2


@pytest.mark.parametrize("value", [math.nan, -1, "1", True])
async def test_future_refuses_a_wrong_timeout_though_the_outcome_is_known(value: Any) -> None:
    async with a_producer(a_cluster()) as producer:
        future = await producer.send("t", b"v")
        await future
        with pytest.raises((TypeError, ValueError), match="timeout must be a number of seconds"):
            future.get(value)
        with pytest.raises(TypeError, match="function must be a function, not 5"):
            future.add_callback(5)  # type: ignore[arg-type]


def test_invalid_topic_keeps_its_own_error() -> None:
    with (
        in_memory(tidelog.Consumer, FakeCluster()) as consumer,
        pytest.raises(InvalidTopicError, match=r"partitions\[0\]=.*only ASCII letters"),
    ):
        consumer.assign([TopicPartition("no/name", 0)])
