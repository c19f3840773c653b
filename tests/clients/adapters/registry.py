"""The foreign clients by name, and how a test gets one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.clients.adapters import builds, kcat
from tests.clients.adapters.aio_kafka import AioKafka
from tests.clients.adapters.client_program import ProgramClient
from tests.clients.adapters.confluent import ConfluentKafka
from tests.clients.adapters.foreign_client import ForeignClient
from tests.clients.adapters.kafka_python import KafkaPython

CLIENTS: dict[str, Callable[[str], ForeignClient]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "kcat": kcat.Kcat,
}
#: The clients that each run of the tests has.
NAMES = tuple(CLIENTS)

#: Kafka's Java clients. The tests build a program for each.
JAVA_VERSIONS = {"java-3.9": "3.9.1", "java-4.3": "4.3.1"}
#: The Go module of each client in Go.
GO_MODULES = {"franz-go": "github.com/twmb/franz-go", "sarama": "github.com/IBM/sarama"}
#: The clients in other languages, whose tests are `slow`.
PROGRAMS = (*JAVA_VERSIONS, *GO_MODULES)


def with_programs(names: tuple[str, ...] = NAMES) -> list[object]:
    """Return the names as parameters, followed by those of the clients in other languages, which are `slow`."""
    return [*names, *(pytest.param(each, marks=pytest.mark.slow) for each in PROGRAMS)]


class Clients:
    """Makes the clients of one cluster, each once, and stops their programs at the end."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._programs: dict[str, ProgramClient] = {}
        self._stack = ExitStack()

    def __call__(self, name: str) -> ForeignClient:
        """Return a client of the cluster. The test is skipped if the machine does not have the client."""
        if name in PROGRAMS:
            return self.program(name)
        if name == "kcat" and kcat.PROGRAM is None:
            pytest.skip("this machine has no kcat (Debian: apt-get install kcat)")
        return CLIENTS[name](self._servers)

    def program(self, name: str) -> ProgramClient:
        """Return a client in another language."""
        if name not in self._programs:
            client = self._programs[name] = _program_client(name, self._servers)
            self._stack.callback(client.stop)
        return self._programs[name]

    def close(self) -> None:
        self._stack.close()


def _program_client(name: str, servers: str) -> ProgramClient:
    if name in JAVA_VERSIONS:
        version = JAVA_VERSIONS[name]
        return ProgramClient(name, version, lambda: builds.java_client(version), servers, is_idempotent=True)
    return ProgramClient(
        name,
        builds.go_module_version(GO_MODULES[name]),
        lambda: [builds.go_client(), name],
        servers,
        is_idempotent=name == "franz-go",
    )
