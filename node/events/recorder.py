"""What a broker writes down of itself, so that it can be judged later: its own history (FAULTS 2).

Whoever changes a state says so here, before anybody else can see it. A broker keeps no history unless it is told to
(`node.events.history_file`); each of these calls then does nothing, since what an event tells is put together behind
the call.
"""

from __future__ import annotations

from cluster.replication.partition import IsrProposal, Partition
from tidelog.model import TopicPartition


class Events:
    """Keeps nothing. The names are those of `tidelog.history.broker_events`.

    become_leader     the partition is led from here on, in its epoch and version; the log ends there
    become_follower   it is followed
    append            the records from `first` on, up to `end`, are in its log now, appended in its present epoch
    hw                its high watermark is another
    isr_cas           ZooKeeper took the proposal as version `partition_epoch`, or (None) another write came before
    truncate          the log was cut, so that it ends at `to`
    ack               acks=all was answered with success for what ends before `required_offset`
    session           what has become of the session with ZooKeeper
    registered        /brokers/ids/N was made, with this czxid
    controller        this broker holds the controller's seat
    processed         a request that can be stale is acted upon: when that was decided, until when it might be (−1: for
                      ever), the epoch that it names, and the one that is known here (−1: none)
    reject            a request was refused since it was stale, or meant for somebody else
    error             a request was answered with UNKNOWN_SERVER_ERROR
    traceback         something happened that nobody foresaw
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


#: Of a broker that keeps no history.
NO_EVENTS = Events()
