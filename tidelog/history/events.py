"""Define the lines of a history: a header with the writer's name, then a client's operations or a broker's events.

`t`, `t0` and `t1` are CLOCK_MONOTONIC of the host in nanoseconds, the same clock for all writers (in the simulator its
virtual clock).
"""

from __future__ import annotations

from typing import TypeAlias

from tidelog.history.broker_events import Broker, BrokerEvent
from tidelog.history.group_operations import GroupOperation
from tidelog.history.operations import Client, Operation

Header: TypeAlias = Client | Broker

Event: TypeAlias = Operation | GroupOperation | BrokerEvent
