"""The names of topics by their ids, because clients of late versions name topics by id (KIP-516)."""

from __future__ import annotations

from node.metadata.metadata_cache import MetadataCache


class TopicNames:
    """An index of names by topic id and of ids by name, which follows the updates of the metadata cache."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        metadata.subscribe(on_deleted=self._deleted, on_named=self._named)

    def name_of(self, topic_id: str) -> str | None:
        """Return the name of the topic with this id (base64url), or None if this broker knows none."""
        return self._names.get(topic_id)

    def id_of(self, name: str) -> str:
        """Return the id (base64url) of the topic with this name, or "" if this broker knows none."""
        return self._ids.get(name, "")

    def _deleted(self, names: tuple[str, ...]) -> None:
        for name in names:
            self._names.pop(self._ids.pop(name, ""), None)

    def _named(self, name: str, topic_id: str) -> None:
        self._deleted((name,))
        if topic_id:
            self._names[topic_id], self._ids[name] = name, topic_id
