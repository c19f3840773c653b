"""Report the end of a log to the controller, which compares the logs of the replicas before an unclean recovery."""

from __future__ import annotations

from node.replication.replica_manager import ReplicaManager
from tidelog.errors import IneligibleReplicaError
from tidelog.model import TopicPartition
from tidelog.protocol.control_messages import EpochBegin, LogEndAnswer

#: The number of a log's latest epochs that are reported to the controller. Replicas can differ only in late epochs.
_MAX_EPOCHS_REPORTED = 32


def log_end_of(replicas: ReplicaManager, tp: TopicPartition) -> LogEndAnswer:
    """Return the log end offset and the latest epochs of this broker's log of the partition.

    The error code is that of IneligibleReplicaError if this broker has no log of the partition, or if the log ends
    before its recorded high watermark.
    """
    log_ = replicas.log_of(tp)
    if log_ is None:
        return LogEndAnswer(tp.topic, tp.partition, IneligibleReplicaError.code)
    lacks = log_.log_end_offset < replicas.recovered_high_watermark(tp)
    last_epoch = -1 if log_.latest_epoch is None else log_.latest_epoch
    code = IneligibleReplicaError.code if lacks else 0
    epochs = tuple(EpochBegin(*each) for each in log_.epochs[-_MAX_EPOCHS_REPORTED:])
    return LogEndAnswer(tp.topic, tp.partition, code, last_epoch, log_.log_end_offset, epochs)
