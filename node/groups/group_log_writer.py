"""Writes of the coordinator to `__consumer_offsets`: produces with acks=all to the replica on this broker."""

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

#: The errors of a failed write and the errors that clients get for them, as in Kafka. The write may still be committed
#: later in each of these cases.
_CLIENT_ERRORS: tuple[tuple[tuple[type[BrokerError], ...], type[BrokerError]], ...] = (
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

#: Key and value. A record without a value is a tombstone.
Record = tuple[bytes, bytes | None]
#: Called with the offset of the first record, and with the error if the write is not known to be committed.
Done = Callable[[int, BrokerError | None], None]


class GroupLogWriter:
    """Appends records to a shard's log. A write waits at most `timeout_ms` for the in-sync replicas."""

    def __init__(self, appends: LeaderAppends, clock: Clock, timeout_ms: int) -> None:
        self._appends = appends
        self._clock = clock
        self._timeout_ms = timeout_ms

    def write(self, shard: Shard, records: Sequence[Record], done: Done) -> None:
        """Append the records as one batch. `done` is called once, before this method returns or later.

        Batches are appended in the order of the calls, and successful writes are reported in that order too. If this
        broker does not lead the shard any more, nothing is appended, and `done` gets NotCoordinatorError.
        """
        if not shard.leads:
            done(-1, NotCoordinatorError(f"{shard.topic_partition}: this broker does not lead it any more"))
            return
        now_ms = self._clock.now_ms()
        batch = encode_batch((now_ms, key, value, ()) for key, value in records)
        answer = self._appends.append_own(shard.topic_partition, batch, self._timeout_ms)

        def receive(response: Response) -> None:
            part = response.partitions[0]  # type: ignore[attr-defined]
            error = error_for(part.error_code, part.error_message or "")
            done(part.base_offset, None if error is None else _client_error(error))

        if isinstance(answer, DeferredResponse):
            answer.on_complete(receive)
        else:
            receive(answer)


def _client_error(error: BrokerError) -> BrokerError:
    for causes, client_error in _CLIENT_ERRORS:
        if isinstance(error, causes):
            return client_error(str(error))
    return error
