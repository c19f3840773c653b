"""Recognition of peers that speak Kafka's protocol to a ZeroMQ socket, by the events of the socket's monitor.

The socket closes such a connection without an answer. A Kafka request begins with a byte 0, which ZeroMQ takes for a
peer of its first version. The monitor therefore reports that the connection was accepted and disconnected, and neither
that its handshake succeeded nor that it failed. Other bytes, and connections without any, fail.

Only the events of acceptance and disconnection name their connection. A success may belong to each connection that is
undecided. While there is one, no connection counts as a Kafka client, so that no other peer is taken for one.
"""

from __future__ import annotations


class ForeignPeers:
    """Follows the connections of one socket. Connections are named by their descriptors."""

    def __init__(self) -> None:
        self._undecided: set[int] = set()
        self._successes = 0  # since there was last no undecided connection
        self._has_failed = False  # the connection that is disconnected next

    def accepted(self, connection: int) -> None:
        """Note a new connection."""
        self._undecided.add(connection)

    def succeeded(self) -> None:
        """Note that the handshake of some connection has succeeded."""
        self._successes += 1
        self._forget_decided()

    def failed(self) -> None:
        """Note that the handshake of a connection has failed; its disconnection is the next one."""
        self._has_failed = True

    def disconnected(self, connection: int) -> bool:
        """Note the end of a connection. Return whether its peer certainly spoke Kafka's protocol."""
        has_failed, self._has_failed = self._has_failed, False
        if connection not in self._undecided:
            return False
        self._undecided.remove(connection)
        is_foreign = not self._successes and not has_failed
        self._forget_decided()
        return is_foreign

    def _forget_decided(self) -> None:
        if self._successes >= len(self._undecided):
            self._undecided.clear()
            self._successes = 0
