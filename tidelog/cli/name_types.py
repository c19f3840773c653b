"""What a command takes by its name, and shells complete by asking the cluster: topics, partitions, groups, brokers."""

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

    _Type = click.ParamType[Any]  # in what mypy reads, not in every click that runs
else:
    _Type = click.ParamType

#: Whoever pressed TAB waits no longer for a cluster that does not answer.
_COMPLETION_TIMEOUT_S = 1.0
_MOST_DIGITS = 9


class _Topic(_Type):
    """A topic's name as it may be; whether there is such a topic is for the cluster to say."""

    name = "topic"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ctx is None or not ctx.resilient_parsing:
            validate_topic(value)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(ctx, incomplete, lambda admin: admin.list_topics())


class _Partition(_Type):
    """TOPIC/PARTITION"""

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
    """A topic, all of it (`numbers` None) or some of its partitions."""

    topic: str
    numbers: tuple[int, ...] | None = None


class _TopicChoice(_Type):
    """TOPIC or TOPIC:0,1, as Kafka's tools write it"""

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
    """A consumer group's name; whether there is such a group is for the cluster to say."""

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
    """One that has offsets in ZooKeeper"""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return _complete(ctx, incomplete, lambda admin: admin.list_zookeeper_groups())


class _BrokerId(click.IntRange):
    """A broker's id; whether there is such a broker is for the cluster to say."""

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
        return []  # a shell has no place for an error
