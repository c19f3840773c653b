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


class EncodedTopics:
    """A cache of encoded topics. The topics whose last use is longest ago are dropped beyond `max_bytes`.

    The metadata cache describes a topic by the same object until the topic or the live brokers change, so that an entry
    is valid for that very object.
    """

    def __init__(self, metadata: MetadataCache, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._topics: OrderedDict[str, dict[EncodedAs, _Encoded]] = OrderedDict()  # in the order of their last use
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
            pieces: list[bytes] = []
            for piece, encoded in self._pieces(topic, known, how.version):
                pieces.append(piece)
                unpaused += encoded
                if unpaused >= _PARTITIONS_PER_STEP:
                    unpaused = 0
                    yield PAUSE
            data = _encoded_topic(topic, pieces, how)
            if not topic.error_code:  # clients choose the names of unknown topics
                self._keep(_Encoded(topic, data, pieces if len(pieces) > 1 else ()), how)
            parts.append(data)
        count = len(parts) + len(more)
        parts.append(encode_elements(more, MetadataResponse, how.version))
        return cast(tuple[MetadataResponseTopic, ...], EncodedArray(count, parts))

    @staticmethod
    def _pieces(topic: native.TopicMetadata, known: _Encoded | None, version: int) -> Iterator[tuple[bytes, int]]:
        """Yield the pieces of a topic, each with how many partitions were encoded for it.

        The bytes of a piece are used again if its partitions equal those of `known`, the topic as it was before.
        """
        before = known.topic.partitions if known is not None else ()
        for number, begin in enumerate(range(0, len(topic.partitions), _PARTITIONS_PER_PIECE)):
            partitions = topic.partitions[begin : begin + _PARTITIONS_PER_PIECE]
            if known is not None and known.pieces and partitions == before[begin : begin + _PARTITIONS_PER_PIECE]:
                yield known.pieces[number], 0
            else:
                yield encode_elements(map(_partition, partitions), MetadataResponse, version), len(partitions)

    def _keep(self, encoded: _Encoded, how: EncodedAs) -> None:
        name = encoded.topic.name
        entries = self._topics.setdefault(name, {})
        self._topics.move_to_end(name)
        if how in entries:
            self.size_bytes -= entries[how].size_bytes
        entries[how] = encoded
        self.size_bytes += encoded.size_bytes
        while self.size_bytes > self._max_bytes:
            self._deleted((next(iter(self._topics)),))

    def _deleted(self, names: Iterable[str]) -> None:
        for name in names:
            self.size_bytes -= sum(each.size_bytes for each in self._topics.pop(name, {}).values())


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
