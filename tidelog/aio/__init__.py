"""Provide the clients for asyncio programs, with the names and settings of `tidelog`.

Each client is imported when it is first used, so that a program that only produces does not load the consumer.

A client belongs to the event loop of its first call. A call in another loop raises RuntimeError, so a client must be
made and closed within one `asyncio.run`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.aio.admin import Admin
    from tidelog.aio.consumer import Consumer
    from tidelog.aio.producer import Producer

__all__ = ["Admin", "Consumer", "Producer"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"tidelog.aio.{name.lower()}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
