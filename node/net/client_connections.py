"""The connections of this broker's clients, for `tidelog clients` and for the metrics.

Each listener adds its connections here, and counts their requests and bytes, which costs a request about a
microsecond. Everything that a client chooses is bounded: its texts, and the topics of all connections together.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, islice

from node.net.client_software import UNKNOWN, Software, SoftwareTable
from tidelog.clock import Clock

#: Topics that all connections together are known to use. Further topics of a connection are not noted.
MAX_NOTED_TOPICS = 200_000
#: Client ids are shortened to this many characters.
MAX_CLIENT_ID = 200

#: Topics by the name or the id by which the client calls them.
Topics = dict[str | bytes, str]


class Traffic:
    """The bytes that have passed over one connection, which the owner of the connection keeps up to date.

    last_active_ms   when a request last arrived, by the monotonic clock
    """

    __slots__ = ("last_active_ms", "received_bytes", "sent_bytes")

    def __init__(self) -> None:
        self.last_active_ms = 0
        self.received_bytes = 0
        self.sent_bytes = 0


class ClientConnection:
    """One connection, as `ClientConnections.add` makes it.

    number          unique since the start of the broker, and ascending
    peer            the identity of the connection in RequestContext
    port            −1 if the listener does not know it
    requests        the number of requests by `api key << 16 | version`
    read, written   the topics of its Fetch and Produce requests
    omits_topics    whether topics are missing in `read` or `written`, because of MAX_NOTED_TOPICS
    is_connected    returns False once the peer has gone, if the listener does not remove the connection then
    metadata_ms     when the client last named topics in a Metadata request, or connected, by the monotonic clock
    totals          the totals of its software, to which `add_to_totals` adds its counts
    """

    __slots__ = (
        "_added",
        "_owner",
        "client_id",
        "host",
        "is_connected",
        "listener",
        "metadata_ms",
        "number",
        "omits_topics",
        "opened_ms",
        "peer",
        "port",
        "read",
        "requests",
        "software",
        "totals",
        "traffic",
        "written",
    )

    def __init__(
        self,
        owner: ClientConnections,
        number: int,
        peer: bytes,
        listener: str,
        address: tuple[str, int],
        traffic: Traffic,
        opened_ms: int,
        is_connected: Callable[[], bool],
    ) -> None:
        self._owner = owner
        self.number = number
        self.peer = peer
        self.listener = listener
        self.host, self.port = address
        self.traffic = traffic
        self.opened_ms = opened_ms
        self.is_connected = is_connected
        self.client_id = ""
        self.software = UNKNOWN
        self.totals = owner.software.of(UNKNOWN)
        self.totals.connections += 1
        self.requests: dict[int, int] = {}
        self.read: Topics = {}
        self.written: Topics = {}
        self.omits_topics = False
        self.metadata_ms = opened_ms
        self._added = (0, 0, 0)

    def name_itself(self, client_id: str) -> None:
        """Note the client id of the latest request, shortened to MAX_CLIENT_ID characters."""
        self.client_id = client_id[:MAX_CLIENT_ID]

    def identify(self, software: Software) -> None:
        """Note the software that the client has stated, and count the connection in that software's totals.

        Requests and bytes that `add_to_totals` has not added yet go to the new software's totals.
        """
        self.totals.connections -= 1
        self.software = software
        self.totals = self._owner.software.of(software)
        self.totals.connections += 1

    def add_to_totals(self) -> None:
        """Add to the totals what has passed since the last call."""
        now = (sum(self.requests.values()), self.traffic.received_bytes, self.traffic.sent_bytes)
        self.totals.add(*(each - before for each, before in zip(now, self._added, strict=True)))
        self._added = now

    def note_read(self, key: str | bytes, name: str | None) -> None:
        """Note that the client reads a topic, which it calls `key`, if there is such a topic."""
        self._owner.note_topic(self, self.read, key, name)

    def note_written(self, name: str) -> None:
        """Note that the client writes to a topic, if there is such a topic."""
        self._owner.note_topic(self, self.written, name, name)


class ClientConnections:
    """All connections of one broker's clients, over all listeners.

    software   the totals by software, with the counts that connections have added
    """

    def __init__(self, clock: Clock, known_topic: Callable[[str], str | None]) -> None:
        """`known_topic` returns the name of an existing topic as the broker keeps it, None if there is no such topic.

        Otherwise each connection would keep a copy of the name.
        """
        self.software = SoftwareTable()
        self._clock = clock
        self._known_topic = known_topic
        self._open: dict[int, ClientConnection] = {}
        self._numbers = count(1)
        self._noted_topics = 0

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self,
        listener: str,
        address: tuple[str, int],
        traffic: Traffic,
        peer: bytes = b"",
        is_connected: Callable[[], bool] = lambda: True,
    ) -> ClientConnection:
        """Add a connection that has just been opened. Without a `peer` it gets a new identity."""
        number, now_ms = next(self._numbers), self._clock.monotonic_ms()
        traffic.last_active_ms = now_ms
        identity = peer or b"kafka-%d" % number
        client = ClientConnection(self, number, identity, listener, address, traffic, now_ms, is_connected)
        self._open[number] = client
        return client

    def remove(self, client: ClientConnection) -> None:
        """Remove a connection that has ended, and add its counts to the totals of its software."""
        if self._open.pop(client.number, None) is None:
            return
        self._noted_topics -= len(client.read) + len(client.written)
        client.totals.connections -= 1
        client.add_to_totals()

    def note_topic(self, client: ClientConnection, topics: Topics, key: str | bytes, name: str | None) -> None:
        """Add an existing topic to the connection's `read` or `written`, unless too many topics are noted already."""
        known = None if name is None else self._known_topic(name)
        if known is None or key in topics:
            return
        if self._noted_topics >= MAX_NOTED_TOPICS:
            client.omits_topics = True
            return
        self._noted_topics += 1
        topics[key] = known

    def after(self, number: int, most: int) -> tuple[list[ClientConnection], int]:
        """Return some of the connections after this number in ascending order, and the number to go on after.

        That number is −1 if none follow. At most `most` connections are checked, and those whose peer has gone are left
        out.
        """
        following = list(islice((each for each in self._open.values() if each.number > number), most + 1))
        checked = following[:most]
        return [each for each in checked if each.is_connected()], -1 if checked == following else checked[-1].number
