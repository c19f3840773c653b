"""Kafka Streams counts words, at least once, with its state in a changelog topic, also while a broker is killed."""

from __future__ import annotations

import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import confluent_kafka as ck
import pytest

from tests.clients.adapters.client_program import ProgramProcess
from tests.clients.adapters.registry import JAVA_VERSIONS, Clients
from tests.clients.cluster_under_test import ClusterUnderTest
from tests.processes.harness.waiting import wait_for
from tidelog import TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("clients")]  # all share one cluster

LINES = ["the tide takes the log", "a log of a tide", "the log"]

_numbers = count(1)


@contextmanager
def word_count(client: Clients, name: str, number: int, state: Path) -> Iterator[ProgramProcess]:
    """Run the program from the topic `lines-…` to the topic `counts-…` until the end."""
    process = client.program(name).start()
    settings = {
        "application.id": f"word-count-{number}",
        "state.dir": str(state),
        "commit.interval.ms": "200",
        "auto.offset.reset": "earliest",
        "replication.factor": "3",
    }
    process.write({"do": "count_words", "from": f"lines-{number}", "to": f"counts-{number}", "settings": settings})
    assert process.read() == {"running": True}
    yield process
    process.write({"do": "stop"})
    assert process.read() == {"result": True}
    process.stop()


def write(cluster: ClusterUnderTest, number: int, times: int) -> None:
    producer = ck.Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for _ in range(times):
        for line in LINES:
            producer.produce(f"lines-{number}", line.encode())
    assert producer.flush(60) == 0


class Counts:
    """Reads the topic of counts; the last count of each word is the present one."""

    def __init__(self, cluster: ClusterUnderTest, number: int) -> None:
        self._consumer = ck.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none"})
        topic = f"counts-{number}"
        self._consumer.assign([ck.TopicPartition(topic, each, ck.OFFSET_BEGINNING) for each in range(2)])
        self.found: dict[str, int] = {}

    def read(self) -> dict[str, int]:
        for message in self._consumer.consume(500, timeout=0.5):
            if message.error() is None:
                self.found[message.key().decode()] = struct.unpack(">q", message.value())[0]
        return self.found

    def close(self) -> None:
        self._consumer.close()


@pytest.fixture
def number() -> int:
    """Return a number that names the topics and the application of one test."""
    return next(_numbers)


@pytest.fixture
def counts(cluster: ClusterUnderTest, number: int) -> Iterator[Counts]:
    cluster.create_topic(f"lines-{number}", 2)
    cluster.create_topic(f"counts-{number}", 2)
    with closing(Counts(cluster, number)) as reader:
        yield reader


def expected(times: int) -> dict[str, int]:
    return {word: times * each for word, each in Counter(" ".join(LINES).split()).items()}


@pytest.mark.parametrize("name", JAVA_VERSIONS)
def test_word_count_survives_a_restart_and_a_lost_state_directory(
    cluster: ClusterUnderTest, client: Clients, number: int, counts: Counts, tmp_path: Path, name: str
) -> None:
    with word_count(client, name, number, tmp_path / "state"):
        write(cluster, number, 10)
        wait_for("the counts", lambda: counts.read() == expected(10), 60)
    # The next run restores its state from the changelog topic.
    shutil.rmtree(tmp_path / "state")
    with word_count(client, name, number, tmp_path / "state"):
        write(cluster, number, 5)
        wait_for("the counts of both runs", lambda: counts.read() == expected(15), 60)


@pytest.mark.parametrize("name", JAVA_VERSIONS)
def test_word_count_loses_nothing_with_a_killed_broker(
    cluster: ClusterUnderTest, client: Clients, number: int, counts: Counts, tmp_path: Path, name: str
) -> None:
    with word_count(client, name, number, tmp_path / "state"):
        write(cluster, number, 10)
        wait_for("the counts", lambda: counts.read() == expected(10), 60)
        leader = cluster.leader(TopicPartition(f"lines-{number}", 0))
        cluster.kill(leader)
        try:
            write(cluster, number, 10)
            # At least once: a word may be counted again, and none is lost.
            wanted = expected(20)
            wait_for(
                "the counts of both parts",
                lambda: all(counts.read().get(word, 0) >= each for word, each in wanted.items()),
                120,
            )
        finally:
            cluster.restart(leader)
            for partition in range(2):
                cluster.wait_in_sync(TopicPartition(f"lines-{number}", partition))
