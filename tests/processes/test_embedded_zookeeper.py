from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tidelog.errors import LocalError
from tidelog.local.processes.ports import choose_port
from tidelog.local.processes.process import Process
from tidelog.local.zookeeper import EmbeddedZooKeeper, serves
from tidelog.model import Endpoint


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(tmp_path / "a b" / "zoo")
    yield server
    server.stop()


def write_and_read(server: EmbeddedZooKeeper, path: str, value: bytes | None = None) -> bytes:
    client = KazooClient(server.hosts, timeout=5)
    client.start(timeout=10)
    try:
        if value is not None:
            client.create(path, value)
        read: bytes = client.get(path)[0]
        return read
    finally:
        client.stop()
        client.close()


def test_zookeeper_serves_as_soon_as_start_returns(zookeeper: EmbeddedZooKeeper) -> None:
    zookeeper.start()
    assert serves(Endpoint.parse(zookeeper.hosts))
    assert write_and_read(zookeeper, "/here", b"42") == b"42"
    assert "binding to port" in zookeeper.log_file.read_text()


@pytest.mark.slow
def test_port_and_data_are_kept_from_one_start_to_the_next(zookeeper: EmbeddedZooKeeper) -> None:
    zookeeper.start()
    write_and_read(zookeeper, "/kept", b"still here")
    zookeeper.stop()
    assert not serves(Endpoint.parse(zookeeper.hosts))

    again = EmbeddedZooKeeper(zookeeper.data_dir)
    assert again.port == zookeeper.port
    with again:
        assert write_and_read(again, "/kept") == b"still here"


def test_chosen_port_is_reserved_until_the_server_listens(zookeeper: EmbeddedZooKeeper) -> None:
    zookeeper.launch()
    with ExitStack() as held:
        assert choose_port(held, preferred=zookeeper.port) != zookeeper.port
    zookeeper.wait_ready(20_000)
    assert write_and_read(zookeeper, "/here", b"42") == b"42"


def test_zookeeper_data_survives_a_kill(zookeeper: EmbeddedZooKeeper) -> None:
    zookeeper.start()
    write_and_read(zookeeper, "/kept", b"still here")
    assert zookeeper.process is not None
    assert zookeeper.process.signal(signal.SIGKILL)
    assert zookeeper.process.wait(5_000)
    zookeeper.start()
    assert write_and_read(zookeeper, "/kept") == b"still here"


def test_a_later_command_can_stop_what_an_earlier_one_started(zookeeper: EmbeddedZooKeeper) -> None:
    zookeeper.start()
    started = zookeeper.process
    assert started is not None
    later = EmbeddedZooKeeper(zookeeper.data_dir, process=Process(started.pid, started.birth))
    later.stop()
    assert not started.running
    assert not serves(Endpoint.parse(zookeeper.hosts))


def test_a_recycled_pid_is_left_alone() -> None:
    someone_else = Process(os.getpid(), "an earlier birth")
    assert not someone_else.running
    assert not someone_else.signal(signal.SIGKILL)


def test_a_taken_port_is_named_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LocalError, match=rf"^port {port} of ZooKeeper is in use: .*$"):
            EmbeddedZooKeeper(tmp_path, port).start()


def test_failed_start_names_the_reason(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where a directory must be")
    server = EmbeddedZooKeeper(tmp_path)
    with pytest.raises(LocalError, match=r"ZooKeeper ended while it started: .+ \(see "):
        server.start()
    assert not server.running
