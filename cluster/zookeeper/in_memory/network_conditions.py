"""Delays and faults of messages between a client and ZooKeeper."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

#: The least and the greatest delay, in ms.
Range: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """Delays, drawn for each message. A connection still keeps the order of each direction.

    request_ms    until a request reaches the server
    answer_ms     until an answer reaches the client
    watch_ms      until the event of a watch reaches the client. Later answers come after it
    reconnect_ms  until a client that has lost its connection tries again
    lag_ms        by how much the followers lag behind the leader
    breaks        the share of requests that the connection does not survive: half of them are lost, and half are
                  performed without an answer
    """

    request_ms: Range = (0, 0)
    answer_ms: Range = (0, 0)
    watch_ms: Range = (0, 0)
    reconnect_ms: Range = (0, 0)
    lag_ms: Range = (0, 0)
    breaks: float = 0.0


#: Every message arrives in one of the next turns of the event loop.
FAULTLESS = NetworkConditions()


def delay_s(rng: Random, span: Range) -> float:
    """Return a delay drawn from this range. A range of one value draws nothing from `rng`."""
    low, high = span
    return (low if low == high else rng.uniform(low, high)) / 1000
