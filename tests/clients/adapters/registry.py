"""The foreign clients by name, and how a test gets one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.clients.adapters import kcat
from tests.clients.adapters.aio_kafka import AioKafka
from tests.clients.adapters.confluent import ConfluentKafka
from tests.clients.adapters.foreign_client import ForeignClient
from tests.clients.adapters.kafka_python import KafkaPython

CLIENTS: dict[str, Callable[[str], ForeignClient]] = {
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "kcat": kcat.Kcat,
}
NAMES = tuple(CLIENTS)


def client_of(name: str, bootstrap_servers: str) -> ForeignClient:
    """Return a client of the cluster. The test is skipped if the machine has no kcat."""
    if name == "kcat" and kcat.PROGRAM is None:
        pytest.skip("this machine has no kcat (Debian: apt-get install kcat)")
    return CLIENTS[name](bootstrap_servers)
