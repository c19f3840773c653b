"""Encode the topics of Metadata responses once for each version, listener and change.

A topic of 10,000 partitions takes 17 ms to encode, and each of a thousand clients may ask for it when a broker fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

from node.metadata.metadata_cache import MetadataCache
from storage.steps import PAUSE, Steps
from tidelog.protocol import messages as native
from tidelog.protocol.kafka.codec import encode_elements
from tidelog.protocol.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.protocol.kafka.primitives import uuid_from_text
from tidelog.protocol.kafka.schema import EncodedArray

#: The memory for encoded topics: enough for 100,000 partitions in the versions of two kinds of clients.
_MAX_BYTES = 16 << 20
#: Partitions that are encoded together, which takes less than a millisecond. If one of them changes, all of them are
#: encoded again.
_PARTITIONS_PER_PIECE = 512
#: Partitions that are encoded before other requests run.
_PARTITIONS_PER_STEP = 1024


class EncodedAs(NamedTuple):
    """The facts that decide how a topic is encoded, beside the topic itself."""

    listener: str
    version: int
    operations: int


class _Encoded(NamedTuple):
    """The bytes of a topic. `pieces` has those of its partitions if there are several pieces, otherwise nothing."""

    topic: native.TopicMetadata
    data: bytes
    pieces: Sequence[bytes]

    @property
    def size_bytes(self) -> int:
        return len(self.data) + sum(map(len, self.pieces))


class _Begun(NamedTuple):
    """A topic of which some pieces are encoded."""

    topic: native.TopicMetadata
    pieces: list[bytes]


class EncodedTopics:
    """A cache of encoded topics. The topics whose last use is longest ago are dropped beyond `max_bytes`.

    The metadata cache describes a topic by the same object until the topic or the live brokers change, so that an entry
    is valid for that very object. Requests that arrive while a topic is being encoded go on with its pieces, so that a
    thousand clients that ask at once cost one encoding.
    """

    def __init__(self, metadata: MetadataCache, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._topics: OrderedDict[str, dict[EncodedAs, _Encoded]] = OrderedDict()  # in the order of their last use
        self._begun: dict[tuple[str, EncodedAs], _Begun] = {}
        self.size_bytes = 0
        metadata.subscribe(on_deleted=self._deleted)

    def array_of(
        self, topics: Iterable[native.TopicMetadata], more: Sequence[MetadataResponseTopic], how: EncodedAs
    ) -> Steps[tuple[MetadataResponseTopic, ...]]:
        """Return the value of `MetadataResponse.topics`, which can only be encoded, and only in this version.

        `more` are further topics. Yield PAUSE after every `_PARTITIONS_PER_STEP` partitions that were encoded.
        """
        parts: list[bytes] = []
        unpaused = 0
        for topic in topics:
            known = self._topics.get(topic.name, {}).get(how)
            if known is not None and known.topic is topic:
                self._topics.move_to_end(topic.name)
                parts.append(known.data)
                continue
            begun = self._begin(topic, how)
            for encoded in self._add_pieces(begun, known, how.version):
                unpaused += encoded
                if unpaused >= _PARTITIONS_PER_STEP:
                    unpaused = 0
                    yield PAUSE
            parts.append(self._finish(begun, how))
        count = len(parts) + len(more)
        parts.append(encode_elements(more, MetadataResponse, how.version))
        return cast(tuple[MetadataResponseTopic, ...], EncodedArray(count, parts))

    def _begin(self, topic: native.TopicMetadata, how: EncodedAs) -> _Begun:
        """Return the pieces of the topic that other requests have encoded, or begin without any."""
        begun = self._begun.get((topic.name, how))
        if begun is None or begun.topic is not topic:
            begun = _Begun(topic, [])
            if not topic.error_code:  # clients choose the names of unknown topics
                self._begun[topic.name, how] = begun
        return begun

    @staticmethod
    def _add_pieces(begun: _Begun, known: _Encoded | None, version: int) -> Iterator[int]:
        """Add the missing pieces of a topic; yield after each one how many partitions were encoded for it.

        Other requests may add pieces in between. The bytes of a piece are used again if its partitions equal those of
        `known`, the topic as it was before.
        """
        topic, pieces = begun
        before = known.topic.partitions if known is not None else ()
        while (begin := len(pieces) * _PARTITIONS_PER_PIECE) < len(topic.partitions):
            partitions = topic.partitions[begin : begin + _PARTITIONS_PER_PIECE]
            if known is not None and known.pieces and partitions == before[begin : begin + _PARTITIONS_PER_PIECE]:
                pieces.append(known.pieces[len(pieces)])
                yield 0
            else:
                pieces.append(encode_elements(map(_partition, partitions), MetadataResponse, version))
                yield len(partitions)

    def _finish(self, begun: _Begun, how: EncodedAs) -> bytes:
        """Return the bytes of a topic that has all its pieces, and keep them for later requests."""
        topic, pieces = begun
        known = self._topics.get(topic.name, {}).get(how)
        if known is not None and known.topic is topic:
            return known.data  # another request has finished the topic
        data = _encoded_topic(topic, pieces, how)
        if self._begun.get((topic.name, how)) is begun:
            del self._begun[topic.name, how]
            self._keep(_Encoded(topic, data, pieces if len(pieces) > 1 else ()), how)
        return data

    def _keep(self, encoded: _Encoded, how: EncodedAs) -> None:
        name = encoded.topic.name
        entries = self._topics.setdefault(name, {})
        self._topics.move_to_end(name)
        if how in entries:
            self.size_bytes -= entries[how].size_bytes
        entries[how] = encoded
        self.size_bytes += encoded.size_bytes
        while self.size_bytes > self._max_bytes:
            self._drop(next(iter(self._topics)))

    def _drop(self, name: str) -> None:
        self.size_bytes -= sum(each.size_bytes for each in self._topics.pop(name, {}).values())

    def _deleted(self, names: Iterable[str]) -> None:
        for name in names:
            self._drop(name)
        for key in [key for key in self._begun if key[0] in names]:
            del self._begun[key]


def _encoded_topic(topic: native.TopicMetadata, pieces: Sequence[bytes], how: EncodedAs) -> bytes:
    described = MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=uuid_from_text(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=cast(tuple[MetadataResponsePartition, ...], EncodedArray(len(topic.partitions), pieces)),
        topic_authorized_operations=how.operations,
    )
    return encode_elements((described,), MetadataResponse, how.version)


def _partition(partition: native.PartitionMetadata) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=partition.error_code,
        partition_index=partition.partition,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=partition.offline_replicas,
    )
