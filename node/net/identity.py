"""The identity of this broker, with which it opens connections to other brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

from node.net.zeromq.connection import Connection
from node.net.zeromq.dealer import Dealer, Dial
from tidelog.clock import Clock, SystemClock
from tidelog.model import Endpoint

#: A handshake takes four round trips, and a round trip between continents takes half a second.
CONNECT_TIMEOUT_MS = 2500


@dataclass(slots=True)
class Identity:
    """The cluster id, the broker id and the broker epoch of this broker.

    broker_epoch   −1 while this broker is not registered; the owner keeps it current
    dial           opens the connection to another broker
    """

    cluster_id: str
    broker_id: int
    broker_epoch: int = -1
    dial: Dial = Dealer
    clock: Clock = field(default_factory=SystemClock)

    async def connect(self, endpoint: Endpoint) -> Connection:
        """Open a connection to another broker's replication endpoint, and introduce this broker with its current epoch.

        Raise DisconnectedError, TimeoutError, or the BrokerError with which the other broker refuses the connection.
        """
        return await Connection.open(
            endpoint,
            client_id=f"broker-{self.broker_id}",
            timeout_ms=CONNECT_TIMEOUT_MS,
            sender_epoch=self.broker_epoch,
            cluster_id=self.cluster_id,
            dial=self.dial,
            clock=self.clock,
        )
