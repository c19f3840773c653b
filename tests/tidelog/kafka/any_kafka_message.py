"""Generate values of Kafka's messages from the description of their fields."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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


def versions(cls: type[Message]) -> range:
    """Return all versions of a message."""
    return range(cls.valid.first, cls.valid.last + 1)


def any_message(cls: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Return any value of a structure that this version can carry."""
    return st.builds(cls, **{each.name: _field(each, version) for each in fields_of(cls)})


def _field(field: Field, version: int) -> st.SearchStrategy[Any]:
    if version not in field.versions:
        return st.just(field.default)
    value = _value(field.type, version)
    return st.none() | value if version in field.nullable else value


def _value(kind: WireType, version: int) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed("?"):
            return st.booleans()
        case Fixed("16s"):
            return st.binary(min_size=16, max_size=16)
        case Fixed(form):
            limit = 2 ** (_INTEGERS[form] - 1)
            return st.integers(-limit, limit - 1)
        case Text():
            return st.text(max_size=20) | st.text(min_size=150, max_size=150, alphabet="ä")
        case Bytes() | Records():
            return st.binary(max_size=40)
        case Array(Fixed() as item):
            return st.lists(_value(item, version), max_size=3).map(tuple)
        case Array(item):
            return st.lists(_value(item, version), max_size=2).map(tuple)
        case Nested(cls):
            return any_message(cls, version)
