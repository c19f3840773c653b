"""Peers of a Kafka listener that misbehave until they are killed: `python -m tools.bench.clusters.bad_peers KIND …`.

    garbage        one connection after the other, in turn random bytes, a claim of a huge request, and a valid header
                   with a random body
    pipeline       requests for all metadata on one connection, of which no response is read
    idle           CONNECTIONS that have each sent ApiVersions, and then nothing
    slow-writers   CONNECTIONS that each send one byte a second of a request of 1 MiB
    slow-readers   CONNECTIONS that each fetch TOPIC from its beginning 20 times at once, and read 1 KiB a second of the
                   responses
    fetches        CONNECTIONS with a fetch of TOPIC that waits for more bytes than will ever come

The process prints one line when it begins, or when its connections are open. `garbage` prints another one after each
REPORTED_EACH connections. The process has the lowest priority, because peers would be on other machines, and must not
take the processor from the brokers.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from struct import pack

from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest, MetadataRequest
from tidelog.protocol.kafka.messages.records import FetchPartition, FetchRequest, FetchTopic
from tidelog.protocol.kafka.schema import Request

_GARBAGE_BYTES = 64 * 1024
_BODY_BYTES = 2000
#: `garbage` prints a line after each so many connections.
REPORTED_EACH = 100
_NEVER_THERE = 1 << 30  # bytes


def main(kind: str, host: str, port: int, connections: int, topic: str) -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # the measured processes may run in real time
    os.nice(19)
    if kind == "garbage":
        _send_garbage(host, port)
    elif kind == "pipeline":
        _pipeline(host, port)
    else:
        _hold(kind, [_opened(host, port) for _ in range(connections)], topic)


def _send_garbage(host: str, port: int) -> None:
    rng = random.Random(1)
    # Produce, Fetch, Metadata, JoinGroup and CreateTopics in versions that are offered, with an empty client id.
    headers = [pack(">hhih", key, version, 1, -1) for key, version in ((0, 8), (1, 11), (3, 8), (11, 5), (19, 4))]
    number = 0
    print("ready", flush=True)
    while True:
        body = rng.choice(headers) + rng.randbytes(_BODY_BYTES)
        data = (
            rng.randbytes(_GARBAGE_BYTES),
            pack(">i", 0x7FFFFFFF) + rng.randbytes(_BODY_BYTES),
            pack(">i", len(body)) + body,
        )[number % 3]
        try:
            with socket.create_connection((host, port), timeout=10) as connection:
                number += 1
                if number % REPORTED_EACH == 0:
                    print(number, flush=True)
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
        except OSError:
            continue  # the broker has closed the connection, and a port may be in use for a moment


def _pipeline(host: str, port: int) -> None:
    requests = _frame(MetadataRequest(topics=None), 8) * 100
    print("ready", flush=True)
    while True:
        try:
            with socket.create_connection((host, port)) as connection:
                while True:
                    connection.sendall(requests)
        except OSError:
            time.sleep(0.01)


def _opened(host: str, port: int) -> socket.socket:
    """Return a connection that the broker has accepted and answered."""
    connection = socket.create_connection((host, port), timeout=30)
    connection.sendall(_frame(ApiVersionsRequest(client_software_name="idle", client_software_version="1"), 3))
    connection.recv(65536)
    return connection


def _hold(kind: str, connections: list[socket.socket], topic: str) -> None:
    """Send each connection's first bytes, print a line, and go on slowly."""
    first, each_second = {
        "idle": (b"", b""),
        "slow-writers": (pack(">i", 1 << 20) + _frame(MetadataRequest(topics=None), 8)[4:], b"\0"),
        "slow-readers": (_frame(_fetch(topic, min_bytes=1), 12) * 20, b""),
        "fetches": (_frame(_fetch(topic, min_bytes=_NEVER_THERE), 12), b""),
    }[kind]
    for connection in connections:
        connection.sendall(first)
    print("ready", flush=True)
    while True:
        time.sleep(1)
        for connection in connections:
            if each_second:
                connection.sendall(each_second)
            if kind == "slow-readers":
                connection.recv(1024)


def _fetch(topic: str, min_bytes: int) -> FetchRequest:
    """Return a fetch of partition 0 from its beginning that waits ten minutes for `min_bytes`."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=_NEVER_THERE)
    return FetchRequest(
        max_wait_ms=600_000,
        min_bytes=min_bytes,
        max_bytes=_NEVER_THERE,
        topics=(FetchTopic(topic=topic, partitions=(partition,)),),
    )


def _frame(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "bad-peer"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
