"""The data of one partition in a fetch that reads committed records only."""

from __future__ import annotations

from tidelog.frozen_dataclass import frozen
from tidelog.protocol.messages import FetchPartitionResponse
from tidelog.records.aborted import AbortedTransaction


@frozen
class CommittedRecords(FetchPartitionResponse):
    """The data of one partition, and the aborted transactions whose records the reader must leave out."""

    aborted: tuple[AbortedTransaction, ...] = ()
