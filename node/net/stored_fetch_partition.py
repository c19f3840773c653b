"""A fetched partition whose records are still in their file."""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen
from tidelog.model import StoredBytes
from tidelog.protocol.messages import FetchPartitionResponse


@frozen
class StoredFetchPartition(FetchPartitionResponse):
    """The data of one partition, with `stored` in place of `records`, which is None.

    Only a listener that sends files gets this data. That listener must send or read the stored bytes before the event
    loop goes on.
    """

    stored: StoredBytes | None = None
