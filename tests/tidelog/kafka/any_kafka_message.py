"""Generates values of Kafka's messages from the description of their fields.

A generator of random numbers makes them, because Hypothesis took ninety times as long for these large messages.
"""

from __future__ import annotations

import random
from typing import Any

from tidelog.protocol.kafka.apis import APIS, request_class
from tidelog.protocol.kafka.schema import (
    Array,
    Bytes,
    Field,
    Fixed,
    Message,
    Nested,
    Records,
    Struct,
    Text,
    WireType,
    fields_of,
)

REQUESTS = tuple(request_class(api) for api in APIS)
MESSAGES: tuple[type[Message], ...] = tuple(cls for request in REQUESTS for cls in (request, request.response))
_INTEGERS = {"b": 8, "h": 16, "i": 32, "q": 64}
#: Characters of one, two, three and four bytes.
_CHARACTERS = "\0 az\x7fä\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"


def versions(cls: type[Message]) -> range:
    """Return all versions of a message."""
    return range(cls.valid.first, cls.valid.last + 1)


def any_message(rng: random.Random, cls: type[Struct], version: int) -> Any:
    """Return any value of a structure that this version can carry."""
    return cls(**{each.name: _field(rng, each, version) for each in fields_of(cls)})


def _field(rng: random.Random, field: Field, version: int) -> Any:
    if version not in field.versions:
        return field.default
    if version in field.nullable and rng.random() < 0.3:
        return None
    return _value(rng, field.type, version)


def _value(rng: random.Random, kind: WireType, version: int) -> Any:
    match kind:
        case Fixed("?"):
            return rng.random() < 0.5
        case Fixed("16s"):
            return rng.randbytes(16)
        case Fixed(form):
            return _integer(rng, _INTEGERS[form])
        case Text():
            return "ä" * 150 if rng.random() < 0.1 else "".join(rng.choices(_CHARACTERS, k=rng.randrange(21)))
        case Bytes() | Records():
            return rng.randbytes(rng.choice((0, 1, 40, 150)))
        case Array(item):
            most = 3 if isinstance(item, Fixed) else 2
            return tuple(_value(rng, item, version) for _ in range(rng.randint(0, most)))
        case Nested(cls):
            return any_message(rng, cls, version)


def _integer(rng: random.Random, bits: int) -> int:
    """Return an integer near zero, at an end of the range, or of any size. All sizes are equally likely."""
    limit = 1 << (bits - 1)
    return rng.choice((-1, 0, 1, -limit, limit - 1, rng.randrange(-limit, limit) >> rng.randrange(bits)))


def small_message(cls: type[Struct], version: int) -> Any:
    """Return a structure with a short value in each field of this version, and one element in each array."""
    return cls(**{each.name: _small_value(each.type, version) for each in fields_of(cls) if version in each.versions})


def _small_value(kind: WireType, version: int) -> Any:
    match kind:
        case Fixed("?"):
            return True
        case Fixed("16s"):
            return bytes(range(16))
        case Fixed():
            return 1
        case Text():
            return "a"
        case Bytes() | Records():
            return b"b"
        case Array(item):
            return (_small_value(item, version),)
        case Nested(cls):
            return small_message(cls, version)
