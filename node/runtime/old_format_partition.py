"""A partition of a Produce request that may have records in an old format."""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import ProducePartition


@frozen
class OldFormatPartition(ProducePartition):
    """The records for one partition from a Kafka client that may send a message set (formats 0 and 1) as `records`.

    Only Produce requests of Kafka's protocol before version 3 have such partitions.
    """
