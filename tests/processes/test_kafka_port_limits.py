"""The settings of a running broker limit its port for Kafka's clients."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from struct import pack

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.processes.harness.cluster import running_cluster
from tests.processes.harness.waiting import wait_for
from tidelog.model import Endpoint

S = 60
MOST_BYTES = 1_048_576
#: Another address than that of the clients of the test, because the broker counts connections by address.
FROM = ("127.0.0.2", 0)


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=S, source_address=FROM) as connection:
        yield connection


def metadata_request(size: int = 1_000) -> bytes:
    """Return a Metadata request of version 1 of `size` bytes, which names topics of up to 32,000 letters."""
    names, left = [], size - 14
    while left:
        length = min(left - 2, 32_000)
        names.append(pack(">h", length) + b"t" * length)
        left -= 2 + length
    return pack(">ihhihi", size, 3, 1, 1, 0, len(names)) + b"".join(names)


def is_served(connection: socket.socket, request: bytes) -> bool:
    """Return whether the broker responds to the request; if not, it closes the connection."""
    try:
        connection.sendall(request)
        return connection.recv(1) != b""
    except ConnectionError:
        return False


def test_settings_limit_frames_and_connections_of_kafkas_clients(tmp_path: Path) -> None:
    with (
        running_cluster(tmp_path, brokers=1, socket_request_max_bytes=MOST_BYTES, max_connections_per_ip=2) as cluster,
        ExitStack() as stack,
    ):
        server = cluster.kafka_bootstrap_servers
        port = Endpoint.parse(server).port
        with connected(port) as large, connected(port) as larger:
            assert is_served(large, metadata_request(MOST_BYTES))
            assert not is_served(larger, pack(">i", MOST_BYTES + 1)), "the size alone is enough"

        first, second = (stack.enter_context(connected(port)) for _ in range(2))
        assert is_served(first, metadata_request()) and is_served(second, metadata_request())
        with connected(port) as third:
            assert not is_served(third, metadata_request())

        admin = AdminClient({"bootstrap.servers": server})
        more = [ConfigEntry("max.connections.per.ip", "3", incremental_operation=AlterConfigOpType.SET)]
        broker = ConfigResource(ResourceType.BROKER, str(cluster.broker_ids[0]), incremental_configs=more)
        admin.incremental_alter_configs([broker])[broker].result(S)

        def third_is_served() -> bool:
            with connected(port) as third:
                return is_served(third, metadata_request())

        wait_for("the new setting to hold", third_is_served)
        assert is_served(first, metadata_request()), "connections stay open"
