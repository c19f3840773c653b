"""The examples in the docstrings of the public classes, run against real brokers as they stand."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest

import tidelog
import tidelog.aio
from tests.processes.harness.cluster import RunningCluster
from tidelog import Admin, Consumer, Producer

pytestmark = pytest.mark.xdist_group("clients")  # all tests share one cluster

#: The address in all examples, in whose place the test puts those of the cluster.
ADDRESS = 'bootstrap_servers="localhost:9092"'

#: The classes that a user gets and does not make; those of one line need no example.
RESULTS = {
    *("ClusterDescription", "ConfigEntry", "ConsumerGroupDescription", "ConsumerGroupListing", "ConsumerGroupListings"),
    *("ConsumerGroupMetadata", "ConsumerRecord", "MemberDescription", "OffsetAndTimestamp", "OffsetOutcome"),
    *("OffsetReset", "PartitionDescription", "PartitionLag", "PartitionReassignment", "RecordMetadata", "RunPart"),
    *("Scan", "StartingPoint", "TopicDescription"),
    *(
        "ConfigOp",
        "ConfigResourceType",
        "ConfigSource",
        "ConsumerGroupState",
        "NoOffset",
        "OlderRecords",
        "StartReason",
    ),
}
#: The examples of these classes come first, because the others use their topics and their group.
FIRST = ("Admin", "Producer", "Consumer", "NewTopic")
CREATED = [*FIRST, *(name for name in tidelog.__all__ if name not in {*FIRST, *RESULTS, "__version__"})]
CLASSES = [getattr(tidelog, name) for name in CREATED] + [getattr(tidelog.aio, name) for name in tidelog.aio.__all__]


def example_of(cls: type) -> str:
    """Return the code block behind "Example:" in the docstring of the class; empty if there is none."""
    found = re.search(r"^Example:\n\n((?: {4}.*\n|\n)+)", inspect.cleandoc(cls.__doc__ or "") + "\n", re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def run(example: str, names: dict[str, Any]) -> None:
    """Run an example, which may await without a coroutine, as in a notebook."""
    code = compile(example, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    if is_coroutine(code):
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


def is_coroutine(code: CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_COROUTINE)


@pytest.fixture
def names(tidelog_cluster: RunningCluster) -> Iterator[dict[str, Any]]:
    """Return the names that an example may use: those of `tidelog`, and an open client of each kind."""
    servers = tidelog_cluster.bootstrap_servers
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, group_id="examples", auto_offset_reset="earliest") as consumer,
    ):
        public = {name: getattr(tidelog, name) for name in tidelog.__all__}
        yield {**public, "admin": admin, "producer": producer, "consumer": consumer}


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_class_that_users_make_has_an_example(cls: type) -> None:
    assert example_of(cls)


def test_results_are_public_names() -> None:
    assert set(tidelog.__all__) >= RESULTS


def test_examples_run_in_their_order(names: dict[str, Any], servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed: dict[str, str] = {}
    for cls in CLASSES:
        example = example_of(cls).replace(ADDRESS, f"bootstrap_servers='{servers}'")
        own = {name: getattr(tidelog.aio, name) for name in tidelog.aio.__all__} if "async with" in example else {}
        try:
            run(example, {**names, **own})
        except Exception as error:
            raise AssertionError(f"the example of {cls.__qualname__}: {error!r}\n{example}") from error
        names["consumer"].unsubscribe()
        printed[f"{cls.__module__.split('.')[1]}.{cls.__qualname__}"] = capsys.readouterr().out
    (leaders,) = re.findall(r"^orders \[(.*)\]$", printed["client.Admin"], re.MULTILINE)
    assert set(leaders.split(", ")) <= {"1", "2", "3"}
    assert re.fullmatch(r"\d 0\n", printed["client.Producer"])
    assert "b'customer 7' b'9 books'" in printed["client.Consumer"]
    assert re.fullmatch(r"[1-9]\d* rows\n", printed["arrow.scan"])
    assert "'orders'" in printed["aio.Admin"] and "'payments'" in printed["aio.Admin"]
    assert "reads [TopicPartition(topic='orders', partition=0)" in printed["groups.ConsumerRebalanceListener"]
