"""The settings of topics in ZooKeeper, which any client may read and change.

A client writes changed settings and the notification in one transaction, so that no change goes unnoticed. The
controller reads the notifications and sends the settings to the brokers. So brokers receive settings, leaders and topic
ids from one source, in one order.

The version of `/config/topics` itself counts the removals of topics, and a change is conditional on it. A topic's own
versions start at 0 again in the next topic of that name. That topic must not get settings that were derived from those
of the previous one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cluster.state import NO_VERSION
from cluster.zookeeper import znodes
from cluster.zookeeper.retrying_store import RetryingStore
from cluster.zookeeper.store import (
    ANY_VERSION,
    Check,
    Create,
    Node,
    OutcomeUnknownError,
    Set,
    Store,
    TransactionFailedError,
)

_NOTIFICATION = f"{znodes.CONFIG_CHANGES}/config_change_"

#: Returns the new settings of a topic for its current ones.
Change = Callable[[Mapping[str, str]], Mapping[str, str]]


class TopicConfigs:
    """Access of one session to `/config/topics`. OutcomeUnknownError if ZooKeeper does not answer in time."""

    def __init__(self, store: Store, retrying: RetryingStore) -> None:
        self._store = store
        self._retrying = retrying

    async def read(self, topic: str) -> Mapping[str, str] | None:
        """Return the topic's own settings, or None if there is no such topic. MalformedZnodeError."""
        node, exists = await self._look_up(topic)
        return _decoded(node) if exists else None

    async def read_all(self, topics: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Return the own settings of those topics; {} for a topic that has none, or does not exist.

        Topics with unreadable settings are left out.
        """
        named = sorted(set(topics))
        nodes = await asyncio.gather(*(self._retrying.get_or_none(znodes.topic_config_path(topic)) for topic in named))
        found: dict[str, Mapping[str, str]] = {}
        for topic, node in zip(named, nodes, strict=True):
            try:
                found[topic] = _decoded(node)
            except znodes.MalformedZnodeError:
                continue
        return found

    async def change(self, topic: str, change: Change) -> Mapping[str, str] | None:
        """Write what `change` returns for the topic's settings, with the notification; return it.

        `change` is called again if another client was faster; an exception of `change` ends the attempt. None means
        that there is no such topic. Unchanged settings are not written. MalformedZnodeError if the settings are
        unreadable. OutcomeUnknownError if a write got no answer and other clients have written since, because a second
        write could undo their changes.
        """
        unanswered: _UnansweredWrite | None = None
        async with self._retrying.deadline():
            while True:
                removals = await self._retrying.until_answered(lambda: self._store.get(znodes.CONFIG_TOPICS))
                node, exists = await self._look_up(topic)
                if not exists:
                    return None
                before = _decoded(node)
                after = change(before)
                if after == before:
                    return after
                if unanswered is not None and unanswered.may_be_overwritten(node):
                    raise OutcomeUnknownError(
                        f"topic {topic!r}: the settings may or may not be changed, because a write got no answer, and "
                        "another client has changed them since; describe the topic to see its settings"
                    )
                try:
                    await self._write(topic, after, node, removals)
                except TransactionFailedError:
                    await self._retrying.pause()  # another client has written or removed the node: read it again
                except OutcomeUnknownError:
                    unanswered = _UnansweredWrite(node)
                    await self._retrying.pause()
                else:
                    return after

    async def _look_up(self, topic: str) -> tuple[Node | None, bool]:
        node, stat = await asyncio.gather(
            self._retrying.get_or_none(znodes.topic_config_path(topic)),
            self._retrying.until_answered(lambda: self._store.exists(znodes.topic_path(topic))),
        )
        return node, stat is not None

    async def _write(self, topic: str, configs: Mapping[str, str], before: Node | None, removals: Node) -> None:
        path, data = znodes.topic_config_path(topic), znodes.encode_topic_config(configs)
        await self._store.multi(
            [
                Check(znodes.topic_path(topic), ANY_VERSION),
                Check(znodes.CONFIG_TOPICS, removals.stat.version),
                Create(path, data) if before is None else Set(path, data, before.stat.version),
                Create(_NOTIFICATION, znodes.encode_config_change(topic), sequence=True),
            ]
        )


@dataclass(frozen=True, slots=True)
class _UnansweredWrite:
    """A write over the node `before` whose outcome is unknown."""

    before: Node | None

    def may_be_overwritten(self, found: Node | None) -> bool:
        """Return whether another client may have written `found` after this write.

        If this write was made, its node has the version after that of `before`, so a later version means another write.
        A node with another czxid belongs to a later topic of this name.
        """
        if found is None or (self.before is not None and self.before.stat.czxid != found.stat.czxid):
            return False
        return found.stat.version > (NO_VERSION if self.before is None else self.before.stat.version) + 1


def _decoded(node: Node | None) -> Mapping[str, str]:
    return {} if node is None else znodes.decode_topic_config(node.data)
