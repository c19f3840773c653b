"""The clients of one listener of the native protocol, as far as the broker can know them.

ZeroMQ neither says when a peer connects nor when it disconnects. A client is known from its handshake on. Whether it is
still connected shows when something is sent to it: a response, or a message to which no request belongs and which
clients therefore ignore.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from node.net.client_connections import ClientConnection, ClientConnections, Traffic
from node.net.client_software import valid_software
from tidelog.clock import Clock
from tidelog.model import Buffer
from tidelog.protocol.codec import RequestHeader
from tidelog.protocol.messages import ApiVersionsRequest, FetchRequest, ProduceRequest, Request

#: With this many clients for the first time, and later with twice as many as were left, those that have gone are
#: removed.
_FIRST_CHECK = 1000


class NativeClients:
    """The connections of one listener by their identities.

    probe   sends the message that clients ignore, and returns False if the peer has disconnected
    """

    def __init__(self, clients: ClientConnections, listener: str, clock: Clock, probe: Callable[[bytes], bool]) -> None:
        self._clients = clients
        self._listener = listener
        self._clock = clock
        self._probe = probe
        self._known: dict[bytes, ClientConnection] = {}
        self._check_at = _FIRST_CHECK

    def introduced(self, peer: bytes, host: str, request: ApiVersionsRequest) -> None:
        """Note a client's handshake, which names its software as "name/version".

        A software that KIP-511 forbids is not noted. If there are many clients, those that have gone are removed first.
        """
        client = self._known.get(peer)
        if client is None:
            if len(self._known) >= self._check_at:
                for each in list(self._known):
                    self._is_connected(each)
                self._check_at = max(_FIRST_CHECK, 2 * len(self._known))
            is_connected = partial(self._is_connected, peer)
            client = self._clients.add(self._listener, (host, -1), Traffic(), peer, is_connected)
            self._known[peer] = client
        name, _, version = request.client_software.partition("/")
        if (software := valid_software(name, version)) is not None:
            client.identify(software)

    def received(self, peer: bytes, header: RequestHeader, request: Request, frames: Sequence[Buffer]) -> None:
        """Count a request, and note its client id and topics. A peer without a handshake is ignored."""
        client = self._known.get(peer)
        if client is None:
            return
        key = header.api_key << 16 | header.api_version
        client.requests[key] = client.requests.get(key, 0) + 1
        if header.client_id != client.client_id:
            client.name_itself(header.client_id)
        traffic = client.traffic
        traffic.last_active_ms = self._clock.monotonic_ms()
        traffic.received_bytes += sum(map(len, frames))
        if isinstance(request, ProduceRequest):
            for batch in request.partitions:
                if batch.topic not in client.written:
                    client.note_written(batch.topic)
        elif isinstance(request, FetchRequest):
            for wanted in request.partitions:
                if wanted.topic not in client.read:
                    client.note_read(wanted.topic, wanted.topic)

    def sent(self, peer: bytes, frames: Sequence[Buffer], is_connected: bool) -> None:
        """Count the bytes of a response; remove the peer instead if it has disconnected (`is_connected` False)."""
        client = self._known.get(peer)
        if client is None:
            return
        if is_connected:
            client.traffic.sent_bytes += sum(map(len, frames))
        else:
            self._clients.remove(self._known.pop(peer))

    def close(self) -> None:
        """Remove all clients, because the listener has been closed."""
        for client in self._known.values():
            self._clients.remove(client)
        self._known.clear()

    def _is_connected(self, peer: bytes) -> bool:
        if peer in self._known and not self._probe(peer):
            self._clients.remove(self._known.pop(peer))
        return peer in self._known
