"""Which errors promise that nothing was written, by name: the one table of the outcome classes.

An error that is not in the table leaves the outcome unknown. Getting this wrong either hides a loss or invents one:
NOT_LEADER_OR_FOLLOWER may follow the leader's own append (KAFKA-13574), and a record that
NOT_ENOUGH_REPLICAS_AFTER_APPEND speaks of stands in the log. Names are Kafka's; ours, which are never on the wire, are
named the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from tidelog import errors
from tidelog.errors import TidelogError, error_for


class Outcome(StrEnum):
    """What an operation came to, as far as its client knows."""

    OK = "ok"
    FAILED = "failed"
    """It was refused before anything was written."""
    UNKNOWN = "unknown"
    """It may count or not, now or later."""


#: Kafka's names that do not follow from the name of our class.
_NAMED: Final[dict[type[TidelogError], str]] = {
    errors.UnknownServerError: "UNKNOWN_SERVER_ERROR",
    errors.NetworkError: "NETWORK_EXCEPTION",
    errors.InvalidTopicError: "INVALID_TOPIC_EXCEPTION",
    errors.OutOfOrderSequenceError: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    errors.DuplicateSequenceError: "DUPLICATE_SEQUENCE_NUMBER",
    errors.StorageError: "KAFKA_STORAGE_ERROR",
}


def error_name(error: TidelogError | type[TidelogError] | int) -> str:
    """An error's name in histories, of the error, of its class or of its wire code; `NONE` for code 0."""
    if isinstance(error, int):
        found = error_for(error)
        return "NONE" if found is None else error_name(found)
    cls = error if isinstance(error, type) else type(error)
    return _NAMED.get(cls) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).upper()


def _names(*classes: type[TidelogError]) -> frozenset[str]:
    return frozenset(error_name(each) for each in classes)


#: A produce that ends so was refused before any leader appended it, or never sent.
PRODUCE_FAILED: Final = _names(
    errors.CorruptMessageError,
    errors.UnknownTopicOrPartitionError,
    errors.MessageTooLargeError,
    errors.InvalidTopicError,
    errors.RecordListTooLargeError,
    errors.NotEnoughReplicasError,
    errors.InvalidRequiredAcksError,
    errors.TopicAuthorizationFailedError,
    errors.ClusterAuthorizationFailedError,
    errors.InvalidTimestampError,
    errors.UnsupportedVersionError,
    errors.UnsupportedCompressionTypeError,
    errors.InvalidRecordError,
    errors.BufferExhaustedError,
    errors.ConfigError,
)

#: A commit that ends so was refused before its record was written. NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE are
#: none of these: they may follow the write.
COMMIT_FAILED: Final = _names(
    errors.CoordinatorLoadInProgressError,
    errors.FencedInstanceIdError,
    errors.IllegalGenerationError,
    errors.InvalidGroupIdError,
    errors.InvalidRequestError,
    errors.OffsetMetadataTooLargeError,
    errors.RebalanceInProgressError,
    errors.UnknownMemberIdError,
)


def produce_outcome(attempts: Iterable[str]) -> Outcome:
    """What a produce came to that ended without an acknowledgement, by the errors of all its attempts.

    One attempt of unknown outcome makes that of the whole unknown, whatever came later.
    """
    return Outcome.FAILED if set(attempts) <= PRODUCE_FAILED else Outcome.UNKNOWN


def commit_outcome(attempts: Iterable[str]) -> Outcome:
    """The same of a commit."""
    return Outcome.FAILED if set(attempts) <= COMMIT_FAILED else Outcome.UNKNOWN


def _documented(cls: type[TidelogError]) -> Iterable[str]:
    for each in cls.__subclasses__():
        yield error_name(each)
        yield from _documented(each)


#: What an operation may end with: everything that `tidelog.errors` has, but what a broker or a client did not foresee.
DOCUMENTED: Final = frozenset(_documented(TidelogError)) - _names(
    errors.BrokerError, errors.ClientError, errors.InternalError, errors.UnknownServerError
)
