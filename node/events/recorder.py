"""The interface through which a broker records its events, so that the checker can verify its history later.

The code that changes a state records the change before any client or broker can see it. By default a broker keeps no
history, and each call does nothing. An event is built only inside the call, so that calls cost little without a
history. `node.events.history_file` implements a history.
"""

from __future__ import annotations

from cluster.replication.partition import IsrProposal, Partition
from tidelog.model import TopicPartition


class Events:
    """Records nothing. The names are those of `tidelog.history.broker_events`.

    become_leader     this broker leads the partition in its leader epoch and partition epoch, with this log end offset
    become_follower   this broker follows the partition's leader
    append            the records from `first` up to `end` (exclusive) were appended in the current leader epoch
    hw                the partition's high watermark has changed
    isr_cas           ZooKeeper accepted the proposal as version `partition_epoch`; None: another write came first
    truncate          the log was truncated to the offset `to`
    ack               acks=all was answered with success for records below `required_offset`
    session           the state of the session with ZooKeeper has changed
    registered        /brokers/ids/N was created with this czxid
    controller        this broker has become the controller in this epoch
    processed         the broker accepts a request that could be stale: the time of the decision, the request's deadline
                      (−1: none), the epoch in the request, and the current epoch (−1: none)
    reject            a request was refused because it was stale or meant for another broker
    error             a request was answered with UNKNOWN_SERVER_ERROR
    traceback         an unexpected error occurred
    """

    def become_leader(self, partition: Partition, log_end_offset: int) -> None: ...
    def become_follower(self, partition: Partition) -> None: ...
    def append(self, partition: Partition, first: int, end: int) -> None: ...
    def hw(self, partition: Partition) -> None: ...
    def isr_cas(self, tp: TopicPartition, proposal: IsrProposal, partition_epoch: int | None) -> None: ...
    def truncate(self, tp: TopicPartition, to: int, why: str) -> None: ...
    def ack(self, partition: Partition, log_end_offset: int, required_offset: int) -> None: ...
    def session(self, state: str) -> None: ...
    def registered(self, epoch: int) -> None: ...
    def controller(self, epoch: int) -> None: ...
    def processed(
        self, api: int, now_ms: int = -1, deadline_ms: int = -1, epoch: int = -1, known: int = -1
    ) -> None: ...
    def reject(self, api: int, why: str) -> None: ...
    def error(self, api: int, code: int) -> None: ...
    def traceback(self, text: str) -> None: ...


#: The recorder of a broker that keeps no history.
NO_EVENTS = Events()
