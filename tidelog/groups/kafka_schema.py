"""Reads and writes the primitive types of Kafka's schemas: big-endian integers, and fields with a length before them.

Flexible versions (KIP-482) have lengths as varints, and structures that end with tagged fields. `FlexibleReader` reads
such versions; no writer writes them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from tidelog.errors import CorruptMessageError
from tidelog.model import TopicPartition

T = TypeVar("T")

_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


class SchemaWriter:
    """Appends fields to a buffer; `bytes(writer)` returns all of them."""

    def __init__(self) -> None:
        self._parts = bytearray()

    def __bytes__(self) -> bytes:
        return bytes(self._parts)

    def int16(self, value: int) -> None:
        self._parts += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self._parts += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self._parts += _INT64.pack(value)

    def string(self, value: str | None) -> None:
        if value is None:
            self.int16(-1)
            return
        data = value.encode()
        self.int16(len(data))
        self._parts += data

    def data(self, value: bytes | None) -> None:
        self.int32(-1 if value is None else len(value))
        self._parts += value or b""

    def array(self, values: Iterable[T], write: Callable[[T], None]) -> None:
        entries = list(values)
        self.int32(len(entries))
        for entry in entries:
            write(entry)

    def partitions(self, tps: Iterable[TopicPartition]) -> None:
        """Append partitions grouped by topic, as Kafka's schemas do, in order of topic and number."""
        topics: dict[str, list[int]] = {}
        for tp in sorted(tps):
            topics.setdefault(tp.topic, []).append(tp.partition)

        def write(topic: str) -> None:
            self.string(topic)
            self.array(topics[topic], self.int32)

        self.array(topics, write)


class SchemaReader:
    """Reads fields one after the other.

    Raises CorruptMessageError if the buffer ends within a field, a string is not UTF-8, or a required field is null.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return self._number(_INT16)

    def int32(self) -> int:
        return self._number(_INT32)

    def int64(self) -> int:
        return self._number(_INT64)

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise CorruptMessageError("null where a string is required")
        return value

    def nullable_string(self) -> str | None:
        length = self._string_length()
        try:
            return None if length == -1 else self._take(length).decode()
        except UnicodeDecodeError as error:
            raise CorruptMessageError(f"a string is not UTF-8: {error}") from error

    def data(self) -> bytes:
        return self.nullable_data() or b""

    def nullable_data(self) -> bytes | None:
        length = self._length()
        return None if length == -1 else self._take(length)

    def array(self, read: Callable[[], T]) -> list[T]:
        length = self._length()
        # Every entry has at least one byte, which bounds the number of entries.
        if not 0 <= length <= self.left:
            raise CorruptMessageError(f"an array of {length} entries in {self.left} bytes")
        return [read() for _ in range(length)]

    def partitions(self) -> tuple[TopicPartition, ...]:
        def read() -> list[TopicPartition]:
            topic = self.string()
            return [TopicPartition(topic, partition) for partition in self.array(self.int32)]

        return tuple(tp for tps in self.array(read) for tp in tps)

    def end(self) -> None:
        """Read nothing: only flexible versions have an end of a structure."""

    def _string_length(self) -> int:
        return self.int16()

    def _length(self) -> int:
        return self.int32()

    @property
    def left(self) -> int:
        """The number of bytes that are not read yet."""
        return len(self._data) - self._at

    def _number(self, form: struct.Struct) -> int:
        try:
            value: int = form.unpack_from(self._data, self._at)[0]
        except struct.error:
            raise CorruptMessageError(f"a field of {form.size} bytes, but only {self.left} bytes are left") from None
        self._at += form.size
        return value

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise CorruptMessageError(f"a field of {length} bytes, but only {self.left} bytes are left")
        taken = self._data[self._at : end]
        self._at = end
        return taken


class FlexibleReader(SchemaReader):
    """Reads fields of a flexible version."""

    def end(self) -> None:
        """Skip the tagged fields."""
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _string_length(self) -> int:
        return self._length()

    def _length(self) -> int:
        return self._varint() - 1

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise CorruptMessageError("a length of more than five bytes")
