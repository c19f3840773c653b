"""Test that our clients read logs of message formats 0 and 1, which Kafka 3.9 still writes for old settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.harness.command import Shell
from tests.processes.harness.kafka import KafkaBroker, kafka_brokers
from tests.processes.harness.waiting import wait_for
from tidelog import Admin, ConfigResource, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("any-kafka-kafka-3.9")]

T0 = 1_700_000_000_000
_MAGIC_AT = 16
#: The settings of message.format.version, and the magic byte of the records that a broker then writes.
FORMATS = {"0.9.0": 0, "0.10.2": 1, "2.3": 2}
CODECS = ("none", "gzip", "snappy", "lz4")
_SETTINGS = {
    "inter.broker.protocol.version": "2.3",
    "log.message.format.version": "2.3",
    "log.retention.ms": -1,
    "offsets.topic.replication.factor": 1,
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """Run one broker of Kafka 3.9 that speaks the protocol between brokers of Kafka 2.3."""
    with kafka_brokers(tmp_path_factory.mktemp("old") / "kafka", 1, _SETTINGS) as (started,):
        started.start()
        yield started


class Log:
    """A topic of one partition that the test fills.

    expected   the timestamp (−1: the format has none) and the value of each record
    """

    def __init__(self, broker: KafkaBroker, topic: str) -> None:
        self.expected: list[tuple[int, bytes]] = []
        self._broker = broker
        self._topic = topic

    def fill(self, formats: tuple[str, ...]) -> None:
        """Write 20 records in each codec of each format, and the records that wait for the format to be used."""
        with Admin(bootstrap_servers=self._broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(self._topic, 1, 1)])
            for version in formats:
                admin.alter_configs({ConfigResource.topic(self._topic): {"message.format.version": version}})
                wait_for(f"the format of {version}", lambda version=version: self._probe() == FORMATS[version], 30)
                for codec in CODECS:
                    self._send(codec, [f"{version}-{codec}-{number}".encode() for number in range(20)])
                    self.expected[-20:] = [(at_ms if FORMATS[version] else -1, v) for at_ms, v in self.expected[-20:]]

    def _probe(self) -> int:
        """Write a record, and return the magic byte that the broker has given it."""
        self._send("none", [b"probe"])
        magic = self.magics()[-1]
        if not magic:
            self.expected[-1] = (-1, b"probe")
        return magic

    def _send(self, codec: str, values: list[bytes]) -> None:
        servers = self._broker.bootstrap_servers
        with Producer(
            bootstrap_servers=servers, compression_type=codec, enable_idempotence=False, linger_ms=50
        ) as producer:
            for value in values:
                at_ms = T0 + 1000 * len(self.expected)
                producer.send(self._topic, value, partition=0, timestamp_ms=at_ms)
                self.expected.append((at_ms, value))

    def magics(self) -> list[int]:
        """Return the magic byte of each entry in the file."""
        log = (self._broker.data / f"{self._topic}-0" / f"{0:020}.log").read_bytes()
        found, at = [], 0
        while len(log) - at > _MAGIC_AT:
            found.append(log[at + _MAGIC_AT])
            at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")
        return found


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_log_of_three_formats_is_read_whole(broker: KafkaBroker, isolation: str) -> None:
    topic = f"mixed-{isolation}"
    tp, log = TopicPartition(topic, 0), Log(broker, topic)
    log.fill(tuple(FORMATS))
    assert {*log.magics()} == {0, 1, 2}
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level=isolation,  # type: ignore[arg-type]
        consumer_timeout_ms=30_000,
    ) as consumer:
        consumer.assign([tp])
        found = [record for record, _ in zip(consumer, log.expected, strict=False)]
        assert [(record.offset, record.timestamp, record.value) for record in found] == [
            (offset, at_ms, value) for offset, (at_ms, value) in enumerate(log.expected)
        ]
        consumer.seek(tp, 5)
        assert next(iter(consumer)).offset == 5, "in the middle of a message set"
        late = len(log.expected) - 5
        by_time = consumer.offsets_for_times({tp: T0 + 1000 * late})[tp]
        assert by_time is not None and by_time.offset == late


def test_commands_read_old_formats(broker: KafkaBroker, tmp_path: Path) -> None:
    topic = "by-command"
    log = Log(broker, topic)
    log.fill(("0.9.0", "0.10.2"))
    count = len(log.expected)
    shell, where = Shell(tmp_path, tmp_path / "home"), ("--bootstrap-servers", broker.bootstrap_servers)
    assert shell.succeed("consume", topic, *where).splitlines() == [value for _, value in log.expected]
    described = shell.succeed("topic", "describe", topic, "--times", *where).decode()
    assert described.splitlines()[1].split()[:2] == ["0", str(count)]
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_consumer_group_offsets("old", {TopicPartition(topic, 0): OffsetAndMetadata(count - 30)})
        (lag,) = admin.consumer_group_lag("old").values()
    assert lag.lag == 30 and lag.lag_ms is not None
