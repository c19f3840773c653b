"""`tidelog consume --group`: a member's share of a topic, committed once it is written."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import click

from tidelog.cli.records.consume_range import Offsets
from tidelog.cli.terminal.times import At, Beginning, End, Position
from tidelog.errors import CommitFailedError, RebalanceInProgressError
from tidelog.groups.membership.rebalance_listener import ConsumerRebalanceListener
from tidelog.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from tidelog.cli.records.consume_loop import Written
    from tidelog.client.consumer.consumer import Consumer

#: A command is often killed, and started again by somebody who waits for it. A program's default is much longer.
SESSION_TIMEOUT_MS = 10_000


def start_of_new_group(start: Position) -> str:
    """The `auto_offset_reset` for `--from`; click.UsageError for an offset, which is another one in each partition."""
    match start:
        case Beginning():
            return "earliest"
        case End():
            return "latest"
        case At(timestamp_ms):
            return f"@{timestamp_ms}"
        case int():
            raise click.UsageError(
                "--from is where a new group begins, an offset is one of a single partition: move the group with "
                "tidelog group reset --to-offset"
            )


class Share(ConsumerRebalanceListener):
    """Whatever the group assigns to this member, up to `ends`.

    Records are committed after they have left this process: who dies between the two has them written once more. As a
    context it commits what is written and not committed when a Ctrl-C ends it.
    """

    def __init__(self, consumer: Consumer, topic: str, ends: Offsets | None) -> None:
        self.ends = ends
        self._consumer = consumer
        self._joined = False
        self._uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        consumer.subscribe([topic], listener=self)

    def __enter__(self) -> Share:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self._commit()

    def over(self) -> bool:
        """Whether it has joined, and stands at the end of all that it was assigned."""
        return self.ends is not None and self._joined and not self.unread()

    def unread(self) -> Sequence[TopicPartition]:
        assigned = sorted(self._consumer.assignment())
        if self.ends is None:
            return assigned
        return [tp for tp in assigned if self._consumer.position(tp) < self.ends.get(tp, 0)]

    def written(self, polled: Written) -> None:
        self._uncommitted.update({tp: position for tp, position in polled.items() if position is not None})
        self._commit()
        if self.ends is not None:
            self._consumer.pause(*(tp for tp in polled if self._consumer.position(tp) >= self.ends.get(tp, 0)))

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._joined = True

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._commit()

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        for tp in lost:
            self._uncommitted.pop(tp, None)

    def _commit(self) -> None:
        if not self._uncommitted:
            return
        try:
            self._consumer.commit(dict(self._uncommitted))
        except RebalanceInProgressError:
            return  # they are still its own when the next poll gives them up
        except CommitFailedError as error:
            click.echo(f"tidelog: {error}; others of the group write some records again", err=True)
        self._uncommitted.clear()
