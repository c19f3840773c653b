"""Test that unread bytes of a process's connections are counted by port, with real sockets."""

from __future__ import annotations

import os
import socket

from verify.chaos.faults.support.client_endpoints import unread_bytes

#: No process has a greater number.
GONE = 1 << 22


def test_unread_bytes_of_connections_to_a_port_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(bytes(1000))
        assert unread_bytes(os.getpid(), port) == 2000
        accepted, _ = server.accept()
        with accepted:
            accepted.recv(1000, socket.MSG_WAITALL)
            assert unread_bytes(os.getpid(), port) == 1000


def test_process_that_has_ended_has_no_unread_bytes() -> None:
    assert unread_bytes(GONE, 9092) == 0
