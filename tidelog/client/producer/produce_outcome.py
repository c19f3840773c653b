"""Decide what the end of one produce attempt means for its batch. Pure.

Every end other than the success falls into one of these:

    ACKNOWLEDGED   the broker answers DUPLICATE_SEQUENCE: an earlier attempt was appended, but its offset is not known
    REFUSED        the broker rejected the batch before it appended anything, or the client sent nothing
    TOO_LARGE      as REFUSED, but the broker may accept the same records in smaller batches
    FORGOTTEN      as REFUSED, because the broker lost this producer's state, so that a new producer id is needed
    UNKNOWN        every other end: the batch may be in the log

Only errors that Kafka's contract gives before the append count as rejections. A code that this version does not know,
and a code that a produce should never bring, are UNKNOWN. A wrong UNKNOWN costs one producer id. A wrong REFUSED would
give the sequence numbers of a stored batch to other records. The broker would take these for a repetition, acknowledge
and drop them.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from tidelog.errors import (
    ClusterAuthorizationFailedError,
    CorruptMessageError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTxnStateError,
    MessageTooLargeError,
    NotEnoughReplicasError,
    OutOfOrderSequenceError,
    PolicyViolationError,
    RecordListTooLargeError,
    TidelogError,
    TopicAuthorizationFailedError,
    UnknownProducerIdError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)


class ProduceOutcome(Enum):
    """The meaning of the end of one attempt; see the table of the module."""

    ACKNOWLEDGED = auto()
    REFUSED = auto()
    TOO_LARGE = auto()
    FORGOTTEN = auto()
    UNKNOWN = auto()


_TOO_LARGE: Final = (MessageTooLargeError, RecordListTooLargeError)
_FORGOTTEN: Final = (OutOfOrderSequenceError, UnknownProducerIdError, InvalidProducerEpochError)
#: The leader raises these before it appends anything.
_BEFORE_APPEND: Final = (
    *_TOO_LARGE,
    *_FORGOTTEN,
    ClusterAuthorizationFailedError,
    CorruptMessageError,
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTimestampError,
    InvalidTopicError,
    InvalidTxnStateError,
    NotEnoughReplicasError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)


def outcome_of(error: TidelogError, *, sent: bool, idempotent: bool) -> ProduceOutcome:
    """Return what `error` means for the batch.

    sent         whether a broker may have received the attempt
    idempotent   whether the producer has a producer id; without one FORGOTTEN is not returned
    """
    if isinstance(error, DuplicateSequenceError):
        return ProduceOutcome.ACKNOWLEDGED
    if isinstance(error, _FORGOTTEN) and idempotent:
        return ProduceOutcome.FORGOTTEN
    if isinstance(error, _TOO_LARGE):
        return ProduceOutcome.TOO_LARGE
    if not sent or isinstance(error, _BEFORE_APPEND):
        return ProduceOutcome.REFUSED
    return ProduceOutcome.UNKNOWN
