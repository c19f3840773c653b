"""The port for clients keeps the limits of the broker's settings, and outlives a lack of descriptors."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from struct import pack

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.processes.harness.asking import is_served
from tests.processes.harness.cluster import running_cluster
from tests.processes.harness.descriptors import begin_to_connect, has_hardly_any_left, limited_to
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


@pytest.mark.slow
def test_settings_limit_frames_and_connections_of_clients(tmp_path: Path) -> None:
    with (
        running_cluster(tmp_path, brokers=1, socket_request_max_bytes=MOST_BYTES, max_connections_per_ip=2) as cluster,
        ExitStack() as stack,
    ):
        server = cluster.bootstrap_servers
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


def test_port_without_descriptors_serves_its_connections_and_recovers(tmp_path: Path) -> None:
    with running_cluster(tmp_path, brokers=1) as cluster:
        endpoint, process = Endpoint.parse(cluster.bootstrap_servers), cluster.local.broker_process(1)
        assert process is not None
        with connected(endpoint.port) as early:
            assert is_served(early, metadata_request())
            with ExitStack() as held, limited_to(process.pid, 3):
                for _ in range(400):
                    begin_to_connect(endpoint, held)
                wait_for("the last descriptor", lambda: has_hardly_any_left(process.pid))
                for _ in range(100):
                    assert is_served(early, metadata_request())
                wait_for("the last descriptor again", lambda: has_hardly_any_left(process.pid))

            def late_is_served() -> bool:
                with connected(endpoint.port) as late:
                    return is_served(late, metadata_request())

            wait_for("a new connection to be served", late_is_served, S)
            assert is_served(early, metadata_request())
        assert process.running and not cluster.said(1, "Traceback")
