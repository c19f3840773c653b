"""Who this broker is, and how it introduces itself to other brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidelog.clock import Clock, SystemClock
from tidelog.model import Endpoint
from tidelog.protocol.native.connection import Connection
from tidelog.protocol.native.dealer import Dealer, Dial

#: A handshake takes four round trips, of half a second between continents.
CONNECT_TIMEOUT_MS = 2500


@dataclass(slots=True)
class Identity:
    """`broker_epoch` is −1 while it is not registered. Others are reached by `dial`."""

    cluster_id: str
    broker_id: int
    broker_epoch: int = -1
    dial: Dial = Dealer
    clock: Clock = field(default_factory=SystemClock)

    async def connect(self, endpoint: Endpoint) -> Connection:
        """Opens a connection to another broker's replication endpoint, under the registration of now.

        DisconnectedError, TimeoutError, and the BrokerError that refuses it.
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
