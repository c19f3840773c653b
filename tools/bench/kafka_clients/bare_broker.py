"""Runs a broker that does nothing but pass messages on, in the same Python with the same libraries as the real ones.

A client's look-ups and produces take only the time of this broker's event loop, sockets and processes, because the
broker has no log and decodes no request. It stands before a real broker, which answers the first request of each API.
After that:

    ListOffsets   is answered at once, with the bytes of that answer
    Produce       is sent to two followers, which are processes of their own; when both have asked for more, it is
                  answered with the bytes of that answer
    Metadata      is passed to the real broker; its answer names the bare broker in the place of every real one
    other APIs    are always passed to the real broker

Clients ask any broker for metadata, so that a client with the address of a real broker would leave the bare one.
The followers are connected by ZeroMQ, as those of real brokers are.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from struct import pack
from typing import cast

import uvloop
import zmq

from node.net.zeromq.sockets import descriptor_of, has_input, open_socket, receive_message, send_message
from tidelog.local.processes.ports import LOOPBACK
from tools.bench.environment import REPLICAS
from tools.bench.kafka_clients.target import Target
from tools.bench.results import NotMeasured
from tools.supervised_process import KILL, supervised

_PRODUCE, _LIST_OFFSETS, _METADATA = 0, 2, 3
_FOLLOWERS = REPLICAS - 1
_READ_BYTES = 1 << 18
_TIMEOUT_S = 30.0


class BareTarget(Target):
    """The bare broker before the leader of one topic."""

    def __init__(self, real: Target, topic: str, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self._real = real
        self._topic = topic

    @property
    def pids(self) -> Mapping[int, int]:
        return self._real.pids

    def create_topic(self, partitions: int) -> str:
        """Return the topic, which exists already and has one partition."""
        assert partitions == 1
        return self._topic

    def delete_topic(self, topic: str) -> None:
        """Do nothing, because `bare_broker` deletes the topic."""


@contextmanager
def bare_broker(real: Target) -> Iterator[BareTarget]:
    """Run a bare broker before the leader of a new topic while the block runs."""
    topic = real.create_topic(1)
    ports = real.ports()
    leader = ports.pop(real.leaders(topic)[0])
    with supervised(_command("lead", leader, *ports.values()), KILL, stdout=subprocess.PIPE, stderr=None) as process:
        assert process.stdout is not None
        server = process.stdout.readline().decode().strip()
        if not server:
            raise NotMeasured("the bare broker did not start")
        yield BareTarget(real, topic, server)
    real.delete_topic(topic)


def _command(role: str, *ports: int) -> list[str]:
    return [sys.executable, "-P", "-m", "tools.bench.kafka_clients.bare_broker", role, *map(str, ports)]


class _Followers:
    """The leader's connections to the followers. A follower asks for more when it has received a batch."""

    def __init__(self) -> None:
        self._socket = open_socket(zmq.ROUTER)
        self.port = self._socket.bind_to_random_port(f"tcp://{LOOPBACK}")
        self._peers: list[bytes] = []
        self._missing = 0
        self._waiting: asyncio.Future[None] | None = None
        self.all_here = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(descriptor_of(self._socket), self._on_readable)

    def replicate(self, batch: bytes) -> asyncio.Future[None]:
        """Send the batch; the future is done when all followers have asked for more."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._missing = len(self._peers)
        for peer in self._peers:
            send_message(self._socket, [peer, batch])
        self._on_readable()
        return self._waiting

    def _on_readable(self) -> None:
        while has_input(self._socket):
            message = receive_message(self._socket)
            assert message is not None
            peer = bytes(message[0])
            if peer not in self._peers:
                self._peers.append(peer)
                if len(self._peers) == _FOLLOWERS:
                    self.all_here.set_result(None)
                continue
            self._missing -= 1
            if not self._missing and self._waiting is not None:
                self._waiting.set_result(None)


class _Connection(asyncio.Protocol):
    """One client. The client has one request in flight, so the bare broker may block while the real broker answers."""

    def __init__(self, followers: _Followers, real_ports: Sequence[int], own_port: int) -> None:
        self._followers = followers
        self._real_ports, self._own_port = real_ports, own_port
        self._real = socket.create_connection((LOOPBACK, real_ports[0]), _TIMEOUT_S)
        self._known: dict[int, bytes] = {}
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._real.close()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (end := 4 + int.from_bytes(self._data[:4])):
            request, self._data = self._data[:end], self._data[end:]
            self._answer(request)

    def _answer(self, request: bytes) -> None:
        api, correlation_id = int.from_bytes(request[4:6]), request[8:12]
        known = self._known.get(api)
        if known is None:
            self._send(self._passed_on(api, request))
            return
        response = known[:4] + correlation_id + known[8:]
        if api == _PRODUCE:
            self._followers.replicate(request).add_done_callback(lambda _: self._send(response))
        else:
            self._send(response)

    def _passed_on(self, api: int, request: bytes) -> bytes:
        self._real.sendall(request)
        response = b""
        while len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4]):
            received = self._real.recv(_READ_BYTES)
            assert received, "the real broker closed the connection"
            response += received
        if api == _METADATA:
            for port in self._real_ports:
                response = response.replace(pack(">i", port), pack(">i", self._own_port))
        elif api in (_PRODUCE, _LIST_OFFSETS):
            self._known[api] = response
        return response

    def _send(self, response: bytes) -> None:
        assert self._transport is not None
        self._transport.write(response)


async def _lead(real_ports: Sequence[int]) -> None:
    """Start the followers, print the address for clients, and serve until this process is killed.

    real_ports   those of all real brokers, first that of the topic's leader
    """
    followers = _Followers()
    own = socket.create_server((LOOPBACK, 0))
    own_port = own.getsockname()[1]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(followers, real_ports, own_port), sock=own)
    for _ in range(_FOLLOWERS):
        # The followers end with this process's session.
        await asyncio.create_subprocess_exec(*_command("follow", followers.port), stdin=subprocess.DEVNULL)
    await asyncio.wait_for(followers.all_here, _TIMEOUT_S)
    print(f"{LOOPBACK}:{own_port}", flush=True)
    await server.serve_forever()


async def _follow(port: int) -> None:
    """Ask the leader for a batch, and for more as soon as one arrives, until this process is killed."""
    leader = open_socket(zmq.DEALER)
    leader.connect(f"tcp://{LOOPBACK}:{port}")
    loop = asyncio.get_running_loop()

    def on_readable() -> None:
        while has_input(leader):
            receive_message(leader)
            send_message(leader, [b"more"])

    loop.add_reader(descriptor_of(leader), on_readable)
    send_message(leader, [b"more"])
    on_readable()
    await asyncio.Event().wait()


if __name__ == "__main__":
    role, *numbers = sys.argv[1:]
    ports = [int(number) for number in numbers]
    uvloop.run(_lead(ports) if role == "lead" else _follow(ports[0]))
