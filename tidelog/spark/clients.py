"""The clients of one process: one consumer and one producer for each cluster and set of settings, kept between tasks.

Spark reuses a Python worker for many small tasks; a new client for each would pay for its connections and
metadata again every time. A worker runs one task at a time, so nothing here is locked.
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
    """How to reach the cluster. Picklable: it travels to the executors inside a reader or writer."""

    bootstrap_servers: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def consumer(self, **defaults: Any) -> Consumer:
        """This process's consumer; the user's settings win over `defaults`."""
        settings = {"client_id": "tidelog-spark", **defaults, **self.settings}
        return _pooled(
            ("consumer", self.bootstrap_servers, *sorted(settings.items())),
            lambda: Consumer(self.bootstrap_servers, auto_offset_reset="none", **settings),
        )

    def producer(self) -> Producer:
        """This process's producer; others may still be sending through it, so flush it, do not close it."""
        settings = {"client_id": "tidelog-spark", **self.settings}
        return _pooled(
            ("producer", self.bootstrap_servers, *sorted(settings.items())),
            lambda: Producer(self.bootstrap_servers, **settings),
        )


def _pooled(key: Hashable, make: Callable[[], _T]) -> _T:
    global _pool_process
    if _pool_process != os.getpid():
        # A forked worker must not use its parent's sockets. And what is alive by now (pyspark, pyarrow) stays: a
        # collection before each small task would walk all of it.
        _pool.clear()
        _pool_process = os.getpid()
        gc.freeze()
    if key not in _pool:
        _pool[key] = make()
    client: _T = _pool[key]
    return client
