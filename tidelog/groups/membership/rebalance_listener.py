"""The listeners that are called when partitions are assigned and revoked."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from tidelog.errors import ArgumentTypeError
from tidelog.model import TopicPartition

#: Runs a listener's method in the thread or task of the consumer's user, and waits for it.
Caller = Callable[[Callable[[], object]], Awaitable[None]]


class RebalanceListener(Protocol):
    """The methods that a listener must have.

    Without `on_partitions_lost`, `on_partitions_revoked` is called in its place.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object: ...

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object: ...


class ConsumerRebalanceListener:
    """A listener whose methods do nothing; users override them.

    The methods are called within `poll`, `unsubscribe` and `close`, in the caller's own thread or task. A method may
    commit, seek and look up offsets, but not poll. With `tidelog.aio` the methods may be coroutine functions. An error
    of a method is raised by that `poll`, `unsubscribe` or `close`, after the rebalance has continued.

    Example:

        class Notes(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned):
                print("reads", sorted(assigned))

        consumer.subscribe(["orders"], listener=Notes())
        consumer.poll(timeout_ms=10_000)
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        """Handle revoked partitions. Until this method returns, the consumer owns them, and may commit."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        """Handle added partitions, which start at the group's committed offsets, else as auto_offset_reset says.

        A group calls this method after each rebalance, even without added partitions.
        """

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        """Handle partitions that may belong to other members already, so that commits for them would be refused.

        By default `on_partitions_revoked` is called.
        """
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
                raise ArgumentTypeError(f"{name} must have a method {method}, which {listener!r} lacks")
        self._listener = ConsumerRebalanceListener() if listener is None else listener

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> object:
        return self._listener.on_partitions_revoked(revoked)

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> object:
        return self._listener.on_partitions_assigned(assigned)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> object:
        return getattr(self._listener, "on_partitions_lost", self._listener.on_partitions_revoked)(lost)


async def call_here(method: Callable[[], object]) -> None:
    """Call a listener's method in the task that polls, and await its result if it is awaitable."""
    result = method()
    if inspect.isawaitable(result):
        await result
