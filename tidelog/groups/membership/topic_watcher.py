"""Looks out for topics: those that match a pattern, and those that do not exist yet."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from tidelog.client.async_event import Flag
from tidelog.client.background import SupervisedTask
from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import TidelogError
from tidelog.groups.membership.subscription import Subscription

_log = logging.getLogger(__name__)

#: How often the brokers are asked for topics that somebody is subscribed to and that do not exist.
MISSING_TOPICS_MS = 3_000


class TopicWatcher:
    """On behalf of one subscription at a time.

    on_change   called when a pattern matches other topics than before
    on_error    called with each error because of which the topics could not be listed
    """

    def __init__(
        self,
        client: ClusterClient,
        on_change: Callable[[], object],
        on_error: Callable[[TidelogError], object] = lambda error: None,
    ) -> None:
        self.choice: Subscription | None = None
        self._client = client
        self._on_change = on_change
        self._on_error = on_error
        self._chosen = Flag()
        self._watching = SupervisedTask(client.background, "the watch for subscribed topics", self._run)
        self._others: frozenset[str] = frozenset()
        self._warned: set[str] = set()

    def begin(self, choice: Subscription) -> None:
        """In place of what was chosen before."""
        self.choice = choice
        self._client.track(*choice.topics or ())
        self._chosen.set()
        self._watching.start()

    @property
    def topics(self) -> frozenset[str]:
        """All that it looks out for."""
        chosen = self.choice.topics if self.choice is not None else None
        return self._others.union(chosen or ())

    def look_out_for(self, topics: Iterable[str]) -> None:
        """Also for these, which other members chose: their leader is to see when they are made."""
        self._others = frozenset(topics)
        if any(map(self._is_missing, self._others)):
            self._chosen.set()

    async def stop(self) -> None:
        """Nobody is subscribed any more."""
        await self._watching.stop()

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._chosen.clear()
            choice, pause_ms = self.choice, self._client.settings.metadata_max_age_ms
            assert choice is not None
            try:
                await self._client.wait_for_metadata(self._deadline_ms())
                if choice.pattern is not None:
                    await self._match(choice)
                if await self._are_missing():
                    pause_ms = min(pause_ms, MISSING_TOPICS_MS)
                attempt = 0
            except TidelogError as error:
                _log.warning("the topics that a consumer is subscribed to cannot be listed: %s", error)
                pause_ms = self._client.lasting_backoff_ms(attempt)
                attempt += 1
                self._on_error(error)
            await self._chosen.wait(pause_ms / 1000)

    async def _match(self, choice: Subscription) -> None:
        answer = await self._client.fetch_all(self._deadline_ms())
        names = {each.name for each in answer.topics if not each.is_internal and not each.error_code}
        # A broker that has just started may not have heard of all of them.
        names |= {topic for topic in choice.topics or () if self._client.refusal(topic) is None}
        if choice.matches(names):
            self._client.track(*choice.topics or ())
            self._on_change()

    async def _are_missing(self) -> bool:
        missing = set(filter(self._is_missing, self.topics))
        if missing:
            await self._client.try_refresh(self._deadline_ms())
            missing = set(filter(self._is_missing, missing))
        if missing - self._warned:
            _log.warning("subscribed to topics that do not exist (yet): %s", ", ".join(map(repr, sorted(missing))))
        self._warned = missing
        return bool(missing)

    def _is_missing(self, topic: str) -> bool:
        """Never seen, or denied since: then its partitions are remembered, and only another look makes it certain."""
        return topic in self._client.view.refused or not self._client.view.partition_count(topic)

    def _deadline_ms(self) -> int:
        return self._client.clock.monotonic_ms() + self._client.settings.request_timeout_ms
