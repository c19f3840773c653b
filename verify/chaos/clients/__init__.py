"""The clients of a chaos run. Each, except the administrator, records its observations in a history
(`tidelog.history.history_files`).

The clients are Tidelog's own, and single requests where the retries of a client would hide a broker's behaviour. Those
of `confluent` are clients of confluent-kafka.
`ClientContext` holds their clock, network and random numbers, so that a simulation can run the same clients.
"""

from __future__ import annotations

from verify.chaos.clients.client_context import ClientContext, History
from verify.chaos.clients.client_factory import RunningClient, clients_of

__all__ = ["ClientContext", "History", "RunningClient", "clients_of"]
