"""Define the listeners of a broker. A listener's name determines the protocol that it accepts.

    KAFKA         for clients, which speak Kafka's protocol; every broker has it
    KAFKA_…       for clients that reach the broker at another address, such as those outside its network
    REPLICATION   for other brokers and the controller

The text form is Kafka's: `KAFKA://host:port`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelog.model import Endpoint

CLIENTS = "KAFKA"
BROKERS = "REPLICATION"

_NAME = re.compile(rf"{BROKERS}|{CLIENTS}(_[A-Z0-9_]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener: its name, and its address."""

    name: str
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.name}://{self.endpoint}"

    @classmethod
    def parse(cls, text: str) -> Listener:
        """Return the listener of a text `NAME://host:port` or `NAME://[v6]:port`.

        Raises ValueError, with the reason, for another form, or for a name that no listener can have.
        """
        name, separator, address = text.strip().partition("://")
        if not separator:
            raise ValueError(f"{text!r} is not NAME://host:port")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a listener name: allowed are {CLIENTS}, {CLIENTS}_… and {BROKERS}")
        return cls(name, Endpoint.parse(address))
