"""Types of command arguments that name a topic, partition, group or broker. Shells complete them from the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from tidelog.cli.admin_factory import open_admin
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition, validate_topic

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin

    _Type = click.ParamType[Any]  # generic in the stubs, but not in every release of click
else:
    _Type = click.ParamType

#: A user who has pressed TAB does not wait longer than this for a cluster that does not answer.
_COMPLETION_TIMEOUT_S = 1.0
_MOST_DIGITS = 9


class _Topic(_Type):
    """The type of a topic's name, which must be valid; whether the topic exists is not checked."""

    name = "topic"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ctx is None or not ctx.resilient_parsing:
            validate_topic(value)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(ctx, incomplete, lambda admin: admin.list_topics())


class _Partition(_Type):
    """The type of a partition, written as TOPIC/PARTITION; whether the partition exists is not checked."""

    name = "topic/partition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicPartition:
        topic, _, number = str(value).rpartition("/")
        if not topic or not (number.isascii() and number.isdecimal()) or len(number) > _MOST_DIGITS:
            self.fail(f"{value!r} is not TOPIC/PARTITION, such as lines/0", param, ctx)
        return TopicPartition(TOPIC.convert(topic, param, ctx), int(number))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        def partitions(admin: Admin) -> Iterable[str]:
            topic, slash, _ = incomplete.rpartition("/")
            for described in admin.describe_topics([topic] if slash else None):
                yield from (f"{described.topic}/{each.partition}" for each in described.partitions)

        return _complete(ctx, incomplete, partitions)


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """A topic with all of its partitions (`numbers` is None) or some of them, in ascending order."""

    topic: str
    numbers: tuple[int, ...] | None = None


class _TopicChoice(_Type):
    """The type of a `TopicChoice`, written as TOPIC or TOPIC:0,1 as in Kafka's tools."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicChoice:
        topic, colon, listed = str(value).partition(":")
        numbers = listed.split(",") if colon else []
        if not all(each.isascii() and each.isdecimal() and len(each) <= _MOST_DIGITS for each in numbers):
            self.fail(f"{value!r} is not TOPIC or TOPIC:0,1", param, ctx)
        return TopicChoice(TOPIC.convert(topic, param, ctx), tuple(sorted(set(map(int, numbers)))) if colon else None)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return TOPIC.shell_complete(ctx, param, incomplete)


class _Group(_Type):
    """The type of a consumer group's name, which must not be empty; whether the group exists is not checked."""

    name = "group"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("a group's name must not be empty", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        def groups(admin: Admin) -> Iterable[str]:
            return (each.group_id for each in admin.list_consumer_groups().valid)

        return _complete(ctx, incomplete, groups)


class _ZooKeeperGroup(_Group):
    """The type of a group's name, which shells complete from the groups that have offsets in ZooKeeper."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(ctx, incomplete, lambda admin: admin.list_zookeeper_groups())


class _BrokerId(click.IntRange):
    """The type of a broker's id (0 to 2³¹−1); whether the broker exists is not checked."""

    name = "id"

    def __init__(self) -> None:
        super().__init__(0, 2**31 - 1)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(ctx, incomplete, lambda admin: map(str, sorted(admin.describe_cluster().brokers)))


TOPIC, PARTITION, BROKER_ID = _Topic(), _Partition(), _BrokerId()
TOPIC_CHOICE, GROUP, ZOOKEEPER_GROUP = _TopicChoice(), _Group(), _ZooKeeperGroup()


def _complete(ctx: click.Context, incomplete: str, ask: Callable[[Admin], Iterable[str]]) -> list[CompletionItem]:
    try:
        with open_admin(ctx.params.get("bootstrap_servers"), _COMPLETION_TIMEOUT_S, shows_waiting=False) as admin:
            return [CompletionItem(name) for name in ask(admin) if name.startswith(incomplete)]
    except TidelogError:
        return []  # because a shell cannot show an error while it completes
