"""Members of a group that are clients of other libraries."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from typing import Protocol

import confluent_kafka as ck
import kafka

from tools.check.toolbox import kafka_command


class ForeignMember(Protocol):
    """One member, which begins at the earliest offset.

    values   of the records that it has read so far
    """

    @property
    def values(self) -> list[bytes]: ...

    def poll(self) -> None:
        """Take part in the group for a moment, and read records if there are any."""

    def close(self) -> None:
        """Leave the group after a commit of the positions."""


class Librdkafka:
    """A member of confluent-kafka."""

    def __init__(self, servers: str, topic: str, group: str, strategy: str) -> None:
        self.values: list[bytes] = []
        settings = {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
        self._consumer = ck.Consumer({**settings, "partition.assignment.strategy": strategy})
        self._consumer.subscribe([topic])

    def poll(self) -> None:
        message = self._consumer.poll(0.2)
        if message is not None and message.error() is None:
            self.values.append(message.value() or b"")

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """A member of kafka-python."""

    def __init__(self, servers: str, topic: str, group: str, strategy: str) -> None:
        self.values: list[bytes] = []
        assert strategy == "range", "the strategy of kafka-python's members here"
        self._consumer = kafka.KafkaConsumer(
            topic, bootstrap_servers=servers.split(","), group_id=group, auto_offset_reset="earliest"
        )

    def poll(self) -> None:
        for records in self._consumer.poll(200).values():
            self.values += [record.value for record in records]

    def close(self) -> None:
        self._consumer.close()


class Java:
    """A member of Java's client: kafka-console-consumer, which prints values."""

    def __init__(self, servers: str, topic: str, group: str, strategy: str) -> None:
        self._read = b""
        java_name = {"range": "RangeAssignor", "cooperative-sticky": "CooperativeStickyAssignor"}[strategy]
        command = kafka_command("org.apache.kafka.tools.consumer.ConsoleConsumer")
        command += ["--bootstrap-server", servers, "--topic", topic, "--group", group, "--from-beginning"]
        command += [
            "--consumer-property",
            f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{java_name}",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self._process.stdout is not None
        self._output = self._process.stdout
        os.set_blocking(self._output.fileno(), False)

    @property
    def values(self) -> list[bytes]:
        return self._read.split(b"\n")[:-1]

    def poll(self) -> None:
        assert self._process.poll() is None, "the consumer has ended"
        self._read += self._output.read() or b""

    def close(self) -> None:
        """Stop the process by SIGTERM, at which it leaves the group."""
        self._process.terminate()
        self._process.wait(60)
        self._output.close()


#: A member of each library, with the strategies that are tested with it.
Begin = Callable[[str, str, str, str], ForeignMember]
MEMBERS: Mapping[tuple[str, str], Begin] = {
    ("librdkafka", "range"): Librdkafka,
    ("librdkafka", "cooperative-sticky"): Librdkafka,
    ("kafka-python", "range"): KafkaPython,
    ("java", "range"): Java,
    ("java", "cooperative-sticky"): Java,
}
