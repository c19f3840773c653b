"""Watches for topics that match a pattern, and for subscribed topics that do not exist yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidelog.client.cluster_client import ClusterClient
from tidelog.client.tasks.async_event import Flag
from tidelog.client.tasks.background import SupervisedTask
from tidelog.errors import TidelogError
from tidelog.groups.membership.subscription import Subscription
from tidelog.quantities import MOST_NAMED, first_of

_log = logging.getLogger(__name__)

#: The interval at which brokers are asked for topics that are subscribed to and do not exist.
MISSING_TOPICS_MS = 3_000


class TopicWatcher:
    """Watches the topics of one subscription: matches a pattern, and refreshes the metadata of missing topics.

    subscription   None before `begin`
    on_change      called when a pattern matches other topics than before
    on_error       called with each error because of which the topics could not be listed
    """

    def __init__(
        self,
        client: ClusterClient,
        on_change: Callable[[], object],
        on_error: Callable[[TidelogError], object] = lambda error: None,
    ) -> None:
        self.subscription: Subscription | None = None
        self._client = client
        self._on_change = on_change
        self._on_error = on_error
        self._changed = Flag()
        self._watching = SupervisedTask(client.background, "the watch for subscribed topics", self._run)
        self._group_topics: frozenset[str] = frozenset()
        self._warned: set[str] = set()

    def begin(self, subscription: Subscription) -> None:
        """Watch this subscription instead of the previous one, and look at its topics now. Needs the running loop."""
        self.subscription = subscription
        self._client.track(*subscription.topics or ())
        self._changed.set()
        self._watching.start()

    @property
    def topics(self) -> frozenset[str]:
        """All topics that are watched: those of the subscription, and those of `watch_also`."""
        subscribed = self.subscription.topics if self.subscription is not None else None
        return self._group_topics.union(subscribed or ())

    def watch_also(self, topics: Iterable[str]) -> None:
        """Watch these topics of other members instead of the previous ones, besides the subscription.

        The group's leader must notice when such topics are created.
        """
        self._group_topics = frozenset(topics)
        if any(map(self._is_missing, self._group_topics)):
            self._changed.set()

    async def stop(self) -> None:
        """Stop watching, because the subscription has ended, and wait for the end of the task."""
        await self._watching.stop()

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._changed.clear()
            subscription, pause_ms = self.subscription, self._client.settings.metadata_max_age_ms
            assert subscription is not None
            try:
                await self._client.wait_for_metadata(self._deadline_ms())
                if subscription.pattern is not None:
                    await self._match(subscription)
                if await self._are_missing():
                    pause_ms = min(pause_ms, MISSING_TOPICS_MS)
                attempt = 0
            except TidelogError as error:
                _log.warning("the topics that a consumer is subscribed to cannot be listed: %s", error)
                pause_ms = self._client.lasting_backoff_ms(attempt)
                attempt += 1
                self._on_error(error)
            await self._changed.wait(pause_ms / 1000)

    async def _match(self, subscription: Subscription) -> None:
        answer = await self._client.fetch_all(self._deadline_ms())
        names = {each.name for each in answer.topics if not each.is_internal and not each.error_code}
        # A broker that has just started may not know all topics, so that known topics stay unless they are denied.
        names |= {topic for topic in subscription.topics or () if self._client.refusal(topic) is None}
        if subscription.update_matches(names):
            self._client.track(*subscription.topics or ())
            self._on_change()

    async def _are_missing(self) -> bool:
        missing = set(filter(self._is_missing, self.topics))
        if missing:
            await self._client.try_refresh(self._deadline_ms())
            missing = set(filter(self._is_missing, missing))
        if missing - self._warned:
            named = first_of(list(map(repr, sorted(missing))), MOST_NAMED)
            _log.warning("subscribed to topics that do not exist (yet): %s", named)
        self._warned = missing
        return bool(missing)

    def _is_missing(self, topic: str) -> bool:
        """Return whether the topic is unknown, or was denied since: a deleted topic's partitions are remembered."""
        return topic in self._client.view.refused or not self._client.view.partition_count(topic)

    def _deadline_ms(self) -> int:
        return self._client.clock.monotonic_ms() + self._client.settings.request_timeout_ms
