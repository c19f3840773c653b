"""Convert events to JSON lines and back, by the fields of their classes.

A line's `e` (and `f`, for a client's operations) determines its class; each further field has its own name.
Consecutive offsets are written as the first alone: `"offset": 7` with three ids means 7, 8, 9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from operator import attrgetter
from typing import Any, Final

import orjson

from tidelog.history import broker_events, group_operations, operations
from tidelog.history.columns import column, consecutive
from tidelog.history.events import Event
from tidelog.model import TopicPartition

_OPERATIONS: Final[dict[tuple[str, str], type[Any]]] = {
    ("invoke", "produce"): operations.ProduceInvoked,
    ("ok", "produce"): operations.ProduceOk,
    ("failed", "produce"): operations.ProduceFailed,
    ("unknown", "produce"): operations.ProduceUnknown,
    ("ok", "read"): operations.Read,
    ("failed", "read"): operations.ReadFailed,
    ("ok", "latest"): operations.LatestOk,
    ("failed", "latest"): operations.LatestFailed,
    ("ok", "earliest"): operations.EarliestOk,
    ("failed", "earliest"): operations.EarliestFailed,
    ("ok", "look_up"): operations.LookUpOk,
    ("failed", "look_up"): operations.LookUpFailed,
    ("invoke", "trim"): operations.TrimInvoked,
    ("ok", "trim"): operations.TrimOk,
    ("unknown", "trim"): operations.TrimUnknown,
    ("invoke", "commit"): group_operations.CommitInvoked,
    ("ok", "commit"): group_operations.CommitOk,
    ("failed", "commit"): group_operations.CommitFailed,
    ("unknown", "commit"): group_operations.CommitUnknown,
    ("ok", "committed"): group_operations.CommittedOk,
    ("failed", "committed"): group_operations.CommittedFailed,
    ("ok", "assigned"): group_operations.Assigned,
    ("ok", "revoked"): group_operations.Revoked,
    ("overdue", "operation"): operations.Overdue,
}
_BROKER_EVENTS: Final[dict[str, type[Any]]] = {
    "become_leader": broker_events.BecomeLeader,
    "become_follower": broker_events.BecomeFollower,
    "append": broker_events.Append,
    "hw": broker_events.HighWatermark,
    "isr_cas": broker_events.IsrChange,
    "truncate": broker_events.Truncate,
    "ack": broker_events.Ack,
    "session": broker_events.Session,
    "registered": broker_events.Registered,
    "controller": broker_events.Controller,
    "processed": broker_events.Processed,
    "reject": broker_events.Reject,
    "error": broker_events.Error,
    "traceback": broker_events.Traceback,
    "resources": broker_events.Resources,
}


def _of_type(wanted: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not wanted:
            raise TypeError(f"{value!r} is not of type {wanted.__name__}")
        return value

    return check


_int, _str, _bool, _list = _of_type(int), _of_type(str), _of_type(bool), _of_type(list)


def topic_partition(value: Any) -> TopicPartition:
    topic, partition = value
    return TopicPartition(_str(topic), _int(partition))


def _list_of(each: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: tuple(map(each, _list(value)))


#: Readers by the annotations that the classes of `events` use.
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": _int,
    "int | None": _int,
    "str": _str,
    "bool": _bool,
    "Column": column,
    "Column | None": column,
    "TopicPartition": topic_partition,
    "Sequence[int]": _list_of(_int),
    "Sequence[str]": _list_of(_str),
    "Sequence[TopicPartition]": _list_of(topic_partition),
    "Mapping[int, int]": lambda value: {int(key): _int(each) for key, each in value.items()},
}
#: Types whose values are written unchanged.
_AS_THEY_ARE: Final = {"int": int, "int | None": int, "str": str, "bool": bool}
#: Fields whose name in the file is not a valid name in Python.
_WRITTEN_AS: Final = {"role": "as"}


class Shape:
    """The conversion between the events of one class and their JSON objects.

    `marks` are the entries that determine the class, such as {"e": "ok", "f": "produce"}.
    """

    def __init__(self, cls: type[Any], marks: Mapping[str, str]) -> None:
        self._cls, self._marks = cls, marks
        #: Reading must take less than two microseconds per field, because a history may have millions of lines.
        self._fields = [
            (
                each.name,
                _WRITTEN_AS.get(each.name, each.name),
                _AS_THEY_ARE.get(str(each.type)),
                _READERS[str(each.type)],
                each.default,
            )
            for each in fields(cls)
        ]
        names = [name for name, *_ in self._fields]
        self._runs = "offsets" in names and "ids" in names
        self._of_records = "ids" in names
        self._columns = [name for name, _, _, read, _ in self._fields if read is column or name == "errors"]
        self._values = attrgetter(*names)

    def read(self, line: Mapping[str, Any]) -> Any:
        """Return the event of this class in the line's JSON object; unknown entries are ignored.

        Raises KeyError, TypeError, ValueError or OverflowError if an entry is missing or wrong.
        """
        values: dict[str, Any] = {}
        for name, key, as_it_is, read, default in self._fields:
            if key in line:
                value = line[key]
                values[name] = value if type(value) is as_it_is else read(value)
            elif name == "offsets" and self._runs and "offset" in line:
                first = _int(line["offset"])
                values[name] = range(first, first + len(line["ids"]))
            elif default is MISSING:
                raise KeyError(key)
        if self._columns:
            lengths = {len(values[name]) for name in self._columns if values.get(name) is not None}
            if len(lengths) > 1:
                raise ValueError(f"its columns {', '.join(self._columns)} have different lengths")
            if self._runs:
                values["offsets"] = consecutive(values["offsets"])
            if self._of_records:
                values["ids"] = consecutive(values["ids"])
        return self._cls(**values)

    def write(self, event: Any) -> dict[str, Any]:
        line: dict[str, Any] = dict(self._marks)
        for (name, key, _, _, default), value in zip(self._fields, self._values(event), strict=True):
            if value is None or (default is not MISSING and value == default):
                continue
            if name == "offsets" and self._runs and isinstance(run := consecutive(value), range):
                line["offset"] = run.start
            else:
                line[key] = _plain(value)
        return line


def _plain(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [list(each) if isinstance(each, tuple) else each for each in value]
    return dict(value) if isinstance(value, Mapping) else value


_SHAPES: Final = {
    cls: Shape(cls, marks)
    for cls, marks in (
        *((cls, {"e": ending, "f": operation}) for (ending, operation), cls in _OPERATIONS.items()),
        *((cls, {"e": name}) for name, cls in _BROKER_EVENTS.items()),
    )
}
_BY_MARK: Final[dict[tuple[str, str | None], Shape]] = {
    **{mark: _SHAPES[cls] for mark, cls in _OPERATIONS.items()},
    **{(name, None): _SHAPES[cls] for name, cls in _BROKER_EVENTS.items()},
}
_HOW_WRITTEN: Final = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE


def to_fields(event: Event) -> dict[str, Any]:
    """Return an event as the JSON object of its line, without fields that have their default."""
    return _SHAPES[type(event)].write(event)


def of_fields(line: Mapping[str, Any]) -> Event:
    """Return the event of a line's JSON object, by its `e` and `f`.

    Raises KeyError, TypeError, ValueError or OverflowError if it is no event, or an entry is missing or wrong.
    """
    shape = _BY_MARK.get((line["e"], line.get("f")))
    if shape is None:
        raise ValueError(f"unknown event {line['e']} {line.get('f') or ''}".rstrip())
    event: Event = shape.read(line)
    return event


def to_line(content: Mapping[str, Any]) -> bytes:
    return orjson.dumps(content, option=_HOW_WRITTEN)
