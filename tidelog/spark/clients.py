"""Keeps the clients of one process between tasks: a consumer and a producer for each cluster and its settings.

Spark reuses a Python worker for many small tasks, and a new client for each would open its connections and fetch its
metadata again. A worker runs one task at a time, so that no lock is needed.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tidelog import Consumer, Producer

_T = TypeVar("_T")

_pool: dict[Hashable, Any] = {}
_pool_process = 0


@dataclass(frozen=True)
class Clients:
    """The address of a cluster, and the user's settings for its clients (keyword arguments of Consumer or Producer).

    Picklable, because readers and writers are sent to executors; creating this object connects to no broker.
    """

    bootstrap_servers: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def consumer(self, **defaults: Any) -> Consumer:
        """Return the consumer that all tasks of this process share for this cluster and these settings.

        A caller must leave it without assignment, but must not close it, because later tasks use it too. The user's
        settings override `defaults`.
        """
        settings = {"client_id": "tidelog-spark", **defaults, **self.settings}
        return _pooled(
            ("consumer", self.bootstrap_servers, *sorted(settings.items())),
            lambda: Consumer(bootstrap_servers=self.bootstrap_servers, auto_offset_reset="none", **settings),
        )

    def producer(self) -> Producer:
        """Return the producer that all tasks of this process share for this cluster and these settings.

        Flush it, but do not close it, because later tasks use it too.
        """
        settings = {"client_id": "tidelog-spark", **self.settings}
        return _pooled(
            ("producer", self.bootstrap_servers, *sorted(settings.items())),
            lambda: Producer(self.bootstrap_servers, **settings),
        )


def _pooled(key: Hashable, make: Callable[[], _T]) -> _T:
    global _pool_process
    if _pool_process != os.getpid():
        # A forked worker must not use its parent's sockets. Existing objects (of pyspark, pyarrow) are frozen, because
        # the garbage collection before each small task would visit them all.
        _pool.clear()
        _pool_process = os.getpid()
        gc.freeze()
    if key not in _pool:
        _pool[key] = make()
    client: _T = _pool[key]
    return client
