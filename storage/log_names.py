"""The names of the directories of logs.

<topic>-<partition>                a log
<topic>-<partition>.<hex>-delete   a deleted log whose files are not removed yet
<topic>-<partition>.<hex>-stray    a log that was set aside
<topic>-<partition>.<hex>-future   a log that is being filled in another directory than the partition's log
"""

from __future__ import annotations

import re
import uuid

from tidelog.errors import InvalidTopicError
from tidelog.model import TopicPartition, validate_topic

DELETED, STRAY, FUTURE = "-delete", "-stray", "-future"

_LOG_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_SET_ASIDE = re.compile(r"(?P<log>.+)\.[0-9a-f]{32}" + STRAY + r"\Z")
_FUTURE_LOG = re.compile(r"(?P<log>.+)\.[0-9a-f]{32}" + FUTURE + r"\Z")
_MAX_NAME = 255
_DIGITS = 32  # the random part that makes a retired name unique


def log_name(tp: TopicPartition) -> str:
    """Return the name of the log's directory.

    InvalidTopicError for an invalid topic name, a negative partition, or a name of more than 255 characters.
    """
    name = str(TopicPartition(validate_topic(tp.topic), tp.partition))
    if tp.partition < 0 or len(name) > _MAX_NAME:
        raise InvalidTopicError(f"{name!r} is not a valid name of a log directory")
    return name


def partition_named(name: str) -> TopicPartition | None:
    """Return the partition whose log a directory of this name holds; None if it is not a log's name."""
    match = _LOG_NAME.match(name)
    if match is None or name.startswith("."):
        return None
    try:
        return TopicPartition(validate_topic(match["topic"]), int(match["partition"]))
    except InvalidTopicError:
        return None


def partition_set_aside(name: str) -> TopicPartition | None:
    """Return the partition of a stray log's directory, in the form of `named_aside`; None for other names."""
    match = _SET_ASIDE.match(name)
    return partition_named(match["log"]) if match else None


def partition_of_future(name: str) -> TopicPartition | None:
    """Return the partition of a future log's directory, in the form of `future_name`; None for other names."""
    match = _FUTURE_LOG.match(name)
    return partition_named(match["log"]) if match else None


def future_name(tp: TopicPartition) -> str:
    """Return a new, unique directory name for a future log. InvalidTopicError if it is too long, as in Kafka."""
    name = f"{log_name(tp)}.{uuid.uuid4().hex}{FUTURE}"
    if len(name) > _MAX_NAME:
        raise InvalidTopicError(f"{tp}: the topic name is too long for a move to another log directory")
    return name


def named_aside(tp: TopicPartition, kind: str = STRAY) -> TopicPartition:
    """Return the partition as it appears in a retired directory name, where a long topic name is truncated."""
    room = _MAX_NAME - len(f"-{tp.partition}.{kind}") - _DIGITS
    return TopicPartition(tp.topic[:room], tp.partition)


def retired_name(tp: TopicPartition, kind: str) -> str:
    """Return a new, unique directory name for a log that is deleted or set aside (`kind` is `DELETED` or `STRAY`)."""
    return f"{named_aside(tp, kind)}.{uuid.uuid4().hex}{kind}"
