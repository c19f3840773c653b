"""Who is told when partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from tidelog.errors import ArgumentTypeError
from tidelog.model import TopicPartition

#: Runs a listener's method where its consumer's user is, and waits for it.
Caller = Callable[[Callable[[], object]], Awaitable[None]]


class RebalanceListener(Protocol):
    """What a listener must have; `on_partitions_lost` may be missing."""

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object: ...

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object: ...


class ConsumerRebalanceListener:
    """Told of each rebalance from within `poll`, `unsubscribe` and `close`, in the caller's own thread or task.

    It may call the consumer: commit, seek, look up; but not poll. With `tidelog.aio` its methods may be coroutine
    functions. What it raises comes out of that `poll`, `unsubscribe` or `close`, after the rebalance has gone on.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """These go to others; until this returns they are still this consumer's, and may be committed."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """These came, with their committed positions unless it seeks; called after each rebalance, also with none."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """These are others' already: the group has gone on without this consumer, whose commits would be refused."""
        return self.on_partitions_revoked(lost)


class HeldListener(ConsumerRebalanceListener):
    """Passes each call on to the user's listener. Only the consumer has a strong reference to this object.

    A listener often refers to its consumer, and the tasks of the subscription live until the consumer is freed. So
    these tasks have only a weak reference to this object; otherwise no consumer with a listener could be dropped.
    """

    def __init__(self, name: str, listener: RebalanceListener | None) -> None:
        """Raise ArgumentTypeError, which names the argument, if it is neither None nor has a listener's methods."""
        for method in ("on_partitions_revoked", "on_partitions_assigned"):
            if listener is not None and not callable(getattr(listener, method, None)):
                raise ArgumentTypeError(f"{name} must have a method {method}, which {listener!r} has not")
        self._listener = ConsumerRebalanceListener() if listener is None else listener

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        return self._listener.on_partitions_revoked(revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        return self._listener.on_partitions_assigned(assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        return getattr(self._listener, "on_partitions_lost", self._listener.on_partitions_revoked)(lost)


async def call_here(method: Callable[[], object]) -> None:
    """In the task that polls."""
    result = method()
    if inspect.isawaitable(result):
        await result
