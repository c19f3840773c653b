"""Check the arguments of the clients' public calls.

Each function takes the argument's name and its value, and returns the value as the client uses it. A value of a wrong
type raises ArgumentTypeError (a TypeError), a value out of range ArgumentValueError (a ValueError). A topic name that
is not valid raises InvalidTopicError, an empty group id InvalidGroupIdError. Each error names the argument and shows
the value.
Integers of any kind (`operator.index`) become an `int`; a `bool` is not accepted as an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from operator import index
from typing import Any, NoReturn, TypeVar

from tidelog.errors import ArgumentTypeError, ArgumentValueError, InvalidGroupIdError, InvalidTopicError
from tidelog.model import Buffer, OffsetAndMetadata, TopicPartition, validate_topic
from tidelog.protocol.codec import MAX_STRING

K = TypeVar("K")
T = TypeVar("T")
E = TypeVar("E", bound=IntEnum)

INT16_MAX = (1 << 15) - 1
INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

#: An error shows at most this many characters of a value.
_MOST_SHOWN = 200
_PAIR = "a TopicPartition(topic, number)"


def shown(value: object) -> str:
    """Return the value's `repr`; a text of more than 200 characters is cut there, and ends with "…"."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def _refuse(name: str, value: object, wanted: str) -> NoReturn:
    raise ArgumentTypeError(f"{name} must be {wanted}, not {shown(value)}")


# --- numbers -----------------------------------------------------------------------------------------


def whole(name: str, value: Any, least: int, most: int = INT64_MAX) -> int:
    """Return the value as an int from `least` to `most`, both included (2⁶³−1 by default)."""
    if type(value) is not int:
        if isinstance(value, bool):
            _refuse(name, value, "an integer")
        try:
            value = index(value)
        except TypeError:
            _refuse(name, value, "an integer")
    if not least <= value <= most:
        raise ArgumentValueError(f"{name} must be from {least} to {most}, not {shown(value)}")
    return value  # type: ignore[no-any-return]


def offset(name: str, value: Any) -> int:
    """Return an offset as an int from 0 to 2⁶³−1."""
    return whole(name, value, 0)


def partition_number(name: str, value: Any) -> int:
    """Return a partition's number as an int from 0 to 2³¹−1."""
    return whole(name, value, 0, INT32_MAX)


def int32(name: str, value: Any) -> int:
    """Return an int from −2³¹ to 2³¹−1. The broker checks whether the cluster accepts the value."""
    return whole(name, value, -INT32_MAX - 1, INT32_MAX)


def timeout_ms(name: str, value: Any) -> int:
    """Return a time to wait as whole milliseconds from 0 to 2⁶³−1."""
    return whole(name, value, 0)


def timeout_s(name: str, value: Any) -> float | None:
    """Return a time to wait as a float of seconds, 0 or more; None (no limit) for None and for infinity.

    A negative number and NaN raise ArgumentValueError.
    """
    if value is None:
        return None
    if isinstance(value, bool | str | bytes):
        _refuse(name, value, "a number of seconds or None")
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        _refuse(name, value, "a number of seconds or None")
    except OverflowError:
        seconds = math.nan
    if math.isnan(seconds) or seconds < 0:
        raise ArgumentValueError(f"{name} must be a number of seconds, 0 or more, not {shown(value)}")
    return None if math.isinf(seconds) else seconds


def flag(name: str, value: Any) -> bool:
    """Return the value, which must be True or False; 0 and 1 are not accepted."""
    return value if isinstance(value, bool) else _refuse(name, value, "True or False")


def function(name: str, value: Any) -> Callable[..., Any]:
    """Return the value, which must be callable."""
    return value if callable(value) else _refuse(name, value, "a function")  # type: ignore[no-any-return]


def choice(name: str, value: Any, kind: type[E]) -> E:
    """Return the member of the IntEnum `kind`, given as a member or as its number.

    An integer that is no member raises ArgumentValueError, which lists all members.
    """
    try:
        return kind(whole(name, value, -INT64_MAX))
    except ValueError:
        raise ArgumentValueError(f"{name} must be one of {', '.join(map(str, kind))}, not {shown(value)}") from None


# --- texts and bytes ---------------------------------------------------------------------------------


def text(name: str, value: Any) -> str:
    """Return a str that UTF-8 can encode in at most 32,767 bytes, the limit of a string in a message."""
    if not isinstance(value, str):
        _refuse(name, value, "a str")
    if not _is_utf8(value):
        raise ArgumentValueError(f"{name} must be text that UTF-8 can encode, not {shown(value)}")
    if (length := len(value.encode())) > MAX_STRING:
        raise ArgumentValueError(f"{name} must have at most {MAX_STRING} bytes, not {length}: {shown(value)}")
    return value


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def texts(name: str, value: Any) -> list[str]:
    """Return the strings of an iterable as a list, each checked like `text`; a single string becomes a list of one."""
    if isinstance(value, str):
        return [text(name, value)]
    return [text(f"{name}[{place}]", each) for place, each in enumerate(_iterable(name, value, "strings"))]


def topic(name: str, value: Any) -> str:
    """Return a topic's name. InvalidTopicError says which of Kafka's rules the name breaks."""
    if not isinstance(value, str):
        _refuse(name, value, "a topic's name")
    try:
        return validate_topic(value)
    except InvalidTopicError as error:
        raise InvalidTopicError(f"{name}={shown(value)}: {error}") from None


def topics(name: str, value: Any) -> list[str]:
    """Return the topics' names of an iterable as a list; a single string becomes a list of one."""
    if isinstance(value, str):
        return [topic(name, value)]
    return [topic(f"{name}[{place}]", each) for place, each in enumerate(_iterable(name, value, "topics' names"))]


def group_id(name: str, value: Any) -> str:
    """Return a group's name, checked like `text`. InvalidGroupIdError if the name is empty."""
    if text(name, value) == "":
        raise InvalidGroupIdError(f"{name} must be a group's name, not ''")
    return value  # type: ignore[no-any-return]


def group_ids(name: str, value: Any) -> list[str]:
    """Return the groups' names of an iterable as a list; a single string becomes a list of one."""
    if isinstance(value, str):
        return [group_id(name, value)]
    return [group_id(f"{name}[{place}]", each) for place, each in enumerate(_iterable(name, value, "groups' names"))]


def record_bytes(name: str, value: Any) -> bytes | None:
    """Return a record's key or value as bytes; None stays None. A bytearray or a memoryview is copied."""
    if value is None or type(value) is bytes:
        return value
    return bytes(buffer(name, value, "bytes or None"))


def buffer(name: str, value: Any, wanted: str = "bytes") -> Buffer:
    """Return the value itself, which must be bytes, a bytearray or a memoryview; an error says `wanted`."""
    return value if isinstance(value, bytes | bytearray | memoryview) else _refuse(name, value, wanted)


def values_from(name: str, value: Any, start: Any) -> int:
    """Return `start`, the index of the first value to send, as an int, and check that value.

    `value` must be a sequence with at least one entry, and neither text nor bytes. Later entries are not checked here.
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes | bytearray | memoryview):
        _refuse(name, value, "a list of values")
    if not value:
        raise ArgumentValueError(f"{name} must have at least one value, not {shown(value)}")
    first = whole("start", start, 0, len(value) - 1)
    record_bytes(f"{name}[{first}]", value[first])
    return first


def headers(name: str, value: Any) -> Sequence[tuple[str, bytes | None]]:
    """Return a record's headers as (name, bytes or None) pairs, from a dict, an iterable of such pairs, or None: ()."""
    if value is None:
        return ()
    pairs = value.items() if isinstance(value, Mapping) else _iterable(name, value, "(name, bytes) pairs, or a dict")
    return [_header(f"{name}[{place}]", pair) for place, pair in enumerate(pairs)]


def _header(name: str, pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        _refuse(name, pair, "a (name, bytes) pair")
    key, value = pair
    if not isinstance(key, str) or not _is_utf8(key):
        _refuse(f"{name}: the header's name", key, "a str that UTF-8 can encode")
    return key, record_bytes(f"{name}: the value of header {key!r}", value)


# --- partitions --------------------------------------------------------------------------------------


def partition(name: str, value: Any) -> TopicPartition:
    """Return the value as a TopicPartition.

    The value may be a TopicPartition, or another tuple or list of a topic's name and a number.
    """
    if not isinstance(value, tuple | list) or len(value) != 2:
        _refuse(name, value, _PAIR)
    topic_name, number = value
    if not isinstance(topic_name, str):
        _refuse(name, value, _PAIR)
    if type(number) is not int or not 0 <= number <= INT32_MAX:
        number = partition_number(f"{name}={shown(value)}: the number", number)
    try:
        validate_topic(topic_name)
    except InvalidTopicError as error:
        raise InvalidTopicError(f"{name}={shown(value)}: {error}") from None
    if type(value) is TopicPartition and value.partition is number:
        return value
    return TopicPartition(topic_name, number)


def partitions(name: str, value: Any) -> list[TopicPartition]:
    """Return the partitions of an iterable as a list, each once, in the order of their first occurrence.

    A single TopicPartition raises ArgumentTypeError.
    """
    if isinstance(value, TopicPartition):
        _refuse(name, value, f"a list of partitions, as [{value!r}]")
    each_one = _iterable(name, value, "a list of partitions")
    return list(dict.fromkeys(partition(f"{name}[{place}]", each) for place, each in enumerate(each_one)))


def by_partition(name: str, value: Any) -> dict[TopicPartition, Any]:
    """Return the mapping as a dict by TopicPartition, with checked keys. The caller checks the values."""
    return {partition(f"{name}: a key", tp): each for tp, each in mapping(name, value, "partitions").items()}


def offsets_by_partition(name: str, value: Any, least: int = 0) -> dict[TopicPartition, int]:
    """Return a dict of partitions to offsets, each an int from `least` to 2⁶³−1."""
    return {tp: whole(f"{name}[{tp}]", each, least) for tp, each in by_partition(name, value).items()}


def log_dirs(name: str, value: Any) -> dict[TopicPartition, str]:
    """Return a dict of partitions to paths of log directories, each checked like `text`."""
    return {tp: text(f"{name}[{tp}]", each) for tp, each in by_partition(name, value).items()}


def commits(name: str, value: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a dict of partitions to the OffsetAndMetadata that a group commits.

    The leader epoch may be None or an int from −1 on. The length of the metadata is not checked here.
    """
    return {tp: _commit(f"{name}[{tp}]", each) for tp, each in by_partition(name, value).items()}


def _commit(name: str, value: Any) -> OffsetAndMetadata:
    if not isinstance(value, OffsetAndMetadata):
        _refuse(name, value, "an OffsetAndMetadata")
    if not isinstance(value.metadata, str) or not _is_utf8(value.metadata):
        _refuse(f"{name}.metadata", value.metadata, "a str that UTF-8 can encode")
    epoch = value.leader_epoch
    return OffsetAndMetadata(
        offset(f"{name}.offset", value.offset),
        value.metadata,
        None if epoch is None else whole(f"{name}.leader_epoch", epoch, -1, INT32_MAX),
    )


# --- several -----------------------------------------------------------------------------------------


def mapping(name: str, value: Any, keys: str) -> Mapping[Any, Any]:
    """Return the value, which must be a mapping; an error says by which `keys`. The caller checks keys and values."""
    return value if isinstance(value, Mapping) else _refuse(name, value, f"a mapping by {keys}")


def instances(name: str, value: Any, kind: type[T]) -> list[T]:
    """Return the objects of an iterable as a list; each must be a `kind`. A single one raises ArgumentTypeError."""
    if isinstance(value, kind):
        _refuse(name, value, f"a list of {kind.__name__}")
    for place, each in enumerate(found := list(_iterable(name, value, f"a list of {kind.__name__}"))):
        if not isinstance(each, kind):
            _refuse(f"{name}[{place}]", each, f"a {kind.__name__}")
    return found


def broker_ids(name: str, value: Any) -> list[int]:
    """Return the brokers' ids of an iterable as a list of 32-bit ints, in its order; an id may occur twice."""
    return [int32(f"{name}[{place}]", each) for place, each in enumerate(_iterable(name, value, "brokers' ids"))]


def assignment(name: str, value: Any) -> dict[int, tuple[int, ...]] | None:
    """Return the broker ids of each partition's replicas by its number, in the given order; None for None."""
    if value is None:
        return None
    given = mapping(name, value, "partitions' numbers")
    return {
        int32(f"{name}: a key", number): tuple(broker_ids(f"{name}[{number}]", ids)) for number, ids in given.items()
    }


def _iterable(name: str, value: Any, of: str) -> Iterable[Any]:
    if isinstance(value, str | bytes | bytearray | memoryview):
        _refuse(name, value, of)
    try:
        each_one: Iterable[Any] = iter(value)
    except TypeError:
        _refuse(name, value, of)
    return each_one
