"""How messages between a client and ZooKeeper fare."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

#: From and to, in ms.
Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Delays are drawn for each message; a connection keeps the order of each direction all the same.

    request_ms    until a request is with the server
    answer_ms     until an answer is with the client
    watch_ms      until the event of a watch is with the client; what is answered after it comes after it
    reconnect_ms  until a client that has lost its connection tries again
    lag_ms        by how much the servers that do not lead come after the one that does
    breaks        the share of requests that the connection does not survive: half of them are lost on the network, half
                  take place without an answer
    """

    request_ms: Range = (0, 0)
    answer_ms: Range = (0, 0)
    watch_ms: Range = (0, 0)
    reconnect_ms: Range = (0, 0)
    lag_ms: Range = (0, 0)
    breaks: float = 0.0


#: All that is to happen happens in the next turns of the loop.
FAULTLESS = NetworkConditions()


def delay_s(rng: Random, span: Range) -> float:
    """From this range; a range of nothing takes nothing from the rng."""
    low, high = span
    return (low if low == high else rng.uniform(low, high)) / 1000
