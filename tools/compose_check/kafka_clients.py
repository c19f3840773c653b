"""Reaches the cluster by unmodified Kafka clients: confluent-kafka on the host, kafka-python in another container."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from tidelog.model import Endpoint
from tools.compose_check.engine import Containers, Failed

_LONGEST_S = 60
_PROGRAM = Path(__file__).with_name("network_client.py")


def brokers_seen(bootstrap: Endpoint) -> dict[int, Endpoint]:
    """Return the brokers' addresses, by broker id, that the broker at this address gives to Kafka clients."""
    with _failures():
        brokers = AdminClient(_settings(bootstrap)).list_topics(timeout=_LONGEST_S).brokers
    return {broker_id: Endpoint(str(broker.host), broker.port) for broker_id, broker in brokers.items()}


def create_topic(bootstrap: Endpoint, topic: str, partitions: int) -> None:
    # The variable keeps the client alive: its requests end when the client is freed.
    admin = AdminClient(_settings(bootstrap))
    with _failures():
        admin.create_topics([NewTopic(topic, partitions)])[topic].result(_LONGEST_S)


def produce(bootstrap: Endpoint, topic: str, values: Iterable[str]) -> None:
    """Produce these values, and raise Failed unless each of them is acknowledged."""
    producer = Producer(_settings(bootstrap))
    refusals: list[KafkaError] = []

    def note(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refusals.append(error)

    with _failures():
        for value in values:
            producer.produce(topic, value, on_delivery=note)
            producer.poll(0)
        waiting = producer.flush(_LONGEST_S)
    if waiting or refusals:
        raise Failed(f"confluent-kafka: {len(refusals)} records refused, {waiting} without an answer: {refusals[:1]}")


def consume(bootstrap: Endpoint, topic: str, group: str, count: int) -> list[str]:
    """Return the values that a new group reads from the start of the topic, until at least `count` have arrived.

    After a minute the values that have arrived by then are returned. Raises Failed if the client reports an error.
    """
    settings = _settings(bootstrap) | {"group.id": group, "auto.offset.reset": "earliest"}
    values: list[str] = []
    deadline = time.monotonic() + _LONGEST_S
    with _failures(), closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        while len(values) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.5):
                if error := message.error():
                    raise KafkaException(error)
                values.append((message.value() or b"").decode())
    return values


def consume_and_produce_in_network(
    containers: Containers, bootstrap: Endpoint, topic: str, count: int, values: Iterable[str]
) -> tuple[dict[int, Endpoint], list[str]]:
    """Read the first `count` values of the topic, and produce `values`, in a container of the compose network.

    Returns the brokers' addresses that the client receives, by broker id, and the values that the client read.
    """
    found = find_spec("kafka")
    if found is None or found.origin is None:
        raise Failed("kafka-python is not installed")
    files = {Path(found.origin).parent: "/check/kafka", _PROGRAM: f"/check/{_PROGRAM.name}"}
    command = (f"/check/{_PROGRAM.name}", str(bootstrap), topic, str(count))
    printed = containers.run_python(files, *command, given="".join(f"{value}\n" for value in values))
    result = json.loads(printed)
    return {int(number): Endpoint.parse(address) for number, address in result["brokers"].items()}, result["values"]


def _settings(bootstrap: Endpoint) -> dict[str, Any]:
    # A log level of 0 keeps the client from logging on standard error. Its errors are still raised.
    return {"bootstrap.servers": str(bootstrap), "log_level": 0}


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise Failed(f"confluent-kafka: {error}") from error
