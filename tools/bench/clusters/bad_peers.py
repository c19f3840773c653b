"""Peers of a Kafka listener that misbehave until they are killed: `python -m tools.bench.clusters.bad_peers KIND …`.

    garbage     one connection after the other, in turn random bytes, a claim of a huge request, and a valid header with
                a random body
    pipeline    requests for all metadata on one connection, of which no response is read
    idle        COUNT connections that have each sent ApiVersions, and then nothing

The process prints one line when it begins, with `idle` when its connections stand. `garbage` prints another one for
each hundred connections. The process has the lowest priority, because peers would be on other machines, and must not
take the processor from the brokers.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from itertools import count
from struct import pack

from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest, MetadataRequest
from tidelog.protocol.kafka.schema import Request

_GARBAGE_BYTES = 64 * 1024
_BODY_BYTES = 2000
_REPORTED_EACH = 100


def main(kind: str, host: str, port: int, connections: int) -> None:
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))  # the measured processes may run in real time
    os.nice(19)
    if kind == "garbage":
        _send_garbage(host, port)
    elif kind == "pipeline":
        _pipeline(host, port)
    else:
        _stay_idle(host, port, connections)


def _send_garbage(host: str, port: int) -> None:
    rng = random.Random(1)
    # Produce, Fetch, Metadata, JoinGroup and CreateTopics in versions that are offered, with an empty client id.
    headers = [pack(">hhih", key, version, 1, -1) for key, version in ((0, 8), (1, 11), (3, 8), (11, 5), (19, 4))]
    for number in count():
        if number % _REPORTED_EACH == 0:
            print(number, flush=True)
        body = rng.choice(headers) + rng.randbytes(_BODY_BYTES)
        data = (
            rng.randbytes(_GARBAGE_BYTES),
            pack(">i", 0x7FFFFFFF) + rng.randbytes(_BODY_BYTES),
            pack(">i", len(body)) + body,
        )[number % 3]
        try:
            with socket.create_connection((host, port), timeout=10) as connection:
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


def _stay_idle(host: str, port: int, connections: int) -> None:
    opened = []
    request = _frame(ApiVersionsRequest(client_software_name="idle", client_software_version="1"), 3)
    for _ in range(connections):
        connection = socket.create_connection((host, port), timeout=30)
        connection.sendall(request)
        connection.recv(65536)
        opened.append(connection)
    print("ready", flush=True)
    while True:
        time.sleep(3600)


def _frame(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, 1, "bad-peer"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
