"""Runs librdkafka's mock cluster in a process of its own: three brokers in one thread, in C, that replicate nothing.

The mock answers every request at once from memory, and keeps the last 5 MB of each partition. A client that measures
against it measures itself. The process calls the library that confluent-kafka brings along, because its Python package
offers mock clusters only to the client that owns one.
"""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured
from tools.supervised_process import KILL, supervised

_BROKERS = 3
_PRODUCER = 0  # RD_KAFKA_PRODUCER: the client that owns the mock cluster
_PARTITIONS = (1, 6)


class MockTarget(Target):
    """A mock cluster with one topic for each number of partitions in `_PARTITIONS`. All brokers are one process."""

    def __init__(self, bootstrap_servers: str, pid: int) -> None:
        super().__init__(bootstrap_servers)
        self._pid = pid

    @property
    def pids(self) -> Mapping[int, int]:
        return {1: self._pid}

    def create_topic(self, partitions: int) -> str:
        """Return the topic with so many partitions, which exists already."""
        assert partitions in _PARTITIONS
        return _topic(partitions)

    def delete_topic(self, topic: str) -> None:
        """Do nothing, because the topic ends with the process."""


@contextmanager
def mock_cluster() -> Iterator[MockTarget]:
    """Run a mock cluster while the block runs."""
    with supervised([sys.executable, "-P", "-m", __name__], KILL, stdout=subprocess.PIPE, stderr=None) as process:
        assert process.stdout is not None
        servers = process.stdout.readline().decode().strip()
        if not servers:
            raise NotMeasured("librdkafka's mock cluster did not start")
        yield MockTarget(servers, process.pid)


def _topic(partitions: int) -> str:
    return f"partitions-{partitions}"


def _serve() -> None:
    """Print the addresses of a new mock cluster, and serve until this process is killed."""
    library = ctypes.CDLL(str(_library()))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    error = ctypes.create_string_buffer(256)
    settings = ctypes.c_void_p(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"log_level", b"0", None, ctypes.c_size_t(0))
    owner = library.rd_kafka_new(_PRODUCER, settings, error, ctypes.c_size_t(len(error)))
    if not owner:
        sys.exit(f"librdkafka: {error.value.decode()}")
    cluster = ctypes.c_void_p(library.rd_kafka_mock_cluster_new(ctypes.c_void_p(owner), _BROKERS))
    for partitions in _PARTITIONS:
        library.rd_kafka_mock_topic_create(cluster, _topic(partitions).encode(), partitions, _BROKERS)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    while True:
        signal.pause()


def _library() -> Path:
    """Return the shared library of librdkafka beside the package confluent-kafka."""
    import confluent_kafka

    packages = Path(confluent_kafka.__file__).parent.parent
    found = sorted((packages / "confluent_kafka.libs").glob("librdkafka*"))
    if not found:
        sys.exit("confluent-kafka was installed without a library of its own: install its wheel")
    return found[0]


if __name__ == "__main__":
    _serve()
