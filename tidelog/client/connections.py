"""Keep one connection per broker and purpose.

A broker answers the requests of one connection in their order, so that a request that waits delays all later ones.
Therefore requests that may wait have connections of their own.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from tidelog.client.tasks.background import Background
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerNotAvailableError,
    ClosedError,
    DisconnectedError,
    InternalError,
    ProtocolError,
    TidelogError,
    TimeoutError,
)
from tidelog.model import Endpoint
from tidelog.protocol.kafka.client.connection import Connection
from tidelog.protocol.messages import Request, Response

#: Timeout of opening a connection, handshake included.
CONNECT_TIMEOUT_MS = 3_000
#: For how long a broker that failed is asked last.
AVOID_MS = 2_000

_T = TypeVar("_T")


class Purpose(Enum):
    """The requests that share a connection.

    GENERAL   requests that a broker answers at once, such as Metadata and ListOffsets, and those of an admin
    PRODUCE   Produce, which waits for followers
    FETCH     Fetch, which waits for records
    GROUP     requests to a group's coordinator, which wait for other members
    """

    GENERAL = auto()
    PRODUCE = auto()
    FETCH = auto()
    GROUP = auto()


class Peer(Protocol):
    """The interface of a connection.

    endpoint              where it was opened
    broker_id             the broker at the other end; −1 if the broker does not say it
    cluster_kind          "Tidelog", or which Kafka the cluster is (`ConnectedBroker.cluster_kind`)
    longest_throttle_ms   the longest time for which the broker has throttled the connection; 0: never
    """

    @property
    def endpoint(self) -> Endpoint: ...

    @property
    def broker_id(self) -> int: ...

    @property
    def cluster_kind(self) -> str: ...

    @property
    def closed(self) -> bool: ...

    @property
    def longest_throttle_ms(self) -> int: ...

    def send(self, request: Request, *, timeout_ms: int) -> asyncio.Future[Response]: ...

    def send_no_reply(self, request: Request, *, timeout_ms: int) -> None: ...

    def close(self) -> None: ...


class Opener(Protocol):
    """Connects to `endpoint` and shakes hands; returns the Peer, or raises DisconnectedError or TimeoutError.

    cluster_id   the id that the broker's cluster must have; empty: any
    """

    async def __call__(self, endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Peer: ...


async def open_connection(endpoint: Endpoint, *, client_id: str, timeout_ms: int, cluster_id: str) -> Peer:
    """Open a connection over the real network, handshake included.

    Raises DisconnectedError, TimeoutError after `timeout_ms`, and UnsupportedVersionError.
    """
    return await Connection.open(endpoint, client_id=client_id, timeout_ms=timeout_ms, cluster_id=cluster_id)


class _Open(NamedTuple):
    """An open connection, and the broker for which it was opened; −1 for a bootstrap address."""

    peer: Peer
    broker_id: int


_Key = tuple[Endpoint, Purpose]


class Connections:
    """The connections of one client, at most one for each address and purpose; belongs to one event loop."""

    def __init__(self, client_id: str, clock: Clock, opener: Opener, background: Background) -> None:
        self._client_id = client_id
        self._clock = clock
        self._opener = opener
        self._background = background
        self._open: dict[_Key, _Open] = {}
        self._opening: dict[_Key, asyncio.Task[Peer]] = {}
        self._avoid_until_ms: dict[Endpoint, int] = {}
        self._with_other_protocol: set[Endpoint] = set()
        self._closed = False

    @property
    def has_live(self) -> bool:
        """Whether a connection to any broker is open."""
        return any(not found.peer.closed for found in self._open.values())

    def live(self, broker_id: int, endpoint: Endpoint | None, purpose: Purpose) -> Peer | None:
        """Return the open connection to a broker at its address, else None."""
        if endpoint is None:
            return None
        found = self._open.get((endpoint, purpose))
        if found is None or found.peer.closed or found.peer.broker_id not in (broker_id, -1):
            return None
        return found.peer

    async def to_broker(
        self, broker_id: int, endpoint: Endpoint, purpose: Purpose, timeout_ms: int, cluster_id: str
    ) -> Peer:
        """Return the live connection to a broker; open one if there is none. Concurrent calls share one attempt.

        Raises DisconnectedError if no broker listens there, BrokerNotAvailableError if another broker does,
        TimeoutError (the attempt goes on), and ClosedError. After an error no request was sent.
        """
        found = self._open.get((endpoint, purpose))
        if found is not None and not found.peer.closed:
            peer = found.peer
        else:
            name = f"broker {broker_id} at {endpoint}"
            peer = await self._shared(broker_id, endpoint, purpose, timeout_ms, cluster_id, name)
        if peer.broker_id not in (broker_id, -1):
            self.avoid(endpoint)
            raise BrokerNotAvailableError(f"{endpoint} is now broker {peer.broker_id}, not broker {broker_id}")
        return peer

    async def to_address(self, endpoint: Endpoint, timeout_ms: int, cluster_id: str) -> Peer:
        """Return the live connection for general requests to an address; open one if there is none.

        Raises the errors of `to_broker`, except BrokerNotAvailableError.
        """
        found = self._open.get((endpoint, Purpose.GENERAL))
        if found is not None and not found.peer.closed:
            return found.peer
        return await self._shared(-1, endpoint, Purpose.GENERAL, timeout_ms, cluster_id, str(endpoint))

    async def _shared(
        self, broker_id: int, endpoint: Endpoint, purpose: Purpose, timeout_ms: int, cluster_id: str, name: str
    ) -> Peer:
        if self._closed:
            raise ClosedError("the client is closed")
        key = (endpoint, purpose)
        opening = self._opening.get(key)
        if opening is None or opening.done():
            opening = self._background.run(
                f"the connection to {name}", self._connect(broker_id, key, cluster_id), foreseen=(TidelogError,)
            )
            self._opening[key] = opening
            opening.add_done_callback(partial(self._opening_ended, key))
        done, _ = await asyncio.wait({opening}, timeout=timeout_ms / 1000)
        if not done:
            raise TimeoutError(f"no connection to {name} in {timeout_ms} ms")
        if opening.cancelled() and not self._closed:
            raise DisconnectedError(f"the connection to {name} was cancelled from outside")
        return result_of(opening)

    def _opening_ended(self, key: _Key, opening: asyncio.Task[Peer]) -> None:
        if self._opening.get(key) is opening:
            del self._opening[key]

    async def _connect(self, broker_id: int, key: _Key, cluster_id: str) -> Peer:
        endpoint, purpose = key
        try:
            peer = await self._opener(
                endpoint, client_id=self._client_id, timeout_ms=CONNECT_TIMEOUT_MS, cluster_id=cluster_id
            )
        except TidelogError as error:
            self.avoid(endpoint)
            if isinstance(error, ProtocolError):
                self._with_other_protocol.add(endpoint)
            raise
        self._avoid_until_ms.pop(endpoint, None)
        self._with_other_protocol.discard(endpoint)
        owner = peer.broker_id if peer.broker_id >= 0 else broker_id
        for other, found in list(self._open.items()):
            # The broker has moved to this address.
            if other == key or (other[1] is purpose and found.broker_id == owner >= 0):
                found.peer.close()
                del self._open[other]
        self._open[key] = _Open(peer, owner)
        return peer

    def avoid(self, endpoint: Endpoint) -> None:
        """Have `is_avoided` return True for this address in the next 2 s, unless it is connected again."""
        self._avoid_until_ms[endpoint] = self._clock.monotonic_ms() + AVOID_MS

    def is_avoided(self, endpoint: Endpoint) -> bool:
        return self._avoid_until_ms.get(endpoint, 0) > self._clock.monotonic_ms()

    def has_other_protocol(self, endpoint: Endpoint) -> bool:
        """Return whether a peer at this address has spoken another protocol than Kafka's, and no broker since."""
        return endpoint in self._with_other_protocol

    def forget_closed(self) -> None:
        """Forget the connections that have ended, and addresses that need not be avoided any more."""
        now_ms = self._clock.monotonic_ms()
        self._open = {key: found for key, found in self._open.items() if not found.peer.closed}
        self._avoid_until_ms = {each: ms for each, ms in self._avoid_until_ms.items() if ms > now_ms}

    def refuse_new(self) -> None:
        """Have later calls that would open a connection raise ClosedError."""
        self._closed = True

    def drop(self) -> None:
        """Close every connection at once, even if the event loop is closed. Tasks are not cancelled."""
        for found in self._open.values():
            found.peer.close()
        self._open.clear()


def result_of(task: asyncio.Task[_T]) -> _T:
    """Return the result of a task that is done, or raise its error as a TidelogError.

    A task that the client's end has cancelled raises ClosedError, so that the tasks that wait for it are not cancelled.
    """
    if task.cancelled():
        raise ClosedError("the client was closed meanwhile")
    try:
        return task.result()
    except TidelogError:
        raise
    except Exception as error:
        raise InternalError(f"{task.get_name()} failed unexpectedly: {error!r}") from error
