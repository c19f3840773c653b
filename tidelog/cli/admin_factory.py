"""Opens the admin client of a command, and makes the errors for topics, partitions and groups that do not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tidelog.cli.common_options import find_cluster
from tidelog.quantities import count_of, format_duration

if TYPE_CHECKING:
    from tidelog.client.admin.admin import Admin
    from tidelog.errors import TidelogError
    from tidelog.groups.descriptions import ConsumerGroupDescription
    from tidelog.model import TopicPartition

#: How long a command waits for a group's coordinator before it prints that it waits.
_QUIET_MS = 2_000


@contextmanager
def open_admin(
    bootstrap_servers: str | None, timeout: float, *, shows_waiting: bool = True, client_id: str = "tidelog-cli"
) -> Iterator[Admin]:
    """Open an admin client of the command's cluster for the block. Its calls give up after `timeout` seconds.

    bootstrap_servers   the option's value; None: found by `find_cluster`, which may raise LocalError
    shows_waiting       whether a terminal shows how long a call has waited
    """
    servers = find_cluster(bootstrap_servers)

    from tidelog.cli.command_admin import CommandAdmin
    from tidelog.client.admin.admin import Admin

    timeout_ms = round(timeout * 1000)
    with (CommandAdmin if shows_waiting else Admin)(
        servers,
        client_id=client_id,
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, 5_000),
    ) as admin:
        yield admin


def describe_group_with_notice(admin: Admin, name: str, timeout: float) -> ConsumerGroupDescription:
    """Return the group's description; a group that does not exist has the state DEAD.

    If the coordinator does not answer within two seconds, print the reason on standard error and wait further. Raises
    TimeoutError after `timeout` seconds in all.
    """
    from tidelog.errors import TimeoutError

    total_ms = round(timeout * 1000)
    quiet_ms = min(total_ms, _QUIET_MS)
    try:
        return admin.describe_consumer_groups([name], quiet_ms)[name]
    except TimeoutError as error:
        left_ms = total_ms - quiet_ms
        if not left_ms:
            raise
        click.echo(f"{error}; waiting up to {format_duration(left_ms)} more", err=True)
    return admin.describe_consumer_groups([name], left_ms)[name]


def unknown_topic(name: str) -> click.ClickException:
    """Return, for the caller to raise, the error of a command that names a topic that does not exist."""
    return click.ClickException(f"no topic {name!r}: tidelog topic list shows all topics")


def unknown_partition(topic: str, number: int, known: Collection[int]) -> click.ClickException:
    """Return, for the caller to raise, the error of a command that names a partition that the topic does not have.

    `known` are the topic's partitions.
    """
    from tidelog.client.metadata import no_such_partition
    from tidelog.model import TopicPartition

    return click.ClickException(str(no_such_partition(TopicPartition(topic, number), len(known))))


def unknown_group(name: str) -> click.ClickException:
    """Return, for the caller to raise, the error of a command that names a group that does not exist."""
    return click.ClickException(f"no group {name!r}: tidelog group list shows all groups")


def raise_if_unanswered(errors: Mapping[TopicPartition, TidelogError | None], asked: int) -> None:
    """Raise ClickException if a partition has an error; return if all are None. Callers print the answers before.

    The message names the first error, and how many of the `asked` partitions have one.
    """
    unanswered = [tp for tp, error in errors.items() if error is not None]
    if unanswered:
        tp = unanswered[0]
        raise click.ClickException(
            f"{count_of(len(unanswered), 'partition')} of {asked} did not answer ({errors[tp]}): "
            f"tidelog explain {tp.topic}/{tp.partition} shows why"
        )
