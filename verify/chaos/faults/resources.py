"""Implement F17 and F18: brokers without memory or without file descriptors."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tidelog.aio import Consumer
from tidelog.errors import LocalError
from tidelog.local.processes.process import Process
from tidelog.model import Endpoint, TopicPartition
from tidelog.protocol.kafka.by_topic import by_topic
from tidelog.protocol.kafka.headers import encode_request
from tidelog.protocol.kafka.messages.metadata import ApiVersionsRequest
from tidelog.protocol.kafka.messages.records import FetchPartition, FetchRequest, FetchTopic
from verify.chaos.fault import Availability, Evidence, Need, Target
from verify.chaos.faults.processes import BrokerFault, leader_of_one
from verify.chaos.faults.support import bite_detection
from verify.chaos.faults.support.broker_log_reader import BrokerLogReader
from verify.chaos.faults.support.client_endpoints import client_endpoints
from verify.chaos.faults.support.fault_base import Timing, wait_until
from verify.chaos.faults.support.tools import quietly

#: The number of connections per attempt, and the most attempts. A broker that has just lost many connections may have
#: descriptors for the first ones.
_CONNECTIONS, _OFFERS = 64, 4
#: The most clients that do not read, and the bytes that each fetch requests. A broker sends no second response on a
#: connection while 256 KiB of the first one are unsent, and reads 1 MiB of further requests. So each client makes the
#: broker hold one response or 256 KiB, and 1 MiB of requests.
_MOST_HOARDERS, _MUCH_BYTES = 200, 50 << 20
#: The fetches of one client, a text that makes each of them large, and the receive buffer of its socket, whose bytes
#: the broker need not hold.
_FETCHES, _RACK, _RECEIVE_BYTES = 60, "rack" * 5_000, 4096
_FETCH_VERSION, _API_VERSIONS_VERSION = 12, 3
_NEEDED_S = 8.0
_PAUSE_S = 0.05
_CONNECT_S = 2.0
#: The time in which a broker that accepts a connection answers its first request.
_ANSWERED_S = 0.5


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
        endpoint = (await client_endpoints(target))[victim]
        fetch = fetch_from(await _starts(target))
        self.restrict(target, process, _address_space(process.pid))

        def needs_more() -> bool:
            return not process.running or bool(said.lines(self.words))

        hoarders = 0
        while hoarders < _MOST_HOARDERS and not needs_more():
            await self.hoard(endpoint, fetch)
            hoarders += 1
            await asyncio.sleep(_PAUSE_S)
        with suppress(LocalError):
            await wait_until("the broker to need more", needs_more, _NEEDED_S)
        return f"{victim_name} gets no more memory; clients that read nothing: {hoarders}"

    async def hoard(self, endpoint: Endpoint, fetch: bytes) -> None:
        """Send several fetches on one connection without reading a response, so that the broker has to hold responses.
        Healing closes the connection. A broker that has ended already has no effect.
        """
        with suppress(OSError):
            asking = await asyncio.to_thread(_asked, endpoint, fetch)

            async def let_go() -> None:
                asking.close()

            self.on_heal(let_go)

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
        endpoint = (await client_endpoints(target))[victim]
        for _ in range(_OFFERS):
            await asyncio.to_thread(_connect, endpoint, held)
            await asyncio.sleep(_ANSWERED_S)
            new = held[self._offered :]
            self._offered, self._unserved = len(held), len(new) - sum(map(_is_answered, new))
            if self._unserved:
                break
        return f"{victim_name} gets no more than {soft} file descriptors, and {len(held)} connections"

    def bit(self, evidence: Evidence) -> str | None:
        return f"{self._unserved} of {self._offered} connections were not accepted" if self._unserved else None

    def broken(self, evidence: Evidence) -> str | None:
        return "the broker ended because of it" if self._ended else None


def fetch_from(starts: Mapping[TopicPartition, int]) -> bytes:
    """Return the frame of a fetch request from these offsets, for up to 50 MiB of records. A broker accepts it without
    an earlier request of the client.
    """
    wanted = by_topic(
        (tp.topic, FetchPartition(partition=tp.partition, fetch_offset=start, partition_max_bytes=_MUCH_BYTES))
        for tp, start in starts.items()
    )
    topics = tuple(FetchTopic(topic=topic, partitions=partitions) for topic, partitions in wanted)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=_MUCH_BYTES, topics=topics, rack_id=_RACK)
    return b"".join(encode_request(request, _FETCH_VERSION, 1, "hoarder"))


async def _starts(target: Target) -> Mapping[TopicPartition, int]:
    async with Consumer(bootstrap_servers=target.bootstrap_servers) as consumer:
        return await consumer.beginning_offsets(target.tps)


def _address_space(pid: int) -> int:
    """Return the bytes of mapped memory of the process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


def _open_files(pid: int) -> int:
    """Return the number of open files, or 0 for a process that has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except FileNotFoundError:
        return 0


def _asked(endpoint: Endpoint, fetch: bytes) -> socket.socket:
    """Return a new connection on which several fetches have been sent. Raise OSError if that fails."""
    asking = socket.socket()
    try:
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
        asking.settimeout(_CONNECT_S)
        asking.connect((endpoint.host, endpoint.port))
        with suppress(TimeoutError):  # a broker that holds enough reads no more
            asking.sendall(fetch * _FETCHES)
    except OSError:
        asking.close()
        raise
    return asking


def _connect(endpoint: Endpoint, held: list[socket.socket]) -> None:
    """Open up to 64 more connections, send a request on each, and add them to `held`. Stop at the first error, because
    a broker that has ended refuses the first connection, which says nothing about descriptors.
    """
    asked = ApiVersionsRequest(client_software_name="chaos", client_software_version="1")
    frame = b"".join(encode_request(asked, _API_VERSIONS_VERSION, 1, "chaos"))
    wanted = len(held) + _CONNECTIONS
    with suppress(OSError):
        while len(held) < wanted:
            held.append(socket.create_connection((endpoint.host, endpoint.port), _CONNECT_S))
            held[-1].sendall(frame)


def _is_answered(connection: socket.socket) -> bool:
    """Return whether the broker has answered the first request, as it does on each connection that it accepts. The call
    reads a byte.
    """
    connection.setblocking(False)
    try:
        return bool(connection.recv(1))
    except OSError:
        return False
