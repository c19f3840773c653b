"""Implement F17 and F18: brokers without memory or without file descriptors."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import zmq

from tidelog.aio import Admin, Consumer
from tidelog.errors import LocalError
from tidelog.local.processes.process import Process
from tidelog.model import CONSUMER_REPLICA_ID, Buffer, Endpoint, TopicPartition
from tidelog.protocol.codec import RequestHeader, encode
from tidelog.protocol.messages import ApiKey, FetchPartition, FetchRequest
from tidelog.protocol.native.sockets import MAX_QUEUED, open_socket, send_message
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.processes import BrokerFault, leader_of_one
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.broker_log_reader import BrokerLogReader
from verify.chaos.faults.support.fault_base import Timing, wait_until
from verify.chaos.faults.support.tools import quietly

#: The number of connections per attempt, and the most attempts. A broker that has just lost many connections may have
#: descriptors for the first ones.
_CONNECTIONS, _OFFERS = 64, 4
#: The number of clients that do not read, and the bytes that each requests. A broker buffers at most 100 MB per such
#: client, which is more in total than it ever has free.
_HOARDERS, _MUCH_BYTES = 12, 50 << 20
_NEEDED_S = 8.0
_CONNECT_S = 2.0
#: The time in which a broker that accepts a connection sends its ZeroMQ greeting.
_GREETED_S = 0.5


class LimitedBroker(BrokerFault):
    """A broker whose limit of a resource is lowered to about its current use. Healing restarts the broker if the limit
    ended it.

    limit    the resource, as a constant of the module `resource`
    option   the option of the command `prlimit` for the same resource
    """

    needs = frozenset({Need.PROCESSES, Need.RESTARTS, Need.FILES})
    lasts_ms = (2_000, 3_000)
    limit: int
    option: str

    @property
    def availability(self) -> Availability:
        return Availability(self.timing.silent_ms)

    def restrict(self, target: Target, process: Process, soft: int) -> None:
        """Set the soft limit of the process to `soft` until the fault is healed."""
        before = resource.prlimit(process.pid, self.limit)
        values = ":".join("unlimited" if value == resource.RLIM_INFINITY else str(value) for value in before)
        put_back = target.undo.to_run(*quietly("prlimit", f"--pid={process.pid}", f"--{self.option}={values}"))

        async def lift() -> None:
            if process.running:
                with suppress(ProcessLookupError):
                    resource.prlimit(process.pid, self.limit, before)
            put_back()

        self.on_heal(lift)
        resource.prlimit(process.pid, self.limit, (soft, before[1]))


class OutOfMemory(LimitedBroker):
    """A broker that gets no more memory. The broker may end, or refuse requests, but must not hang."""

    row, name = "F17", "broker out of memory"
    limit, option = resource.RLIMIT_AS, "as"
    #: The text that the broker or the interpreter logs when an allocation fails.
    words = "MemoryError|Cannot allocate memory|no memory is left"

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._refusals: list[str] = []

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        process, said = target.broker_process(victim), BrokerLogReader(target.broker_log(victim))
        self.will_restart(target, victim)

        async def listen() -> None:
            self._refusals = await asyncio.to_thread(said.lines, self.words)

        self.on_heal(listen)
        endpoint, fetch = await _client_endpoint(target, victim), fetch_from(await _starts(target))
        self.restrict(target, process, _address_space(process.pid))
        for _ in range(_HOARDERS):
            self.hoard(endpoint, fetch)

        def needs_more() -> bool:
            return not process.running or bool(said.lines(self.words))

        with suppress(LocalError):
            await wait_until("the broker to need more", needs_more, _NEEDED_S)
        return f"{victim_name} gets no more memory"

    def hoard(self, endpoint: Endpoint, fetch: Sequence[Buffer]) -> None:
        """Send many requests on one connection without reading an answer, so that the broker has to buffer all answers.
        Healing closes the connection.
        """
        asking = open_socket(zmq.DEALER)

        async def let_go() -> None:
            asking.close()

        self.on_heal(let_go)
        asking.setsockopt(zmq.RECONNECT_IVL, -1)
        asking.setsockopt(zmq.RCVHWM, 1)
        asking.setsockopt(zmq.HEARTBEAT_IVL, 0)  # see `open_socket`: the queue is full when the broker ends
        asking.connect(f"tcp://{endpoint}")
        with suppress(zmq.Again):  # the broker may have ended already
            for _ in range(MAX_QUEUED):
                send_message(asking, fetch)

    def bit(self, evidence: Evidence) -> str | None:
        # A library whose allocation fails may end the process without a message.
        said = f"broker {self.victims[0]} logged: {self._refusals[0]}" if self._refusals else None
        return said or bite_detection.registered_anew(evidence, self.victims)


class OutOfDescriptors(LimitedBroker):
    """A broker that gets no more file descriptors. The broker must keep its connections, must not end, and accepts new
    connections again after the healing.
    """

    row, name = "F18", "broker out of file descriptors"
    limit, option = resource.RLIMIT_NOFILE, "nofile"

    def __init__(self, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._offered = self._unserved = 0
        self._ended = False

    async def inject(self, target: Target, rng: random.Random) -> str:
        victim, victim_name = leader_of_one(await target.view(), rng)
        process = target.broker_process(victim)
        self.will_restart(target, victim)

        async def look() -> None:
            self._ended = not process.running

        self.on_heal(look)
        soft = _open_files(process.pid) + rng.randint(2, 6)
        self.restrict(target, process, soft)
        held: list[socket.socket] = []

        async def let_go() -> None:
            for each in held:
                each.close()

        self.on_heal(let_go)
        endpoint = await _client_endpoint(target, victim)
        for _ in range(_OFFERS):
            await asyncio.to_thread(_connect, endpoint, held)
            await asyncio.sleep(_GREETED_S)
            new = held[self._offered :]
            self._offered, self._unserved = len(held), len(new) - sum(map(_is_greeted, new))
            if self._unserved:
                break
        return f"{victim_name} gets no more than {soft} file descriptors, and {len(held)} connections"

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self._unserved} of {self._offered} connections were not accepted" if self._unserved else None

    def broken(self, evidence: Evidence) -> str | None:
        return "the broker ended because of it" if self._ended else None


def fetch_from(starts: Mapping[TopicPartition, int]) -> Sequence[Buffer]:
    """Return the message parts of a fetch request from these offsets, for up to 50 MiB of records. A broker accepts it
    without an earlier request of the client.
    """
    wanted = tuple(FetchPartition(tp.topic, tp.partition, -1, start, _MUCH_BYTES) for tp, start in starts.items())
    header = RequestHeader(ApiKey.FETCH, 0, 0, "hoarder", "", -1, -1, -1)
    return encode(header, FetchRequest(CONSUMER_REPLICA_ID, 0, 0, _MUCH_BYTES, wanted))


async def _starts(target: Target) -> Mapping[TopicPartition, int]:
    async with Consumer(target.bootstrap_servers) as consumer:
        return await consumer.beginning_offsets(target.tps)


async def _client_endpoint(target: Target, broker: int) -> Endpoint:
    async with Admin(target.bootstrap_servers) as admin:
        cluster = await admin.describe_cluster()
    return cluster.brokers[broker]


def _address_space(pid: int) -> int:
    """Return the bytes of mapped memory of the process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _open_files(pid: int) -> int:
    """Return the number of open files, or 0 for a process that has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        return 0


def _connect(endpoint: Endpoint, held: list[socket.socket]) -> None:
    """Open up to 64 more connections and add them to `held`. Stop at the first error, because a broker that has ended
    refuses the first connection, which says nothing about descriptors.
    """
    wanted = len(held) + _CONNECTIONS
    with suppress(OSError):
        while len(held) < wanted:
            held.append(socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S))


def _is_greeted(connection: socket.socket) -> bool:
    """Return whether the broker has sent its greeting. In ZeroMQ the server sends first. The call reads a byte."""
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except OSError:
        return False
