"""Define the results of an admin's descriptions, and combine a partition's description from its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from tidelog.client.consumer.offset_lookup import Ends
from tidelog.display.listing import ShownAsTable
from tidelog.display.short_repr import fields_repr
from tidelog.model import Endpoint
from tidelog.protocol.messages import PartitionMetadata, ReplicasDescription


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition. Values that only its leader knows (the last four) are None if the leader does not answer.

    A leader of Kafka does not tell the last two.

    leader     −1: none
    replicas   with the preferred leader first
    lag        by follower, how many offsets it is behind the log end; an entry is None if the leader knows no fetch of
               that follower in its leader epoch, or since the follower registered anew or was removed from the ISR
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    lag: Mapping[int, int | None] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription(ShownAsTable):
    """One topic, with its partitions in the order of their numbers."""

    topic: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]

    def __repr__(self) -> str:
        return fields_repr(self, self.__slots__)

    def _rows_(self) -> Iterator[dict[str, object]]:
        for each in self.partitions:
            yield {"topic": self.topic, **{known.name: getattr(each, known.name) for known in fields(each)}}


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster.

    controller   the controller's broker id; −1 if there is none
    brokers      the live brokers by id
    kind         "Tidelog", or which Kafka it is: "Apache Kafka (metadata.version 27)", "Apache Kafka (without KRaft)"
    racks        the racks (broker.rack) of those of `brokers` that have one, by id
    """

    cluster_id: str
    controller: int
    brokers: Mapping[int, Endpoint]
    kind: str
    racks: Mapping[int, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return fields_repr(self, self.__slots__)

    def _repr_html_(self) -> str:
        from tidelog.display.html_table import html_table

        controller = f"controller {self.controller}" if self.controller >= 0 else "no controller"
        return html_table(self._rows_(), caption=f"cluster {self.cluster_id} ({self.kind}), {controller}")

    def _rows_(self) -> Iterator[dict[str, object]]:
        for broker, endpoint in self.brokers.items():
            rack = {"rack": self.racks.get(broker)} if self.racks else {}
            yield {"broker": broker, "address": endpoint, **rack}


def describe_partition(
    known: PartitionMetadata, description: ReplicasDescription | None, ends: Ends | None
) -> PartitionDescription:
    """Return the description of a partition from its metadata and its leader's answer; None: the leader did not answer.

    The log start offset and the high watermark are then those of `ends`, if they are known. The ISR is the leader's,
    and the leader epoch is the larger one. The leader and the replicas come from the metadata.
    """
    if description is None:
        return PartitionDescription(
            known.partition,
            known.leader,
            known.leader_epoch,
            known.replicas,
            known.isr,
            known.offline_replicas,
            None if ends is None else ends.start,
            None if ends is None else ends.end,
        )
    log_ends = description.log_end_offsets or {}
    lag = {
        replica: max(0, description.log_end_offset - log_ends[replica]) if log_ends.get(replica, -1) >= 0 else None
        for replica in known.replicas
        if replica != known.leader
    }
    return PartitionDescription(
        known.partition,
        known.leader,
        max(known.leader_epoch, description.leader_epoch),
        known.replicas,
        description.isr or known.isr,
        known.offline_replicas,
        description.log_start_offset,
        description.high_watermark,
        description.log_end_offset,
        lag,
    )
