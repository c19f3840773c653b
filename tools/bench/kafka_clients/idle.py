"""Measures what idle clients cost the brokers: thousands of connections, and consumers of a thousand partitions."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidelog.errors import LocalError
from tidelog.local.java import find_java
from tools.bench.kafka_clients.open_files import allow_connections
from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured
from tools.check.toolbox import NotRun, kafka_jars
from tools.supervised_process import KILL, supervised

CONNECTIONS = 5_000
PARTITIONS = 1_000
_SETTLE_S = 3.0
WATCH_S = 8.0
_JAVA_SOURCE = Path(__file__).with_name("IdleConsumer.java")
#: ApiVersions version 0 with correlation id 1 and the client id "idle", without its size.
_API_VERSIONS = b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04idle"


def measure_connections(target: Target) -> dict[str, float]:
    """Return what CONNECTIONS idle connections add to the memory of all brokers (MB), and the brokers' CPU beside them.

    Each has made one request. `cpu` is in % of a core, and `cpu_before` is that without them.
    """
    cpu_before = _cpu_percent(target)
    before = target.resident_mb()
    with ExitStack() as stack:
        _connect(target, stack)
        cpu = _cpu_percent(target)
        return {"memory": target.resident_mb() - before, "cpu": cpu, "cpu_before": cpu_before}


def _connect(target: Target, stack: ExitStack) -> None:
    allow_connections(CONNECTIONS)
    addresses = [server.rpartition(":") for server in target.bootstrap_servers.split(",")]
    for number in range(CONNECTIONS):
        host, _, port = addresses[number % len(addresses)]
        connection = stack.enter_context(socket.create_connection((host, int(port)), 30))
        connection.sendall(len(_API_VERSIONS).to_bytes(4, "big") + _API_VERSIONS)
        if not connection.recv(4096):
            raise NotMeasured(f"connection {number} was closed by {host}:{port}")


def measure_consumer(target: Target) -> dict[str, float]:
    """Return the CPU of all brokers (% of a core) beside a consumer of PARTITIONS idle partitions, and before it.

    The consumer is confluent-kafka's with its default settings.
    """
    topic = target.create_topic(PARTITIONS)
    before = _cpu_percent(target)
    with _polling(target, topic):
        cpu = _cpu_percent(target)
    target.delete_topic(topic)
    return {"cpu": cpu, "cpu_before": before}


def measure_java_consumer(target: Target) -> dict[str, float]:
    """Return the CPU of all brokers (% of a core) beside a Java consumer of PARTITIONS idle partitions.

    The client is in the jars of Kafka's tools, which Maven fetches once.
    """
    try:
        java, jars = find_java(), kafka_jars()
    except (LocalError, NotRun) as error:
        raise NotMeasured(str(error)) from None
    if not shutil.which(java.with_name("javac")):
        raise NotMeasured("the Java consumer is compiled as it starts: apt-get install openjdk-17-jdk-headless")
    topic = target.create_topic(PARTITIONS)
    command: list[str | Path] = [java, "-Xmx256m", "-cp", f"{jars}/*", _JAVA_SOURCE, target.bootstrap_servers, topic]
    with supervised(command, KILL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise NotMeasured("the Java consumer did not start")
        cpu = _cpu_percent(target)
        if process.poll() is not None:
            raise NotMeasured("the Java consumer ended")
    target.delete_topic(topic)
    return {"cpu": cpu}


@contextmanager
def _polling(target: Target, topic: str) -> Iterator[None]:
    """Poll all partitions of the topic from their ends in a thread while the block runs."""
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumer = Consumer({**target.client, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    stopping = threading.Event()

    def poll() -> None:
        while not stopping.is_set():
            consumer.poll(0.5)

    consumer.assign([TopicPartition(topic, number, OFFSET_END) for number in range(PARTITIONS)])
    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        consumer.close()


def _cpu_percent(target: Target) -> float:
    """Return the CPU of all brokers over WATCH_S, in % of a core, after the effects of earlier work have ended."""
    time.sleep(_SETTLE_S)
    used, started = target.cpu_s(), time.monotonic()
    time.sleep(WATCH_S)
    return 100 * (target.cpu_s() - used) / (time.monotonic() - started)
