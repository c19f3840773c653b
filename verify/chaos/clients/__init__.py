"""The clients that a run works a cluster with; each takes down what it saw (`tidelog.history.history_files`).

They are Tidelog's own, and single requests where a client's patience would hide what a broker does. What they need of
the world outside is in `Surroundings`, so that a simulation may run the same ones.
"""

from __future__ import annotations

from verify.chaos.clients.client_context import History, Surroundings
from verify.chaos.clients.client_factory import RunningClient, clients_of

__all__ = ["History", "RunningClient", "Surroundings", "clients_of"]
