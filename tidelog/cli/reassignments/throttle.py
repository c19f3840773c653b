"""Limits the bytes per second that reassignments copy (KIP-73), with the settings that Kafka's own tool uses.

The rates are settings of brokers. A broker applies them to the replicas that the settings of topics name, and only
while followers are not in sync.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tidelog.errors import BrokerNotAvailableError, TidelogError
from tidelog.model import TopicPartition

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.client.admin.config_requests import ConfigResource

    _Type = click.ParamType[Any]  # generic in the stubs, but not in every release of click
else:
    _Type = click.ParamType

T = TypeVar("T")

_LEADER_RATE, _FOLLOWER_RATE = RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS, _FOLLOWERS = REPLICAS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: How long brokers may take to report how far the reassignments are. A broker that hangs must not hide the others.
ANSWER_MS = 5_000
#: The default of the rates, which is no limit.
_NO_LIMIT = 2**63 - 1
_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?(?:([KMGT]i?)?B)?(?:/s)?", re.ASCII | re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}

#: The replicas of a partition that have its records, and those that get them.
Moves = Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]]


class _Rate(_Type):
    """The type of a rate in bytes per second, written as 10MB/s (MB: 1,000,000 bytes, MiB: 1,048,576 bytes)."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        parsed = _RATE.fullmatch(value)
        if parsed is None:
            self.fail(f"{value!r} is not a rate, such as 10MB/s or 500KiB/s", param, ctx)
        unit = (parsed[2] or "").lower()
        rate = int(float(parsed[1]) * (1024 if unit.endswith("i") else 1000) ** _POWERS[unit[:1]])
        if not 0 < rate < _NO_LIMIT:
            self.fail(f"{value!r} must be at least 1 B/s, and below 8 EiB/s", param, ctx)
        return rate


RATE = _Rate()


def moves_of(
    held: Mapping[TopicPartition, Sequence[int]],
    wanted: Mapping[TopicPartition, Sequence[int]],
    adding: Mapping[TopicPartition, Collection[int]],
) -> Moves:
    """Return those changes and reassignments in progress that copy records.

    held     the present replicas of each partition
    wanted   the replicas that partitions are to have
    adding   the replicas that reassignments in progress add; they are in `held` too
    """
    moves = {}
    for tp in {**wanted, **adding}:
        having = tuple(replica for replica in held[tp] if replica not in adding.get(tp, ()))
        getting = tuple(replica for replica in wanted.get(tp, sorted(adding.get(tp, ()))) if replica not in having)
        if getting:
            moves[tp] = (having, getting)
    return moves


def set_throttle(admin: Admin, rate: int, moves: Moves) -> None:
    """Have the live brokers of the moves send and receive at most so many bytes per second for the moves."""
    involved = {broker for having, getting in moves.values() for broker in (*having, *getting)}
    _with_live_brokers(admin, lambda live: _set_throttle(admin, rate, moves, involved & set(live)))


def _set_throttle(admin: Admin, rate: int, moves: Moves, brokers: Collection[int]) -> None:
    from tidelog.client.admin.config_requests import ConfigResource

    changes: dict[ConfigResource, dict[str, str | None]] = {
        ConfigResource.broker(broker): dict.fromkeys(RATES, str(rate)) for broker in sorted(brokers)
    }
    for topic in sorted({tp.topic for tp in moves}):
        of_topic = {tp.partition: replicas for tp, replicas in sorted(moves.items()) if tp.topic == topic}
        changes[ConfigResource.topic(topic)] = {
            name: ",".join(f"{number}:{broker}" for number, sides in of_topic.items() for broker in sides[side])
            for side, name in enumerate(REPLICAS)
        }
    if changes:
        admin.alter_configs(changes)


def current_throttle(admin: Admin, live: Iterable[int]) -> int | None:
    """Return the lowest rate of the live brokers in bytes per second; None if they have no limit, or do not answer."""
    from tidelog.client.admin.config_requests import ConfigResource

    try:
        described = admin.describe_configs(map(ConfigResource.broker, live), ANSWER_MS)
    except TidelogError:
        return None
    rates = [
        int(entry.value)
        for settings in described.values()
        for name in RATES
        if (entry := settings.get(name)) is not None and entry.value
    ]
    rate = min(rates, default=_NO_LIMIT)
    return rate if rate < _NO_LIMIT else None


def remove_throttle(admin: Admin, topics: Iterable[str]) -> bool:
    """Remove the throttle of those topics for which no reassignment copies records. Return whether there was one.

    The rates of the brokers are removed too if no reassignment copies any. A cancelled one does not.
    """
    moving = {
        tp.topic
        for tp, each in admin.list_partition_reassignments().items()
        if not set(each.adding_replicas) <= set(each.removing_replicas)
    }
    ended = (set(topics) & set(admin.list_topics())) - moving
    if moving:
        return _remove_throttle(admin, ended, ())
    return _with_live_brokers(admin, lambda live: _remove_throttle(admin, ended, live))


def _remove_throttle(admin: Admin, topics: Iterable[str], brokers: Iterable[int]) -> bool:
    from tidelog.client.admin.config_requests import ConfigResource
    from tidelog.protocol.admin_messages import ConfigSource

    resources = [*map(ConfigResource.topic, sorted(topics)), *map(ConfigResource.broker, brokers)]
    own = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
    changes: dict[ConfigResource, dict[str, str | None]] = {
        resource: dict.fromkeys(found)
        for resource, settings in (admin.describe_configs(resources) if resources else {}).items()
        if (found := [name for name in (*RATES, *REPLICAS) if name in settings and settings[name].source in own])
    }
    if changes:
        admin.alter_configs(changes)
    return bool(changes)


def _with_live_brokers(admin: Admin, work: Callable[[Collection[int]], T]) -> T:
    """Call `work` with the ids of the live brokers, and return its result.

    `work` is called again if a broker has left the cluster meanwhile, for example because it was killed just before.
    Raise the BrokerNotAvailableError of `work` if the live brokers are the same as before.
    """
    live = set(admin.describe_cluster().brokers)
    while True:
        try:
            return work(live)
        except BrokerNotAvailableError:
            before, live = live, live & set(admin.describe_cluster().brokers)
            if live == before:
                raise
