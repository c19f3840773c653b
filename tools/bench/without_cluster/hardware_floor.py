"""Measures what the machine allows at best: the copies that three replicas cost, as bare system calls.

Each record crosses a loopback socket three times (client to leader, leader to two followers) and is written into the
page cache three times.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

from tools.bench import machine
from tools.bench.environment import REPLICAS, BenchEnvironment, Benchmark
from tools.bench.results import Figure

_CHUNK = 256 << 10
_PAYLOAD = 256 << 20

_WRITES = Figure("floor.writes", f"bound: os.write to {REPLICAS} files in the page cache", "MB/s")
_SOCKETS = Figure("floor.sockets", f"bound: {REPLICAS} copies through a loopback socket", "MB/s")
CPU = Figure("floor.cpu", "bound: CPU of both", "s/GB")
RATE = Figure("floor.rate", "bound: what that CPU allows on all cores", "MB/s")


def measure(env: BenchEnvironment) -> dict[str, float]:
    chunk = os.urandom(_CHUNK)
    before = machine.own_cpu_time()
    with env.fresh_directory() as directory:
        writing = _write(directory, chunk)
    copying = _copy(chunk)
    cpu = machine.own_cpu_time().since(before).total / (_PAYLOAD / 1e9)
    megabytes = _PAYLOAD / 1e6
    return {
        _WRITES.key: megabytes / writing,
        _SOCKETS.key: megabytes / copying,
        CPU.key: cpu,
        RATE.key: machine.cores() * 1e3 / cpu,
    }


def _write(directory: Path, chunk: bytes) -> float:
    files = [os.open(directory / str(number), os.O_WRONLY | os.O_CREAT) for number in range(REPLICAS)]
    started = time.perf_counter()
    for _ in range(_PAYLOAD // _CHUNK):
        for file in files:
            os.write(file, chunk)
    seconds = time.perf_counter() - started
    for file in files:
        os.close(file)
    return seconds


def _copy(chunk: bytes) -> float:
    total = REPLICAS * _PAYLOAD
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sending:
        receiving, _ = server.accept()
        with receiving:
            sender = threading.Thread(target=_send, args=(sending, chunk, total // _CHUNK))
            buffer = bytearray(_CHUNK)
            started = time.perf_counter()
            sender.start()
            received = 0
            while received < total:
                received += receiving.recv_into(buffer)
            seconds = time.perf_counter() - started
            sender.join()
    return seconds


def _send(connection: socket.socket, chunk: bytes, times: int) -> None:
    for _ in range(times):
        connection.sendall(chunk)


BENCHMARK = Benchmark(
    "floor", f"{_PAYLOAD >> 20} MiB in pieces of {_CHUNK >> 10} KiB, no fsync", (_WRITES, _SOCKETS, CPU, RATE), measure
)
