"""The names of the directories of logs.

<topic>-<partition>                a log
<topic>-<partition>.<hex>-delete   a log on its way out
<topic>-<partition>.<hex>-stray    a log that was set aside
"""

from __future__ import annotations

import re
import uuid

from tidelog.errors import InvalidTopicError
from tidelog.model import TopicPartition, validate_topic

DELETED, STRAY = "-delete", "-stray"

_LOG_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9][0-9]{0,9})\Z")
_SET_ASIDE = re.compile(r"(?P<log>.+)\.[0-9a-f]{32}" + STRAY + r"\Z")
_MAX_NAME = 255
_DIGITS = 32  # which make a retired name a new one


def log_name(tp: TopicPartition) -> str:
    """The directory's name. InvalidTopicError where the topic's name could lead somewhere else."""
    name = str(TopicPartition(validate_topic(tp.topic), tp.partition))
    if tp.partition < 0 or len(name) > _MAX_NAME:
        raise InvalidTopicError(f"{name} cannot be the name of a log")
    return name


def partition_named(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds; None where it is none."""
    match = _LOG_NAME.match(name)
    if match is None or name.startswith("."):
        return None
    try:
        return TopicPartition(validate_topic(match["topic"]), int(match["partition"]))
    except InvalidTopicError:
        return None


def partition_set_aside(name: str) -> TopicPartition | None:
    """The partition of which a directory of this name holds a log that was set aside, as `named_aside` has it."""
    match = _SET_ASIDE.match(name)
    return partition_named(match["log"]) if match else None


def named_aside(tp: TopicPartition, kind: str = STRAY) -> TopicPartition:
    """As what the name of a log that goes out of use tells of this partition: a long topic's name is cut."""
    room = _MAX_NAME - len(f"-{tp.partition}.{kind}") - _DIGITS
    return TopicPartition(tp.topic[:room], tp.partition)


def retired_name(tp: TopicPartition, kind: str) -> str:
    """A new name for a log that goes out of use (`DELETED` or `STRAY`)."""
    return f"{named_aside(tp, kind)}.{uuid.uuid4().hex}{kind}"
