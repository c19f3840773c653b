"""The network between brokers of one process. Messages arrive with a delay and in order, as over TCP.

A message at a network cut waits. The message arrives when the cut is healed, unless the connection has timed out
before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from node.handlers import Handlers
from node.net.server import RequestContext
from node.net.zeromq.sockets import HEARTBEAT_INTERVAL_MS, HEARTBEAT_TIMEOUT_MS
from tidelog.errors import BrokerError, DisconnectedError, TimeoutError
from tidelog.model import Endpoint
from tidelog.protocol.messages import ApiVersionsResponse, Request, Response

LATENCY_S = 0.001
#: A connection ends after this time without a message.
SILENCE_S = (HEARTBEAT_INTERVAL_MS + HEARTBEAT_TIMEOUT_MS) / 1000
#: Broker N accepts requests of other brokers at this port + N.
FIRST_PORT = 100


class End(Protocol):
    """The part of a broker that the network uses."""

    broker_id: int
    epoch: int
    alive: bool
    handlers: Handlers


class MemoryNetwork:
    """The network of all brokers.

    requests         (source, target, request) of all arrived requests
    group_settings   the group settings of brokers that start
    """

    def __init__(self, ends: Mapping[int, End]) -> None:
        self.requests: list[tuple[int, int, Request]] = []
        self.group_settings: Mapping[str, Any] = {}
        self._ends = ends
        self._connections: list[MemoryConnection] = []
        self._cuts: set[tuple[int, int]] = set()

    async def open(self, source: End, endpoint: Endpoint) -> MemoryConnection:
        await asyncio.sleep(LATENCY_S)
        target = self._ends[endpoint.port - FIRST_PORT]
        if not target.alive or not self.reaches(source, target):
            raise DisconnectedError("unreachable")
        connection = MemoryConnection(self, b"connection-%d" % len(self._connections), source, target)
        self._connections.append(connection)
        return connection

    def disconnect(self, broker_id: int) -> None:
        """Close the connections of a stopped broker, except those across a network cut."""
        for connection in self._connections:
            if connection.concerns(broker_id) and not connection.cut:
                connection.close()

    def cut(self, one: int, *others: int) -> None:
        """Cut the network between one broker and each of the others, both ways."""
        for other in others:
            self._cuts |= {(one, other), (other, one)}
        self._changed()

    def heal(self) -> None:
        self._cuts.clear()
        self._changed()

    def _changed(self) -> None:
        self._connections = [connection for connection in self._connections if not connection.closed]
        for connection in self._connections:
            connection.network_changed()

    def reaches(self, source: End, target: End) -> bool:
        return (source.broker_id, target.broker_id) not in self._cuts


class MemoryConnection:
    """A connection with requests in one direction and answers in the other, each with a delay of `LATENCY_S`."""

    def __init__(self, network: MemoryNetwork, name: bytes, source: End, target: End) -> None:
        self.peer = ApiVersionsResponse(0, "c", target.broker_id, target.epoch, 0, ())
        self.closed = False
        self._network = network
        self._name = name
        self._source = source
        self._target = target
        self._sender_epoch = source.epoch
        self._in_flight: set[asyncio.Future[Response]] = set()
        self._held: list[Callable[[], None]] = []
        self._silence: asyncio.TimerHandle | None = None

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Response] = loop.create_future()
        if self.closed:
            future.set_exception(DisconnectedError("closed"))
            return future
        self._in_flight.add(future)
        timer = loop.call_later(timeout_ms / 1000, self._fail, future, TimeoutError("no answer"))
        future.add_done_callback(lambda _: (self._in_flight.discard(future), timer.cancel()))
        self._carry(partial(self._deliver, request, future))
        return future

    @property
    def cut(self) -> bool:
        return not self._network.reaches(self._source, self._target)

    def network_changed(self) -> None:
        """React to a cut or a healing anywhere in the network."""
        if self.cut:
            if self._silence is None:
                self._silence = asyncio.get_running_loop().call_later(SILENCE_S, self.close)
        elif not self._target.alive:
            self.close()
        elif self._silence is not None:
            self._silence.cancel()
            self._silence = None
            held, self._held = self._held, []
            for arrival in held:
                arrival()

    def close(self) -> None:
        self.closed = True
        self._held.clear()
        if self._silence is not None:
            self._silence.cancel()
        for future in list(self._in_flight):
            self._fail(future, DisconnectedError("gone"))

    def concerns(self, broker_id: int) -> bool:
        return broker_id in (self._source.broker_id, self._target.broker_id)

    def _carry(self, arrival: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(LATENCY_S, self._arrive, arrival)

    def _arrive(self, arrival: Callable[[], None]) -> None:
        if self.cut:
            self._held.append(arrival)
        elif not self.closed:
            arrival()

    def _deliver(self, request: Request, future: asyncio.Future[Response]) -> None:
        if not self._target.alive:
            return
        self._network.requests.append((self._source.broker_id, self._target.broker_id, request))
        context = RequestContext(self._name, "broker", self._sender_epoch, -1, True)
        try:
            outcome = self._target.handlers.handle(request, context)
        except BrokerError as error:
            self._answer(future, error)
            return
        if isinstance(outcome, Response):
            self._answer(future, outcome)
            return
        assert outcome is not None
        answer = asyncio.ensure_future(outcome)
        answer.add_done_callback(lambda done: self._answer(future, done.exception() or done.result()))

    def _answer(self, future: asyncio.Future[Response], answer: Response | BaseException) -> None:
        self._carry(partial(self._complete, future, answer))

    def _complete(self, future: asyncio.Future[Response], answer: Response | BaseException) -> None:
        if isinstance(answer, BaseException):
            self._fail(future, answer)
        elif not future.done():
            future.set_result(answer)

    @staticmethod
    def _fail(future: asyncio.Future[Response], error: BaseException) -> None:
        if not future.done():
            future.set_exception(error)
            future.exception()  # marks the exception as retrieved, because the sender may not await it
