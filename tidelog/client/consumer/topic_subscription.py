"""Subscribe without a group: one consumer reads every partition of its topics.

The assignment follows the metadata. The assignment changes only during a `poll`, never while the user processes polled
records. The rebalance listener is called in the user's own task or thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.consumer.fetching.fetcher import Fetcher
from tidelog.client.metadata import ClusterView
from tidelog.errors import IllegalStateError, NoBrokersError, TidelogError
from tidelog.groups.membership.rebalance_listener import Caller, ConsumerRebalanceListener
from tidelog.groups.membership.subscription import SUBSCRIBED, Subscription
from tidelog.groups.membership.topic_watcher import TopicWatcher
from tidelog.model import TopicPartition


class TopicSubscription:
    """Assigns every partition of the subscribed topics to the fetcher, from `subscribe` until `leave`.

    call   calls the listener in the user's thread or task
    """

    def __init__(self, client: ClusterClient, fetcher: Fetcher, call: Caller) -> None:
        self._client = client
        self._fetcher = fetcher
        self._call = call
        self._watch = TopicWatcher(client, fetcher.arrived.set, self._on_error)
        self._listener = ConsumerRebalanceListener()
        self._in_listener = False
        self._unsubscribe_from_view: Callable[[], None] = lambda: None

    def subscribe(self, subscription: Subscription, listener: ConsumerRebalanceListener) -> None:
        """Read these topics from the next poll on, instead of those of an earlier subscription, and use this listener.

        Raises IllegalStateError if topics and a pattern are mixed.
        """
        subscription.require_same_kind_as(self._watch.subscription)
        if self._watch.subscription is None:
            self._unsubscribe_from_view = self._client.subscribe(self._on_view, self._needed_topics)
        self._listener = listener
        self._watch.begin(subscription)
        self._fetcher.arrived.set()

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the consumer is subscribed to; for a pattern the topics that match it.

        Empty before the first match, and without a subscription.
        """
        subscription = self._watch.subscription
        return frozenset() if subscription is None or subscription.topics is None else subscription.topics

    def before_manual_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Raise IllegalStateError, because `assign` is not allowed while the consumer is subscribed."""
        raise IllegalStateError(SUBSCRIBED)

    # --- poll --------------------------------------------------------------------------------------------

    def begin_poll(self) -> None:
        """Raise IllegalStateError if the call comes from a method of the listener; otherwise do nothing."""
        if self._in_listener:
            raise IllegalStateError(
                "a rebalance listener must not poll, because the poll that called the listener is still running"
            )

    async def run_callbacks(self) -> None:
        """Assign the partitions that the topics have now, if these have changed, and call the listener.

        The listener gets the partitions that are gone before they are unassigned, and added ones after they are
        assigned. Its exceptions are raised.
        """
        subscription = self._watch.subscription
        wanted = [TopicPartition(topic, each) for topic in sorted(self.topics) for each in range(self._count(topic))]
        gone, added = set(self._fetcher.partitions).difference(wanted), set(wanted).difference(self._fetcher.partitions)
        if gone:
            try:
                await self._call_listener(self._listener.on_partitions_revoked, gone)
            finally:
                self._drop(gone)
        if added and self._watch.subscription is subscription:
            self._fetcher.assign(wanted)
            await self._call_listener(self._listener.on_partitions_assigned, added)

    def end_poll(self) -> None:
        """Do nothing, because no group waits for the next poll."""

    async def leave(self, deadline_ms: int, *, autocommit: bool = True) -> None:
        """End the subscription, call `on_partitions_revoked` with all partitions, if there are any, and unassign them.

        An exception of the listener is raised at the end. Nothing is committed; the parameters have no effect here.
        """
        self._unsubscribe_from_view()
        try:
            await self._watch.stop()
            if owned := set(self._fetcher.partitions):
                await self._call_listener(self._listener.on_partitions_revoked, owned)
        finally:
            self._drop(set(self._fetcher.partitions))

    async def abandon(self) -> None:
        """Stop watching the topics of a consumer that was garbage-collected. The listener is not called."""
        await self._watch.stop()

    # --- helpers -----------------------------------------------------------------------------------------

    def _count(self, topic: str) -> int:
        """Return the last known number of the topic's partitions.

        The number is 0 while nothing is known, and once it is certain that the topic does not exist.
        """
        return 0 if self._client.refusal(topic) else self._client.view.partition_count(topic)

    def _drop(self, gone: set[TopicPartition]) -> None:
        partitions = self._fetcher.partitions
        for tp in gone & partitions.keys():
            standing_error = partitions[tp].standing_error
            refusal = self._client.refusal(tp.topic) if tp.topic in self.topics else None
            if (
                standing_error.error is None or standing_error.is_new()
            ):  # this way only one poll raises the error of a deleted topic
                self._fetcher.unassigned_error = self._fetcher.unassigned_error or refusal
        self._fetcher.assign([tp for tp in partitions if tp not in gone])

    async def _call_listener(
        self, method: Callable[[Collection[TopicPartition]], object], partitions: Collection[TopicPartition]
    ) -> None:
        self._in_listener = True
        try:
            await self._call(partial(method, set(partitions)))
        finally:
            self._in_listener = False

    def _needed_topics(self) -> Iterable[str]:
        return self._watch.topics

    def _on_view(self, view: ClusterView) -> None:
        self._fetcher.cluster_error.clear()
        self._fetcher.arrived.set()

    def _on_error(self, error: TidelogError) -> None:
        """Report to the reader that no broker was ever reached. The fetcher reports later outages."""
        if isinstance(error, NoBrokersError) and not self._client.view.version:
            self._fetcher.cluster_error.set(error)
            self._fetcher.arrived.set()
