"""Convert errors of confluent-kafka to those of `tidelog.errors`, whose names histories contain.

An error of a broker has Kafka's code, −1 or higher. An error that librdkafka itself found has a lower code; those
without an entry here become InternalError, which the checker reports as undocumented (I22).
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from tidelog import errors
from tidelog.errors import TidelogError, UnknownServerError, error_for
from tidelog.model import TopicPartition

_FOUND_BY_LIBRDKAFKA: Final[dict[int, type[TidelogError]]] = {
    KafkaError._ALL_BROKERS_DOWN: errors.NoBrokersError,
    KafkaError._ASSIGNMENT_LOST: errors.CommitFailedError,
    KafkaError._AUTO_OFFSET_RESET: errors.OffsetOutOfRangeError,
    KafkaError._DESTROY: errors.ClosedError,
    KafkaError._DESTROY_BROKER: errors.DisconnectedError,
    # The broker has refused the whole batch because of other records.
    KafkaError._INVALID_DIFFERENT_RECORD: errors.InvalidRecordError,
    KafkaError._LOG_TRUNCATION: errors.LogTruncationError,
    KafkaError._MSG_TIMED_OUT: errors.TimeoutError,
    KafkaError._PURGE_INFLIGHT: errors.ClosedError,
    KafkaError._PURGE_QUEUE: errors.ClosedError,
    KafkaError._QUEUE_FULL: errors.BufferExhaustedError,
    KafkaError._RESOLVE: errors.DisconnectedError,
    KafkaError._STATE: errors.IllegalStateError,
    KafkaError._TIMED_OUT: errors.TimeoutError,
    KafkaError._TIMED_OUT_QUEUE: errors.TimeoutError,
    KafkaError._TRANSPORT: errors.DisconnectedError,
    KafkaError._UNKNOWN_PARTITION: errors.UnknownTopicOrPartitionError,
    KafkaError._UNKNOWN_TOPIC: errors.UnknownTopicOrPartitionError,
    KafkaError._WAIT_COORD: errors.CoordinatorNotAvailableError,
}


def error_of(error: KafkaError, tp: TopicPartition | None = None) -> TidelogError:
    """Return the error of `tidelog.errors` for an error of confluent-kafka. Its text begins with the partition `tp`,
    if there is one.
    """
    text = f"{error.name()}: {error.str()}"
    if tp is not None:
        text = f"{tp}: {text}"
    if error.code() >= KafkaError.UNKNOWN:
        return error_for(error.code(), text) or UnknownServerError(text)
    return _FOUND_BY_LIBRDKAFKA.get(error.code(), errors.InternalError)(text)


def error_of_exception(exception: KafkaException) -> TidelogError:
    """Return the error of `tidelog.errors` for an exception that a call of confluent-kafka raised."""
    error = exception.args[0]
    if not isinstance(error, KafkaError):
        return errors.InternalError(str(exception))
    return error_of(error)
