"""Turn the bytes of fetched records into keys and values, with the functions that the user has given a consumer.

Records stay bytes in all buffers. They are deserialized when they are handed to the user, in the user's thread or task,
so that slow functions do not delay heartbeats and fetches of a synchronous consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.client.consumer.fetching.fetch_buffer import ConsumerRecord
from tidelog.display.listing import Listing, Table
from tidelog.errors import RecordDeserializationError
from tidelog.model import TopicPartition

#: A function of one bytes object that returns any value.
Deserialize = Callable[[bytes], Any]

Polled = dict[TopicPartition, list[ConsumerRecord]]


class Deserializer:
    """The settings key_deserializer and value_deserializer of one consumer; None leaves keys or values as bytes."""

    def __init__(self, key_deserializer: Deserialize | None, value_deserializer: Deserialize | None) -> None:
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer

    @classmethod
    def of(cls, key_deserializer: Deserialize | None, value_deserializer: Deserialize | None) -> Deserializer | None:
        """Return the deserializer of these two settings; None if both are None."""
        if key_deserializer is None and value_deserializer is None:
            return None
        return cls(key_deserializer, value_deserializer)

    def record(self, record: ConsumerRecord) -> ConsumerRecord:
        """Return the record with its key and its value deserialized. A null is not deserialized.

        Raises RecordDeserializationError if a function fails.
        """
        key = self._deserialized(record, "key", self._key_deserializer, record.key)
        value = self._deserialized(record, "value", self._value_deserializer, record.value)
        return ConsumerRecord(*record[:-3], key, value, record.headers)

    def polled(
        self, polled: Mapping[TopicPartition, list[ConsumerRecord]]
    ) -> tuple[Polled, list[RecordDeserializationError]]:
        """Return the deserialized records of each partition up to the first one that fails, and the errors.

        A partition whose first record fails is left out.
        """
        found: Polled = Table()
        errors: list[RecordDeserializationError] = []
        for tp, records in polled.items():
            for record in records:
                try:
                    deserialized = self.record(record)
                except RecordDeserializationError as error:
                    errors.append(error)
                    break
                found.setdefault(tp, Listing()).append(deserialized)
        return found, errors

    def _deserialized(
        self, record: ConsumerRecord, field: str, deserialize: Deserialize | None, given: bytes | None
    ) -> Any:
        if deserialize is None or given is None:
            return given
        try:
            return deserialize(given)
        except Exception as error:
            tp = TopicPartition(record.topic, record.partition)
            raise RecordDeserializationError(
                f"{tp}: {field}_deserializer failed for the record of offset {record.offset}: {error!r}; "
                "seek past the record to go on without it",
                topic_partition=tp,
                offset=record.offset,
                timestamp=record.timestamp,
                field=field,
                key=record.key,
                value=record.value,
            ) from error
