"""Classify errors by name: the only table of which errors guarantee that nothing was written.

An error that is not in the table leaves the outcome unknown. A wrong entry either hides a loss or invents one.
NOT_LEADER_OR_FOLLOWER may follow the leader's own append (KAFKA-13574), and the record of a
NOT_ENOUGH_REPLICAS_AFTER_APPEND is in the log. The names are Kafka's; errors of the client that are never on the wire
are named in the same style.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from tidelog import errors
from tidelog.errors import TidelogError, error_for


class Outcome(StrEnum):
    """The outcome of an operation, as far as its client knows."""

    OK = "ok"
    FAILED = "failed"
    """The operation was refused before anything was written."""
    UNKNOWN = "unknown"
    """The operation may have an effect or not, now or later."""


#: Kafka's names that cannot be derived from the names of our classes.
_NAMED: Final[dict[type[TidelogError], str]] = {
    errors.UnknownServerError: "UNKNOWN_SERVER_ERROR",
    errors.NetworkError: "NETWORK_EXCEPTION",
    errors.InvalidTopicError: "INVALID_TOPIC_EXCEPTION",
    errors.OutOfOrderSequenceError: "OUT_OF_ORDER_SEQUENCE_NUMBER",
    errors.DuplicateSequenceError: "DUPLICATE_SEQUENCE_NUMBER",
    errors.StorageError: "KAFKA_STORAGE_ERROR",
}


def error_name(error: TidelogError | type[TidelogError] | int) -> str:
    """Return the name in histories of an error, an error class or a wire code, for example "NOT_LEADER_OR_FOLLOWER".

    `NONE` for code 0.
    """
    if isinstance(error, int):
        found = error_for(error)
        return "NONE" if found is None else error_name(found)
    cls = error if isinstance(error, type) else type(error)
    return _NAMED.get(cls) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).upper()


def _names(*classes: type[TidelogError]) -> frozenset[str]:
    return frozenset(error_name(each) for each in classes)


#: Errors of produce requests that were refused before any leader appended the records, or never sent.
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

#: Errors of commits that were refused before their record was written. NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE
#: are not among them, because they may follow the write.
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
    """Return FAILED or UNKNOWN for a produce request without an acknowledgement, from the names of all its attempts'
    errors.

    One attempt with unknown outcome makes the outcome unknown, whatever followed. No attempts: FAILED.
    """
    return Outcome.FAILED if set(attempts) <= PRODUCE_FAILED else Outcome.UNKNOWN


def commit_outcome(attempts: Iterable[str]) -> Outcome:
    """Return FAILED or UNKNOWN for a commit without a successful answer, from the names of all its attempts' errors.

    One attempt with unknown outcome makes the outcome unknown. No attempts: FAILED.
    """
    return Outcome.FAILED if set(attempts) <= COMMIT_FAILED else Outcome.UNKNOWN


def _documented(cls: type[TidelogError]) -> Iterable[str]:
    """Yield the names of all subclasses of an error class, at any depth."""
    for each in cls.__subclasses__():
        yield error_name(each)
        yield from _documented(each)


#: The documented errors of operations: all of `tidelog.errors` except the unexpected errors of brokers and clients.
DOCUMENTED: Final = frozenset(_documented(TidelogError)) - _names(
    errors.BrokerError, errors.ClientError, errors.InternalError, errors.UnknownServerError
)
