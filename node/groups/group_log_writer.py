"""What a coordinator writes into `__consumer_offsets`: produces of its own with acks=all, to its own replica."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from node.groups.shard import Shard
from node.replication.leader_appends import LeaderAppends
from node.runtime.deferred_response import DeferredResponse
from tidelog.clock import Clock
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    MessageTooLargeError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RecordListTooLargeError,
    RequestTimedOutError,
    StorageError,
    UnknownTopicOrPartitionError,
    error_for,
)
from tidelog.protocol.messages import Response
from tidelog.records import encode_batch

#: What a failed write is to whoever waits for it, as Kafka has it. Of these nobody knows whether it will count.
_MEANINGS: tuple[tuple[tuple[type[BrokerError], ...], type[BrokerError]], ...] = (
    (
        (
            UnknownTopicOrPartitionError,
            NotEnoughReplicasError,
            NotEnoughReplicasAfterAppendError,
            RequestTimedOutError,
        ),
        CoordinatorNotAvailableError,
    ),
    ((NotLeaderOrFollowerError, StorageError), NotCoordinatorError),
)
TOO_LARGE = (MessageTooLargeError, RecordListTooLargeError)

#: key and value; no value: a tombstone
Record = tuple[bytes, bytes | None]
#: Told the offset of the first record, or why it is not known to be committed.
Done = Callable[[int, BrokerError | None], None]


class GroupLogWriter:
    """`timeout_ms`: how long the in-sync replicas are waited for."""

    def __init__(self, appends: LeaderAppends, clock: Clock, timeout_ms: int) -> None:
        self._appends = appends
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(self, shard: Shard, records: Sequence[Record], done: Done) -> None:
        """Appends them as one batch before this returns; `done` is told once, here and now or later.

        The order of what is written is the order of the calls; what is committed is told in that order too.
        """
        if not shard.leads:
            done(-1, NotCoordinatorError(f"{shard.topic_partition} is not led here any more"))
            return
        now_ms = self._clock.now_ms()
        batch = encode_batch((now_ms, key, value, ()) for key, value in records)
        answer = self._appends.append_own(shard.topic_partition, batch, self._timeout_ms)

        def receive(response: Response) -> None:
            part = response.partitions[0]  # type: ignore[attr-defined]
            error = error_for(part.error_code, part.error_message or "")
            done(part.base_offset, None if error is None else _meaning(error))

        if isinstance(answer, DeferredResponse):
            answer.on_complete(receive)
        else:
            receive(answer)


def _meaning(error: BrokerError) -> BrokerError:
    for causes, meaning in _MEANINGS:
        if isinstance(error, causes):
            return meaning(str(error))
    return error
