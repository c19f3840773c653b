"""The doors of a broker, by name; a name tells which protocol is spoken there.

    TIDELOG       clients; the door that every broker has
    TIDELOG_…     clients that reach the broker by another address, such as those outside its network
    REPLICATION   other brokers and the controller

Written as Kafka writes listeners, `TIDELOG://host:port`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tidelog.model import Endpoint

CLIENTS = "TIDELOG"
BROKERS = "REPLICATION"

_NAME = re.compile(rf"{BROKERS}|{CLIENTS}(_[A-Z0-9_]+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Listener:
    """One door: its name, and an address of it."""

    name: str
    endpoint: Endpoint

    def __str__(self) -> str:
        return f"{self.name}://{self.endpoint}"

    @classmethod
    def parse(cls, text: str) -> Listener:
        """`NAME://host:port` or `NAME://[v6]:port`; ValueError says what is wrong."""
        name, separator, address = text.strip().partition("://")
        if not separator:
            raise ValueError(f"{text!r} is not NAME://host:port")
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} names no listener: there are {CLIENTS}, {CLIENTS}_… and {BROKERS}")
        return cls(name, Endpoint.parse(address))
