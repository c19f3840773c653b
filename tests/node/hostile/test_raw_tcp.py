"""TCP peers of a listener that do not speak its protocol, or speak it wrongly."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.node.hostile.live_listeners import BROKERS, CLIENTS, Canary, LiveListeners, resident_bytes
from tidelog.protocol.codec import MAX_FRAME_BYTES

LISTENERS = pytest.mark.parametrize("listener", [CLIENTS, BROKERS])

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
HANDSHAKE = GREETING + bytes([4, len(READY)]) + READY


@contextmanager
def tcp(live: LiveListeners, listener: str) -> Iterator[socket.socket]:
    endpoint = live.endpoints[listener]
    with socket.create_connection((endpoint.host, endpoint.port), timeout=20) as connection:
        yield connection


def disconnected(connection: socket.socket) -> bool:
    """Return whether the broker ends the connection, after any bytes that it sends."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


OVERSIZED = [
    *(
        (BROKERS, HANDSHAKE + b"\x02" + struct.pack(">Q", size))
        for size in (MAX_FRAME_BYTES + 1, 1 << 40, (1 << 63) - 1)
    ),
    (BROKERS, HANDSHAKE + b"\x02" + b"\xff" * 8),
    *((CLIENTS, struct.pack(">i", size)) for size in (104_857_601, (1 << 31) - 1, -1, -(1 << 31))),
]


@pytest.mark.parametrize(("listener", "start"), OVERSIZED)
def test_oversized_frame_ends_its_connection_before_memory_is_taken(
    live: LiveListeners, listener: str, start: bytes
) -> None:
    canary, before = Canary(live), resident_bytes()
    with tcp(live, listener) as connection:
        connection.sendall(start + b"x" * 1000)
        assert disconnected(connection)
    canary.check()
    assert resident_bytes() - before < 16 << 20


@pytest.mark.parametrize(
    ("listener", "start"),
    [
        (BROKERS, HANDSHAKE + b"\x02" + struct.pack(">Q", MAX_FRAME_BYTES)),
        (CLIENTS, struct.pack(">i", 104_857_600)),
    ],
)
def test_announced_frames_that_never_come_delay_no_other_client(
    live: LiveListeners, listener: str, start: bytes
) -> None:
    canary, before = Canary(live), resident_bytes()
    connections = [tcp(live, listener) for _ in range(20)]
    opened = [each.__enter__() for each in connections]
    for connection in opened:
        connection.sendall(start + b"x" * 1000)
    for _ in range(5):
        canary.check()
    assert resident_bytes() - before < 64 << 20
    for each in connections:
        each.__exit__(None, None, None)
    canary.check()


@LISTENERS
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\0" * 10_000,
        b"\x00\x00\x00\x10\x00\x12\x00\x00\x00\x00\x00\x01",  # the first bytes of a Kafka client
        GREETING[:30],
        GREETING + b"\xff" * 1000,
        GREETING.replace(b"NULL", b"CURV") + b"x" * 100,
        HANDSHAKE + b"\x07" * 1000,
        HANDSHAKE + b"\x01\x00" * 20_000,  # a message of 20,000 parts that never ends
        HANDSHAKE + b"\x04\xff" + b"\x04PING" + b"x" * 250,
    ],
)
def test_foreign_protocols_disturb_no_client(live: LiveListeners, listener: str, data: bytes) -> None:
    canary = Canary(live)
    with tcp(live, listener) as connection:
        connection.sendall(data)
        canary.check()
    canary.check()
