"""A broker with its two listeners on real sockets, over the real log, on its own thread; and peers that connect."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import cast

import zmq

from node.net.identity import Identity
from node.net.server import Server
from storage.files import RealFiles
from storage.log_manager import LogManager
from tests.node.client_requests import produce_request
from tests.node.memory_cluster import MemoryCluster
from tests.node.offsets_topic import OFFSETS
from tests.virtual_time import VirtualClock
from tidelog.model import Buffer, Endpoint, TopicPartition
from tidelog.protocol.codec import RequestHeader, decode_response, encode
from tidelog.protocol.listeners import BROKERS, CLIENTS
from tidelog.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ProduceResponse,
    Request,
    Response,
)

CLUSTER_ID = "c"
BROKER_EPOCH = 101
#: The longest time in which a healthy broker answers on a busy machine.
TIMEOUT_S = 20.0
#: Only the canary uses this partition.
CANARY = TopicPartition("canary", 0)

#: Correlation ids far from those that hypothesis draws.
_correlations = count(0x5EED << 40)


class LiveListeners:
    """`endpoints` by listener name; `tracebacks` are the tracebacks in the broker's log."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.endpoints: dict[str, Endpoint] = {}
        self.tracebacks: list[str] = []
        self.cluster: MemoryCluster
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    @contextmanager
    def open(self) -> Iterator[LiveListeners]:
        handler = _Tracebacks(self.tracebacks)
        logging.getLogger().addHandler(handler)
        self._thread.start()
        try:
            assert self._ready.wait(TIMEOUT_S)
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(TIMEOUT_S)
            logging.getLogger().removeHandler(handler)

    async def _serve(self) -> None:
        def directory() -> LogManager:
            return LogManager.open([self.directory / "data"], RealFiles(), 1, CLUSTER_ID, "boot")

        async with MemoryCluster(1, directory=directory) as cluster:
            self.cluster = cluster
            cluster.configs = {"min.insync.replicas": "1"}
            await cluster.elect(1)
            await cluster.elect(1, tp=CANARY)
            await cluster.elect(1, tp=OFFSETS)
            node = cluster.nodes[1]
            identity = Identity(CLUSTER_ID, 1, BROKER_EPOCH)
            servers = [
                Server(
                    Endpoint("127.0.0.1", 0),
                    identity,
                    node.handlers.handle,
                    VirtualClock(),
                    between_brokers=name == BROKERS,
                    listener=name,
                )
                for name in (CLIENTS, BROKERS)
            ]
            for name, server in zip((CLIENTS, BROKERS), servers, strict=True):
                server.start()
                self.endpoints[name] = server.endpoint
            self._ready.set()
            await self._stop.wait()
            for server in servers:
                server.stop()

    def connect(self, listener: str) -> Caller:
        return Caller(self.endpoints[listener])


class Caller:
    """A raw peer that can send any frames."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.socket = zmq.Context.instance().socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(f"tcp://{endpoint}")

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close(linger=0)

    def send(self, frames: Sequence[Buffer]) -> None:
        self.socket.send_multipart(frames)

    def answers_until_handshake(self) -> list[int]:
        """Send a handshake. Return the error codes of all answers that arrive before its answer."""
        correlation = next(_correlations)
        self.send(encode(header_of(ApiVersionsRequest("test"), correlation), ApiVersionsRequest("test")))
        codes = []
        while True:
            header, body = decode_response(self._receive())
            if header.correlation_id == correlation:
                assert body.read(ApiVersionsResponse).error_code == 0
                return codes
            codes.append(header.error_code)

    def call(self, request: Request, **header: int) -> Response | int:
        """Return the answer, or the error code of the whole request."""
        correlation = next(_correlations)
        self.send(encode(header_of(request, correlation)._replace(**header), request))
        while True:
            answered, body = decode_response(self._receive())
            if answered.correlation_id == correlation:
                return answered.error_code or body.read(request.response)

    def _receive(self) -> list[bytes]:
        assert self.socket.poll(TIMEOUT_S * 1000), "the broker does not answer"
        return cast(list[bytes], self.socket.recv_multipart())


class Canary:
    """A well-behaved client with its own connection, which must be able to write and read at all times."""

    def __init__(self, live: LiveListeners) -> None:
        self._live = live
        self._caller = live.connect(CLIENTS)
        self.slowest_s = 0.0

    def check(self) -> None:
        started = time.monotonic()
        value = b"canary %d" % next(_correlations)
        written = self._caller.call(produce_request(value, tp=CANARY))
        assert isinstance(written, ProduceResponse) and written.partitions[0].error_code == 0
        offset = written.partitions[0].base_offset
        read = self._caller.call(FetchRequest(-1, 0, 1, 1 << 20, (FetchPartition(*CANARY, -1, offset, 1 << 20),)))
        assert isinstance(read, FetchResponse) and value in bytes(read.partitions[0].records or b"")
        self.slowest_s = max(self.slowest_s, time.monotonic() - started)
        assert self._live.tracebacks == []


class _Tracebacks(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._found.append(self.format(record))


def header_of(request: Request, correlation: int = 7) -> RequestHeader:
    return RequestHeader(request.api, request.versions[1], correlation, "hostile", "", -1, -1, -1)


def resident_bytes() -> int:
    """Return the resident memory of this process, which includes the broker's threads."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def begin_peak() -> None:
    """Reset the peak that `peak_bytes` returns."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_bytes() -> int:
    """Return the peak of this process's resident memory since `begin_peak`."""
    return 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
