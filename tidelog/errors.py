"""Define every error of Tidelog, in one file.

    TidelogError
    ├── BrokerError             sent on the wire under Kafka's frozen error code
    │   ├── UnknownServerError, OffsetOutOfRangeError, CorruptMessageError, …
    │   └── (one class for each code; `error_for` returns it)
    └── ClientError             raised by Tidelog's clients: never on the wire
        ├── TimeoutError        the caller's own deadline passed (also a builtin TimeoutError)
        ├── DisconnectedError   the connection was lost; the outcome of requests in flight is unknown
        ├── ProtocolError       a peer sent bytes that are not a message of this protocol
        ├── BufferExhaustedError, ClosedError, ConfigError, LocalError, NoBrokersError, DataLossError, OverloadedError
        ├── InternalError       a background task failed because of a defect of this client; the cause is chained
        ├── CommitFailedError, IllegalStateError
        ├── SerializationError, RecordDeserializationError      a user's function failed; the cause is chained
        ├── ArgumentTypeError (also a TypeError), ArgumentValueError (also a ValueError): a wrong argument of a call
        ├── MissingExtraError   a package of an extra is not installed (also an ImportError)
        └── HistoryError        the checker's input is not a history
    raised inside a broker only (TidelogErrors): DataDirectoryError, UncleanableLogError, CleaningAbortedError
    TidelogWarning (UserWarning)    allowed but rarely intended: SecondsForMillisecondsWarning, ClockChangeWarning

`retriable` says that the same call may succeed later. `stale_metadata` says that the client's metadata may be out of
date, so that the client requests metadata before it retries.
Codes and their meaning are Kafka's (protocol guide, "Error Codes").
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from tidelog.topic_partition import TopicPartition

__all__ = [
    "ArgumentTypeError",
    "ArgumentValueError",
    "BrokerError",
    "BrokerNotAvailableError",
    "BufferExhaustedError",
    "CleaningAbortedError",
    "ClientError",
    "ClockChangeWarning",
    "ClosedError",
    "ClusterAuthorizationFailedError",
    "CommitFailedError",
    "ConfigError",
    "CoordinatorLoadInProgressError",
    "CoordinatorNotAvailableError",
    "CorruptMessageError",
    "DataDirectoryError",
    "DataLossError",
    "DisconnectedError",
    "DuplicateSequenceError",
    "ElectionNotNeededError",
    "EligibleLeadersNotAvailableError",
    "FencedInstanceIdError",
    "FencedLeaderEpochError",
    "FetchSessionIdNotFoundError",
    "FetchSessionTopicIdError",
    "GroupIdNotFoundError",
    "GroupMaxSizeReachedError",
    "GroupSubscribedToTopicError",
    "HistoryError",
    "IllegalGenerationError",
    "IllegalStateError",
    "InconsistentClusterIdError",
    "InconsistentGroupProtocolError",
    "InconsistentTopicIdError",
    "IneligibleReplicaError",
    "InternalError",
    "InvalidCommitOffsetSizeError",
    "InvalidConfigError",
    "InvalidFetchSessionEpochError",
    "InvalidFetchSizeError",
    "InvalidGroupIdError",
    "InvalidPartitionsError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidReplicaAssignmentError",
    "InvalidReplicationFactorError",
    "InvalidRequestError",
    "InvalidRequiredAcksError",
    "InvalidSessionTimeoutError",
    "InvalidTimestampError",
    "InvalidTopicError",
    "InvalidTxnStateError",
    "LeaderNotAvailableError",
    "ListenerNotFoundError",
    "LocalError",
    "LogDirNotFoundError",
    "LogTruncationError",
    "MemberIdRequiredError",
    "MessageTooLargeError",
    "MissingExtraError",
    "NetworkError",
    "NoBrokersError",
    "NoReassignmentInProgressError",
    "NonEmptyGroupError",
    "NotControllerError",
    "NotCoordinatorError",
    "NotEnoughReplicasAfterAppendError",
    "NotEnoughReplicasError",
    "NotLeaderOrFollowerError",
    "OffsetMetadataTooLargeError",
    "OffsetNotAvailableError",
    "OffsetOutOfRangeError",
    "OutOfOrderSequenceError",
    "OverloadedError",
    "PolicyViolationError",
    "PreferredLeaderNotAvailableError",
    "ProtocolError",
    "RebalanceInProgressError",
    "RecordDeserializationError",
    "RecordListTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "SecondsForMillisecondsWarning",
    "SerializationError",
    "StaleBrokerEpochError",
    "StaleControllerEpochError",
    "StorageError",
    "TidelogError",
    "TidelogWarning",
    "TimeoutError",
    "TopicAlreadyExistsError",
    "TopicAuthorizationFailedError",
    "TopicDeletionDisabledError",
    "UncleanableLogError",
    "UnknownLeaderEpochError",
    "UnknownMemberIdError",
    "UnknownProducerIdError",
    "UnknownServerError",
    "UnknownTopicIdError",
    "UnknownTopicOrPartitionError",
    "UnreadableRecordsError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedVersionError",
    "error_for",
    "raise_first",
]


class TidelogError(Exception):
    """Base class of the error classes of Tidelog.

    others   the errors of the other resources that failed, in order, if a call concerned several; else empty

    Example:

        try:
            admin.delete_topics(["orders-1", "orders-2"])
        except TidelogError as error:
            print(error, error.others, error.retriable)
    """

    retriable: ClassVar[bool] = False
    stale_metadata: ClassVar[bool] = False
    others: tuple[TidelogError, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let pickle restore the error without its constructor, whose required parameters pickle does not know."""
        return _restored, (type(self), self.args, vars(self))


def _restored(kind: type[TidelogError], args: tuple[object, ...], fields: dict[str, object]) -> TidelogError:
    error = kind.__new__(kind, *args)
    vars(error).update(fields)
    return error


#: The maximum length of an error text in a response.
_MAX_TEXT = 1000


class BrokerError(TidelogError):
    """An error that a broker may send to a client under the wire code `code`.

    record_errors   if the leader rejected a batch because of single records: the error text of each of these records,
                    by its index in the batch; else empty
    """

    code: ClassVar[int] = -1

    def __init__(self, *args: object, record_errors: Mapping[int, str] | None = None) -> None:
        super().__init__(*args)
        self.record_errors: Mapping[int, str] = record_errors or {}


class UnknownServerError(BrokerError):
    """The broker failed unexpectedly; its log has the cause."""

    code = -1


class OffsetOutOfRangeError(BrokerError):
    """The offset lies before the log start offset or after the last offset that the reader may fetch.

    topic_partition   the consumer's partition; None if the error comes from another call
    offset            the requested offset; −1 if the reader had no position, or for an error of another call
    first, end        the valid range, both included: the log start offset, and the offset after the last record that
                      the reader may fetch; −1 if the range is not known
    made_anew         True if the topic was deleted and created again: the offset belongs to the earlier topic
    """

    code = 1

    def __init__(
        self,
        *args: object,
        topic_partition: TopicPartition | None = None,
        offset: int = -1,
        first: int = -1,
        end: int = -1,
        made_anew: bool = False,
    ) -> None:
        super().__init__(*args)
        self.topic_partition = topic_partition
        self.offset = offset
        self.first = first
        self.end = end
        self.made_anew = made_anew


class LogTruncationError(OffsetOutOfRangeError):
    """The new leader's log lacks records that the reader has already received (KIP-320); never sent on the wire.

    offset             the reader's position
    divergent_offset   the offset up to which the logs can be equal; −1 if it is not known
    """

    def __init__(self, *args: object, divergent_offset: int = -1, **location: Any) -> None:
        super().__init__(*args, **location)
        self.divergent_offset = divergent_offset


class CorruptMessageError(BrokerError):
    """A record batch failed its CRC check, or its header fields contradict each other."""

    code = 2
    retriable = True


class UnknownTopicOrPartitionError(BrokerError):
    """The broker does not know this topic or partition (it may have just been created)."""

    code = 3
    retriable = True
    stale_metadata = True


class InvalidFetchSizeError(BrokerError):
    """The fetch request has an invalid size limit."""

    code = 4


class LeaderNotAvailableError(BrokerError):
    """The partition has no leader at the moment."""

    code = 5
    retriable = True
    stale_metadata = True


class NotLeaderOrFollowerError(BrokerError):
    """The broker is not the leader of the partition; after a produce request the outcome is unknown."""

    code = 6
    retriable = True
    stale_metadata = True


class RequestTimedOutError(BrokerError):
    """The broker did not finish within the request's timeout; the outcome is unknown."""

    code = 7
    retriable = True


class BrokerNotAvailableError(BrokerError):
    """The broker cannot answer now, for example because it is starting, or is not in the cluster.

    A client raises this error also if another broker has the broker's address.
    """

    code = 8
    retriable = True
    stale_metadata = True


class ReplicaNotAvailableError(BrokerError):
    """The broker does not (yet) host this replica."""

    code = 9
    retriable = True
    stale_metadata = True


class MessageTooLargeError(BrokerError):
    """A batch is larger than `max.message.bytes`, or its decompressed records are too many or too large."""

    code = 10


class StaleControllerEpochError(BrokerError):
    """The request comes from a controller that has been replaced."""

    code = 11


class OffsetMetadataTooLargeError(BrokerError):
    """The metadata of an offset commit is longer than the broker accepts."""

    code = 12


class NetworkError(BrokerError):
    """The broker lost a connection to another broker that it needed for the answer.

    A client also uses this error for a partition that the broker's answer does not contain.
    """

    code = 13
    retriable = True
    stale_metadata = True


class CoordinatorLoadInProgressError(BrokerError):
    """The coordinator is still loading the group's committed offsets."""

    code = 14
    retriable = True


class CoordinatorNotAvailableError(BrokerError):
    """The group has no coordinator at the moment."""

    code = 15
    retriable = True


class NotCoordinatorError(BrokerError):
    """The broker is not the coordinator of the group."""

    code = 16
    retriable = True


class InvalidTopicError(BrokerError):
    """The topic name is not valid, or clients may not write to this topic."""

    code = 17


class RecordListTooLargeError(BrokerError):
    """The batches of one append do not fit into one segment."""

    code = 18


class NotEnoughReplicasError(BrokerError):
    """The partition has fewer in-sync replicas than `min.insync.replicas`; nothing was appended."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerError):
    """The ISR shrank below `min.insync.replicas` after the append; the outcome is unknown."""

    code = 20
    retriable = True


class InvalidRequiredAcksError(BrokerError):
    """`acks` must be 0, 1 or −1."""

    code = 21


class IllegalGenerationError(BrokerError):
    """The member's generation is not the group's current one."""

    code = 22


class InconsistentGroupProtocolError(BrokerError):
    """The member has another protocol type than the group, or no protocol that all other members support."""

    code = 23


class InvalidGroupIdError(BrokerError):
    """The group id is empty or not valid."""

    code = 24


class UnknownMemberIdError(BrokerError):
    """The group has no member with this id (the member may have been removed)."""

    code = 25


class InvalidSessionTimeoutError(BrokerError):
    """The session timeout is outside the range that the broker allows."""

    code = 26


class RebalanceInProgressError(BrokerError):
    """The group is rebalancing; the member must join again."""

    code = 27


class InvalidCommitOffsetSizeError(BrokerError):
    """The offsets of one commit do not fit into a record batch; commit fewer partitions at once."""

    code = 28


class TopicAuthorizationFailedError(BrokerError):
    """The client is not authorized to access the topic."""

    code = 29


class ClusterAuthorizationFailedError(BrokerError):
    """Only brokers may send this request, and it arrived on the listener for clients."""

    code = 31


class InvalidTimestampError(BrokerError):
    """A record's timestamp is outside the range that `message.timestamp.*.max.ms` allows."""

    code = 32


class UnsupportedVersionError(BrokerError):
    """The client and the broker support no common version of this request."""

    code = 35


class TopicAlreadyExistsError(BrokerError):
    """A topic with this name already exists."""

    code = 36


class InvalidPartitionsError(BrokerError):
    """The number of partitions is not valid."""

    code = 37


class InvalidReplicationFactorError(BrokerError):
    """The replication factor is less than 1 or larger than the number of brokers."""

    code = 38


class InvalidReplicaAssignmentError(BrokerError):
    """The replica assignment contradicts itself or names unknown brokers."""

    code = 39


class InvalidConfigError(BrokerError):
    """The setting does not exist, cannot be changed, or has a value that is not allowed."""

    code = 40


class NotControllerError(BrokerError):
    """The broker is not the controller."""

    code = 41
    retriable = True
    stale_metadata = True


class InvalidRequestError(BrokerError):
    """The request cannot be decoded, or its fields have wrong values or contradict each other."""

    code = 42


class UnsupportedForMessageFormatError(BrokerError):
    """The record batch does not have magic 2 (record format v2)."""

    code = 43


class PolicyViolationError(BrokerError):
    """A policy of the cluster forbids the request."""

    code = 44


class OutOfOrderSequenceError(BrokerError):
    """The batch's sequence number is not the next one of its producer.

    An earlier batch is missing, or this batch is repeated too late to be recognised, or it is split differently. A
    commit of offsets gets this error if a later commit of the same committer was accepted before.
    """

    code = 45


class DuplicateSequenceError(BrokerError):
    """The batch is a repetition that is too old for the broker to know its offset."""

    code = 46


class InvalidProducerEpochError(BrokerError):
    """The producer's epoch is older than the newest epoch that the partition has seen."""

    code = 47


class InvalidTxnStateError(BrokerError):
    """The batch is transactional, but its producer has no open transaction."""

    code = 48


class StorageError(BrokerError):
    """KAFKA_STORAGE_ERROR: the partition's disk failed, and its log directory is offline."""

    code = 56
    retriable = True
    stale_metadata = True


class LogDirNotFoundError(BrokerError):
    """The broker has no such log directory."""

    code = 57


class UnknownProducerIdError(BrokerError):
    """The broker has no state for this producer id."""

    code = 59


class ListenerNotFoundError(BrokerError):
    """The partition's leader has no listener with the name of the one that received the request."""

    code = 72
    retriable = True
    stale_metadata = True


class NonEmptyGroupError(BrokerError):
    """The group is not empty, and the requested change is refused as long as its members stay."""

    code = 68


class GroupIdNotFoundError(BrokerError):
    """The group does not exist."""

    code = 69


class FetchSessionIdNotFoundError(BrokerError):
    """The broker has no such fetch session for this fetcher; the fetcher must begin a new one.

    A follower's session belongs to one connection and one registration of the follower.
    """

    code = 70
    retriable = True


class InvalidFetchSessionEpochError(BrokerError):
    """A fetch of the session was lost or arrived twice; the fetcher must begin a new session."""

    code = 71
    retriable = True


class TopicDeletionDisabledError(BrokerError):
    """The broker does not delete topics, because `delete.topic.enable` is false."""

    code = 73


class FencedLeaderEpochError(BrokerError):
    """The request's leader epoch is older than the broker's."""

    code = 74
    retriable = True
    stale_metadata = True


class UnknownLeaderEpochError(BrokerError):
    """The request's leader epoch is newer than the one that the broker knows."""

    code = 75
    retriable = True
    stale_metadata = True


class UnsupportedCompressionTypeError(BrokerError):
    """A record batch has a compression codec that is not defined, or that this version of the request cannot have."""

    code = 76


class StaleBrokerEpochError(BrokerError):
    """The request was sent to an earlier registration of this broker, or comes from an earlier one of its sender."""

    code = 77


class OffsetNotAvailableError(BrokerError):
    """The leader does not know the high watermark yet, or another broker may have become leader (KIP-207)."""

    code = 78
    retriable = True


class MemberIdRequiredError(BrokerError):
    """A new member must join again with the member id that the coordinator assigned."""

    code = 79


class PreferredLeaderNotAvailableError(BrokerError):
    """The preferred leader is not alive or not in the ISR."""

    code = 80


class GroupMaxSizeReachedError(BrokerError):
    """The group already has as many members as the broker allows."""

    code = 81


class FencedInstanceIdError(BrokerError):
    """Another member has taken over this group instance id."""

    code = 82


class EligibleLeadersNotAvailableError(BrokerError):
    """No live replica is eligible for election."""

    code = 83


class ElectionNotNeededError(BrokerError):
    """The partition already has the leader that the election would choose."""

    code = 84


class NoReassignmentInProgressError(BrokerError):
    """The partition has no reassignment in progress that could be cancelled."""

    code = 85


class GroupSubscribedToTopicError(BrokerError):
    """A member is subscribed to the topic, or may be after the rebalance, so that its offsets cannot be deleted."""

    code = 86


class InvalidRecordError(BrokerError):
    """The broker's validation rejected a record, or a record cannot be read."""

    code = 87


class UnreadableRecordsError(InvalidRecordError):
    """The log has the batch as it was written, but its records cannot be read; retrying does not help.

    offset   the first offset of the batch
    """

    def __init__(self, *args: object, offset: int) -> None:
        super().__init__(*args)
        self.offset = offset


class UnknownTopicIdError(BrokerError):
    """No topic has this id."""

    code = 100
    retriable = True
    stale_metadata = True


class InconsistentTopicIdError(BrokerError):
    """The request and the broker's log name different topic ids (the topic was deleted and created again)."""

    code = 103
    retriable = True
    stale_metadata = True


class InconsistentClusterIdError(BrokerError):
    """The request is meant for another cluster."""

    code = 104


class FetchSessionTopicIdError(BrokerError):
    """The fetch names topics by id in a session that names them by name, or the other way round."""

    code = 106
    retriable = True


class IneligibleReplicaError(BrokerError):
    """The replica lacks committed records: its log is gone, is damaged, or ends before its high watermark."""

    code = 107


class ClientError(TidelogError):
    """Base class of errors that are raised on the client's side; they have no wire code."""


class TimeoutError(ClientError, builtins.TimeoutError):
    """The deadline of a call, of a request or of a record passed; the message says what is missing."""


class DisconnectedError(ClientError):
    """The connection to a broker was lost with a request in flight, whose outcome is unknown, or cannot be opened."""

    retriable = True
    stale_metadata = True


class ProtocolError(ClientError):
    """A peer sent bytes that are not a valid message, or a message cannot be encoded."""


class NoBrokersError(ClientError):
    """No broker could be used, neither a bootstrap server nor a broker that earlier metadata named.

    None answered, or the peers at all addresses speak another protocol than Kafka's.
    """

    retriable = True


class BufferExhaustedError(ClientError):
    """The producer's buffer stayed full for `max_block_ms`; the record was not buffered.

    A callback of a record gets the error at once, because it cannot wait.
    """


class OverloadedError(ClientError):
    """One connection has the maximum of requests in flight or in its queue, or one consumer the maximum of commits.

    Nothing was sent.
    """

    retriable = True


class ClosedError(ClientError):
    """The client has been closed before the call, during the call, or before the record was acknowledged."""


class InternalError(ClientError):
    """The client has a defect, because of which a background task or a call failed unexpectedly.

    `__cause__` is the exception that the task raised, if there is one. The client stays usable, because it starts the
    task again.
    """


class CommitFailedError(ClientError):
    """The group has rebalanced without this consumer, so that the commit failed.

    Other members read again the records that this consumer read after its last commit. The error is also raised if a
    consumer that is no member commits for a group that has members.
    """


class IllegalStateError(ClientError):
    """The call is not allowed in the client's present state, which the message names."""


class SerializationError(ClientError):
    """A producer's key_serializer or value_serializer raised an exception, which is `__cause__`; nothing was sent.

    topic   the topic of the record
    field   "key" or "value"
    """

    def __init__(self, message: str, *, topic: str, field: str) -> None:
        super().__init__(message)
        self.topic = topic
        self.field = field


class RecordDeserializationError(ClientError):
    """A consumer's key_deserializer or value_deserializer raised an exception, which is `__cause__`.

    The consumer's position stays at the record. `consumer.seek(error.topic_partition, error.offset + 1)` goes past it.

    topic_partition, offset, timestamp   those of the record; the timestamp is in ms
    field                                "key" or "value"
    key, value                           the record's bytes, or None
    """

    def __init__(
        self,
        message: str,
        *,
        topic_partition: TopicPartition,
        offset: int,
        timestamp: int,
        field: str,
        key: bytes | None,
        value: bytes | None,
    ) -> None:
        super().__init__(message)
        self.topic_partition = topic_partition
        self.offset = offset
        self.timestamp = timestamp
        self.field = field
        self.key = key
        self.value = value


class ArgumentTypeError(ClientError, TypeError):
    """An argument of a call has a type that the call does not accept; the message begins with the argument's name."""


class ArgumentValueError(ClientError, ValueError):
    """An argument of a call is out of range; the message begins with the argument's name."""


class ConfigError(ClientError, ValueError):
    """A setting does not exist, or its value is not allowed."""


class LocalError(ClientError):
    """No local cluster is known or running, the machine lacks what one needs, or a process did not start.

    The message says what to do.
    """


class MissingExtraError(ClientError, ImportError):
    """Packages of an extra are not installed; the message names them and the pip command that installs them."""


class HistoryError(ClientError):
    """The checker's input is not a history, or it contradicts itself; the message names the file and the line."""


class DataDirectoryError(TidelogError):
    """A broker may not use its log directories as they are; the message says why.

    For example, another process holds one, another broker or cluster owns one, or two hold a log of the same partition.
    """


class UncleanableLogError(TidelogError):
    """A log cannot be compacted, because a batch is damaged or a new segment would be too large.

    The broker compacts the log no more until its next start.
    """


class CleaningAbortedError(TidelogError):
    """A log was closed or lost segments during its compaction, so that the round ended without the last new segment.

    New segments that were installed before stay; the next round starts again.
    """


class DataLossError(ClientError):
    """Records that a reader was entitled to are lost; the message names the offset ranges."""


class TidelogWarning(UserWarning):
    """Base class of warnings about a use that is allowed, but is rarely intended."""


class SecondsForMillisecondsWarning(TidelogWarning):
    """A time in milliseconds lies in 1970, but read as seconds it would be a date from 2001 to 2286."""


class ClockChangeWarning(TidelogWarning):
    """A local time occurs twice or never because of a clock change; the message says which instant was used."""


_BY_CODE: dict[int, type[BrokerError]] = {cls.code: cls for cls in BrokerError.__subclasses__()}


def error_for(code: int, message: str = "", record_errors: Mapping[int, str] | None = None) -> BrokerError | None:
    """Return the error that a wire code stands for; None for 0 (no error).

    An empty `message` becomes the first line of the error class's docstring. A code that this version does not know
    becomes UnknownServerError and keeps its number in the message.
    """
    if code == 0:
        return None
    cls = _BY_CODE.get(code)
    if cls is None:
        return UnknownServerError(f"error code {code}: {message}" if message else f"error code {code}")
    error = cls(message or (cls.__doc__ or "").split("\n", 1)[0])
    error.record_errors = record_errors or {}
    return error


def text_for_response(error: BrokerError) -> str | None:
    """Return the text of an error that a response carries, with at most 1,000 characters; None if it has no text.

    The text may quote a name of the request that is as long as a string of a response may be.
    """
    return str(error)[:_MAX_TEXT] or None


#: A traceback shows at most this many other errors.
_MOST_NOTES = 5


def raise_first(errors: Iterable[TidelogError | None]) -> None:
    """Raise the first error that is not None, with all later ones in its `others` and some as notes in its traceback.

    Do nothing if there is none.
    """
    found = [each for each in errors if each is not None]
    if found:
        first, *others = found
        first.others = tuple(others)
        for each in others[:_MOST_NOTES]:
            first.add_note(f"and {type(each).__name__}: {each}")
        if len(others) > _MOST_NOTES:
            first.add_note(f"and {len(others) - _MOST_NOTES:,} more errors: see `others`")
        raise first
