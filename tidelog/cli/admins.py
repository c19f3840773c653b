"""The admin of a command, and what it says of topics that do not exist."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tidelog.cli.find import find_cluster
from tidelog.quantities import count_of

if TYPE_CHECKING:
    from tidelog.admin import Admin
    from tidelog.errors import TidelogError
    from tidelog.model import TopicPartition


@contextmanager
def open_admin(bootstrap_servers: str | None, timeout: float) -> Iterator[Admin]:
    """An admin of the cluster that the command means; its calls give up after `timeout` seconds."""
    servers = find_cluster(bootstrap_servers)

    from tidelog.admin import Admin

    timeout_ms = round(timeout * 1000)
    with Admin(
        servers,
        client_id="tidelog-cli",
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, 5_000),
    ) as admin:
        yield admin


def unknown_topic(name: str) -> click.ClickException:
    """What to answer to somebody who means a topic that does not exist."""
    return click.ClickException(f"no topic {name!r}: tidelog topic list shows what there is")


def unknown_partition(topic: str, number: int, known: Collection[int]) -> click.ClickException:
    """What to answer to somebody who means a partition that the topic does not have."""
    return click.ClickException(f"topic {topic!r} has no partition {number}: its partitions are 0 to {max(known)}")


def unknown_group(name: str) -> click.ClickException:
    """What to answer to somebody who means a group that does not exist."""
    return click.ClickException(f"no group {name!r}: tidelog group list shows what there is")


def refuse_silence(errors: Mapping[TopicPartition, TidelogError | None], asked: int) -> None:
    """Once the rest is shown: ClickException where some of the partitions that were asked about have an error."""
    silent = [tp for tp, error in errors.items() if error is not None]
    if silent:
        tp = silent[0]
        raise click.ClickException(
            f"{count_of(len(silent), 'partition')} of {asked} gave no answer ({errors[tp]}): "
            f"tidelog explain {tp.topic}/{tp.partition} says more"
        )
