"""Every error of Tidelog, in one file.

    TidelogError
    ├── BrokerError             travels on the wire under Kafka's frozen code
    │   ├── UnknownServerError, OffsetOutOfRangeError, CorruptMessageError, …
    │   └── (one class for one code; `error_for` finds it)
    └── ClientError             ours: never on the wire
        ├── TimeoutError        the caller's own deadline passed (also a builtin TimeoutError)
        ├── DisconnectedError   the connection went away; what was in flight may or may not have happened
        ├── ProtocolError       a peer sent something that is not a message of ours
        ├── BufferExhaustedError, ClosedError, ConfigError, LocalError, NoBrokersError, DataLossError
        ├── InternalError       a defect of this client made its background work fail; the cause is chained
        ├── CommitFailedError, IllegalStateError
        ├── ArgumentTypeError (also a TypeError), ArgumentValueError (also a ValueError): a wrong argument of a call
        ├── HistoryError        what the checker was given is not a history
    and of a broker with itself: DataDirectoryError, UncleanableLogError, CleaningAbortedError
    TidelogWarning (UserWarning)    what is allowed and seldom meant: SecondsForMillisecondsWarning, ClockChangeWarning

`retriable` says that the same call may succeed later; `stale_metadata` says that the
client's picture of who leads what is old, so that it asks again before it retries.
Codes and their meaning are Kafka's (protocol guide, "Error Codes").
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tidelog.model import TopicPartition

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
    "RecordListTooLargeError",
    "ReplicaNotAvailableError",
    "RequestTimedOutError",
    "SecondsForMillisecondsWarning",
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
    """The root: whatever Tidelog raises on purpose.

    others   where a call was about several things, the errors of the further ones, in their order
    """

    retriable: ClassVar[bool] = False
    stale_metadata: ClassVar[bool] = False
    others: tuple[TidelogError, ...] = ()


class BrokerError(TidelogError):
    """An outcome that a broker may put on the wire as `code`.

    record_errors   if single records made the leader refuse their batch: the fault of each, by its index in the batch
    """

    code: ClassVar[int] = -1

    def __init__(self, *args: object, record_errors: Mapping[int, str] | None = None) -> None:
        super().__init__(*args)
        self.record_errors: Mapping[int, str] = record_errors or {}


class UnknownServerError(BrokerError):
    """The broker failed in a way that it did not foresee."""

    code = -1


class OffsetOutOfRangeError(BrokerError):
    """The offset lies before the log start or past what may be read.

    topic_partition   None where the answer is about one partition anyhow
    offset            what was asked for; −1 where a reader had no position at all
    first, end        the valid range: its first record's offset, and the one that the next record will get, which may
                      be asked for too; −1 where who raised it could not tell
    made_anew         the topic was deleted, and another one has its name: whatever stands there is not what was read
    """

    code = 1

    def __init__(
        self,
        *args: object,
        topic_partition: TopicPartition | None = None,
        offset: int = -1,
        first: int = -1,
        end: int = -1,
        on_topic_recreated: bool = False,
    ) -> None:
        super().__init__(*args)
        self.topic_partition = topic_partition
        self.offset = offset
        self.first = first
        self.end = end
        self.on_topic_recreated = on_topic_recreated


class LogTruncationError(OffsetOutOfRangeError):
    """Records that a reader was shown are not in the log of the partition's new leader (KIP-320); never on the wire.

    offset             the reader's position
    divergent_offset   from here on the log is another one; −1 where the leader could not tell
    """

    def __init__(self, *args: object, divergent_offset: int = -1, **place: Any) -> None:
        super().__init__(*args, **place)
        self.divergent_offset = divergent_offset


class CorruptMessageError(BrokerError):
    """A batch failed its CRC, or contradicts itself."""

    code = 2
    retriable = True


class UnknownTopicOrPartitionError(BrokerError):
    """This broker knows no such topic or partition (it may have just been created)."""

    code = 3
    retriable = True
    stale_metadata = True


class InvalidFetchSizeError(BrokerError):
    """A fetch asked for a size that makes no sense."""

    code = 4


class LeaderNotAvailableError(BrokerError):
    """No leader is elected at the moment."""

    code = 5
    retriable = True
    stale_metadata = True


class NotLeaderOrFollowerError(BrokerError):
    """The addressed broker does not lead the partition; after a produce the outcome is unknown."""

    code = 6
    retriable = True
    stale_metadata = True


class RequestTimedOutError(BrokerError):
    """The broker could not finish in the time that the request gave it; the outcome is unknown."""

    code = 7
    retriable = True


class BrokerNotAvailableError(BrokerError):
    """The broker is starting or stopping."""

    code = 8
    retriable = True
    stale_metadata = True


class ReplicaNotAvailableError(BrokerError):
    """The replica is not (yet) on this broker."""

    code = 9
    retriable = True
    stale_metadata = True


class MessageTooLargeError(BrokerError):
    """A batch is larger than `max.message.bytes`, or its records are too many or too large when decompressed."""

    code = 10


class StaleControllerEpochError(BrokerError):
    """A controller that is no longer one sent the request."""

    code = 11


class OffsetMetadataTooLargeError(BrokerError):
    """The metadata of a commit is longer than the broker stores."""

    code = 12


class NetworkError(BrokerError):
    """A broker lost a connection that it needed for the answer."""

    code = 13
    retriable = True
    stale_metadata = True


class CoordinatorLoadInProgressError(BrokerError):
    """The coordinator is still reading what the group has committed."""

    code = 14
    retriable = True


class CoordinatorNotAvailableError(BrokerError):
    """The group has no coordinator as of now."""

    code = 15
    retriable = True


class NotCoordinatorError(BrokerError):
    """Another broker coordinates the group."""

    code = 16
    retriable = True


class InvalidTopicError(BrokerError):
    """A topic name that Kafka's rules do not allow, or a topic that clients do not write."""

    code = 17


class RecordListTooLargeError(BrokerError):
    """The batches of one append do not fit into a segment."""

    code = 18


class NotEnoughReplicasError(BrokerError):
    """Fewer in-sync replicas than `min.insync.replicas`; nothing was appended."""

    code = 19
    retriable = True


class NotEnoughReplicasAfterAppendError(BrokerError):
    """Appended, but the ISR shrank below `min.insync.replicas` meanwhile; the outcome is unknown."""

    code = 20
    retriable = True


class InvalidRequiredAcksError(BrokerError):
    """`acks` is none of 0, 1 and −1."""

    code = 21


class IllegalGenerationError(BrokerError):
    """The member speaks of a generation that is over."""

    code = 22


class InconsistentGroupProtocolError(BrokerError):
    """The member understands no protocol that all others understand."""

    code = 23


class InvalidGroupIdError(BrokerError):
    """A group needs a name."""

    code = 24


class UnknownMemberIdError(BrokerError):
    """The group has no such member, or no more."""

    code = 25


class InvalidSessionTimeoutError(BrokerError):
    """The session timeout lies outside of what the broker allows."""

    code = 26


class RebalanceInProgressError(BrokerError):
    """A new generation is about to begin: join again."""

    code = 27


class InvalidCommitOffsetSizeError(BrokerError):
    """The offsets of one commit do not fit into a record batch: commit fewer at once."""

    code = 28


class TopicAuthorizationFailedError(BrokerError):
    """The client may not touch the topic."""

    code = 29


class ClusterAuthorizationFailedError(BrokerError):
    """The request is for brokers, and it came through the clients' door."""

    code = 31


class InvalidTimestampError(BrokerError):
    """A record's timestamp lies outside `message.timestamp.*.max.ms`."""

    code = 32


class UnsupportedVersionError(BrokerError):
    """Client and broker speak no common version of this request."""

    code = 35


class TopicAlreadyExistsError(BrokerError):
    """A topic of this name exists."""

    code = 36


class InvalidPartitionsError(BrokerError):
    """A number of partitions that cannot be."""

    code = 37


class InvalidReplicationFactorError(BrokerError):
    """More replicas than brokers, or none."""

    code = 38


class InvalidReplicaAssignmentError(BrokerError):
    """A manual assignment that contradicts itself or names unknown brokers."""

    code = 39


class InvalidConfigError(BrokerError):
    """A topic setting that does not exist or whose value is not allowed."""

    code = 40


class NotControllerError(BrokerError):
    """The addressed broker is not the controller."""

    code = 41
    retriable = True
    stale_metadata = True


class InvalidRequestError(BrokerError):
    """A message that cannot be decoded or contradicts itself."""

    code = 42


class UnsupportedForMessageFormatError(BrokerError):
    """The batch's magic is not 2."""

    code = 43


class PolicyViolationError(BrokerError):
    """A policy of the cluster forbids the request."""

    code = 44


class OutOfOrderSequenceError(BrokerError):
    """A producer's sequence number jumped: a batch before this one is missing."""

    code = 45


class DuplicateSequenceError(BrokerError):
    """A repeated batch that is too old for the broker to know its offset."""

    code = 46


class InvalidProducerEpochError(BrokerError):
    """The producer's epoch is older than the one that the partition has seen."""

    code = 47


class InvalidTxnStateError(BrokerError):
    """A transactional batch outside of an open transaction."""

    code = 48


class StorageError(BrokerError):
    """KAFKA_STORAGE_ERROR: the disk below the partition failed; its directory is offline."""

    code = 56
    retriable = True
    stale_metadata = True


class LogDirNotFoundError(BrokerError):
    """The broker has no such log directory."""

    code = 57


class UnknownProducerIdError(BrokerError):
    """The broker has no record of this producer id."""

    code = 59


class ListenerNotFoundError(BrokerError):
    """The partition's leader has no listener of the name that the request came through."""

    code = 72
    retriable = True
    stale_metadata = True


class NonEmptyGroupError(BrokerError):
    """The group has members, and only an empty one can be changed like this."""

    code = 68


class GroupIdNotFoundError(BrokerError):
    """No group has this name."""

    code = 69


class FetchSessionIdNotFoundError(BrokerError):
    """The broker keeps no such fetch session for this connection: begin a new one."""

    code = 70
    retriable = True


class InvalidFetchSessionEpochError(BrokerError):
    """A fetch of the session was lost, or came twice: begin a new one."""

    code = 71
    retriable = True


class TopicDeletionDisabledError(BrokerError):
    """`delete.topic.enable` is false."""

    code = 73


class FencedLeaderEpochError(BrokerError):
    """The request's leader epoch is older than the broker's."""

    code = 74
    retriable = True
    stale_metadata = True


class UnknownLeaderEpochError(BrokerError):
    """The request's leader epoch is newer than the broker's: it has not heard of it yet."""

    code = 75
    retriable = True
    stale_metadata = True


class UnsupportedCompressionTypeError(BrokerError):
    """A batch names a codec that nothing defines."""

    code = 76


class StaleBrokerEpochError(BrokerError):
    """The request was meant for an earlier registration of this broker (or comes from one)."""

    code = 77


class OffsetNotAvailableError(BrokerError):
    """The leader cannot say how far records are committed: it is new, or another may lead by now (KIP-207)."""

    code = 78
    retriable = True


class MemberIdRequiredError(BrokerError):
    """A newcomer must come back with the id that it was given."""

    code = 79


class PreferredLeaderNotAvailableError(BrokerError):
    """The preferred leader is not alive, or not in sync."""

    code = 80


class GroupMaxSizeReachedError(BrokerError):
    """The group has as many members as the broker allows."""

    code = 81


class FencedInstanceIdError(BrokerError):
    """Another member has taken over this instance id."""

    code = 82


class EligibleLeadersNotAvailableError(BrokerError):
    """No replica is alive that could be elected."""

    code = 83


class ElectionNotNeededError(BrokerError):
    """The election would change nothing."""

    code = 84


class NoReassignmentInProgressError(BrokerError):
    """There is no reassignment of the partition to be cancelled."""

    code = 85


class GroupSubscribedToTopicError(BrokerError):
    """Members of the group are subscribed to the topic, so that its offsets must stay."""

    code = 86


class InvalidRecordError(BrokerError):
    """A record that the broker's validation refused, or that it cannot read."""

    code = 87


class UnreadableRecordsError(InvalidRecordError):
    """A batch is in the log as it was written, and yet its records cannot be read: no repetition will help.

    offset   where the batch begins
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
    """The local log belongs to an earlier topic of the same name."""

    code = 103
    retriable = True
    stale_metadata = True


class InconsistentClusterIdError(BrokerError):
    """The request is meant for another cluster."""

    code = 104


class IneligibleReplicaError(BrokerError):
    """The replica lacks records that were committed: its log is gone, or ends before its high watermark."""

    code = 107


class ClientError(TidelogError):
    """Raised on the client's side; has no wire code."""


class TimeoutError(ClientError, builtins.TimeoutError):
    """The caller's own deadline passed; the message says how long and what is missing."""


class DisconnectedError(ClientError):
    """The connection to a broker went away with the request in flight (outcome unknown)."""

    retriable = True
    stale_metadata = True


class ProtocolError(ClientError):
    """What a peer sent is not a message of this protocol, or what it should be sent would not be one."""


class NoBrokersError(ClientError):
    """None of the bootstrap servers answered."""

    retriable = True


class BufferExhaustedError(ClientError):
    """The producer's buffer stayed full for `max_block_ms`."""


class OverloadedError(ClientError):
    """More requests are in flight on one connection than may be."""

    retriable = True


class ClosedError(ClientError):
    """The client has been closed."""


class InternalError(ClientError):
    """Work that a client does in the background failed for a reason that it did not foresee.

    Its cause (`__cause__`) is the exception that the work raised. The client goes on: it tries the work again.
    """


class CommitFailedError(ClientError):
    """The group has gone on without the consumer that commits; what was read since its last commit is read again."""


class IllegalStateError(ClientError):
    """A call that does not go with what the client is doing: its message says with what."""


class ArgumentTypeError(ClientError, TypeError):
    """An argument of a call has a type that the call does not accept; the message begins with the argument's name."""


class ArgumentValueError(ClientError, ValueError):
    """An argument of a call is out of range; the message begins with the argument's name."""


class ConfigError(ClientError, ValueError):
    """A setting that does not exist or whose value is not allowed."""


class LocalError(ClientError):
    """This machine lacks what a local cluster needs, or one of its processes did not come up; it says what to do."""


class HistoryError(ClientError):
    """What the checker was given to read is no history, or contradicts itself; the message names file and line."""


class DataDirectoryError(TidelogError):
    """A broker may not use its data directory: another process holds it, or it is another broker's or cluster's."""


class UncleanableLogError(TidelogError):
    """A log cannot be compacted, because a batch in it is damaged; it must not be tried again before that is mended."""


class CleaningAbortedError(TidelogError):
    """A log lost segments while it was being compacted. Nothing was changed; the next round begins anew."""


class DataLossError(ClientError):
    """Records that a reader was promised are gone; the message names the ranges."""


class TidelogWarning(UserWarning):
    """Something is allowed, and seldom what was meant."""


class SecondsForMillisecondsWarning(TidelogWarning):
    """A time in milliseconds lies in 1970, and taken as seconds it would lie in our days."""


class ClockChangeWarning(TidelogWarning):
    """A local time that a change of the clocks made happen twice, or never; the message says which moment was taken."""


_BY_CODE: dict[int, type[BrokerError]] = {cls.code: cls for cls in BrokerError.__subclasses__()}


def error_for(code: int, message: str = "", record_errors: Mapping[int, str] | None = None) -> BrokerError | None:
    """The error that a wire code stands for; None for 0 (no error).

    A code that this version does not know becomes UnknownServerError and keeps its number in the message.
    """
    if code == 0:
        return None
    cls = _BY_CODE.get(code)
    if cls is None:
        return UnknownServerError(f"error code {code}: {message}" if message else f"error code {code}")
    error = cls(message or (cls.__doc__ or "").split("\n", 1)[0])
    error.record_errors = record_errors or {}
    return error


def raise_first(refusals: Iterable[TidelogError | None]) -> None:
    """Raises the first error there is, if any, with all others in its `others` and in its traceback."""
    found = [each for each in refusals if each is not None]
    if found:
        first, *others = found
        first.others = tuple(others)
        for each in others:
            first.add_note(f"and {type(each).__name__}: {each}")
        raise first
