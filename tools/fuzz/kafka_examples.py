"""Makes messages of Kafka's protocol from the description of their fields."""

from __future__ import annotations

from typing import Any

from tidelog.protocol.kafka.schema import Array, Bytes, Fixed, Nested, Records, Struct, Text, WireType, fields_of


def kafka_example(cls: type[Struct], version: int) -> Any:
    """Return a structure with a value other than zero or empty in each field of this version, and two in each array."""
    present = [each for each in fields_of(cls) if version in each.versions]
    return cls(**{each.name: _value(each.type, version, number) for number, each in enumerate(present, 1)})


def _value(kind: WireType, version: int, number: int) -> Any:
    match kind:
        case Fixed("?"):
            return True
        case Fixed("16s"):
            return bytes(range(number, number + 16))
        case Fixed():
            return number
        case Text():
            return f"text {number} ä"
        case Bytes() | Records():
            return f"bytes {number}".encode()
        case Array(item):
            return (_value(item, version, number), _value(item, version, number + 1))
        case Nested(cls):
            return kafka_example(cls, version)
