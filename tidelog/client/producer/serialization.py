"""Turn the keys and values of records into bytes, with the functions that the user has given a producer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog import arguments
from tidelog.errors import ArgumentTypeError, SerializationError

#: A function of one value that returns bytes.
Serialize = Callable[[Any], bytes]


class Serializer:
    """The settings key_serializer and value_serializer of one producer; None leaves keys or values as they are."""

    def __init__(self, key_serializer: Serialize | None, value_serializer: Serialize | None) -> None:
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer

    @classmethod
    def of(cls, key_serializer: Serialize | None, value_serializer: Serialize | None) -> Serializer | None:
        """Return the serializer of these two settings; None if both are None."""
        if key_serializer is None and value_serializer is None:
            return None
        return cls(key_serializer, value_serializer)

    def __call__(self, topic: str, key: Any, value: Any) -> tuple[Any, Any]:
        """Return the key and the value for a record of the topic. None is not serialized.

        Raises SerializationError if a function fails, and ArgumentTypeError if its result is not bytes.
        """
        return (
            _serialized(topic, "key", self._key_serializer, key),
            _serialized(topic, "value", self._value_serializer, value),
        )


def _serialized(topic: str, field: str, serialize: Serialize | None, given: Any) -> Any:
    if serialize is None or given is None:
        return given
    try:
        result = serialize(given)
    except Exception as error:
        raise SerializationError(
            f"topic {topic!r}: {field}_serializer failed for {field}={arguments.shown(given)}: {error!r}",
            topic=topic,
            field=field,
        ) from error
    if not isinstance(result, bytes | bytearray | memoryview):
        raise ArgumentTypeError(
            f"{field}_serializer must return bytes, not {arguments.shown(result)}, "
            f"for {field}={arguments.shown(given)} of topic {topic!r}"
        )
    return bytes(result)
