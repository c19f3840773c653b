"""`tidelog consume --group`: reads the partitions that the group assigns, and commits what is written."""

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

#: Shorter than the default of a program, because a killed command is often started again by a user who waits for it.
SESSION_TIMEOUT_MS = 10_000


def offset_reset_of(start: Position) -> str:
    """Return the setting `auto_offset_reset` for `--from`: earliest, latest, or "@" and a time in ms.

    Raises UsageError for an offset, because each partition has its own offsets.
    """
    match start:
        case Beginning():
            return "earliest"
        case End():
            return "latest"
        case At(timestamp_ms):
            return f"@{timestamp_ms}"
        case int():
            raise click.UsageError(
                "--from with --group must not be an offset, because each partition has its own offsets: move the group "
                "with tidelog group reset --to-offset"
            )


class GroupReading(ConsumerRebalanceListener):
    """Reads the partitions that the group assigns to this member, up to `ends` (None: without an end).

    The constructor subscribes the consumer. Offsets are committed after the records have left this process. If the
    process dies in between, the next member writes these records again. As a context manager, GroupReading commits the
    offsets of all written records at the end of the block, also on Ctrl-C, but not after other errors.
    """

    def __init__(self, consumer: Consumer, topic: str, ends: Offsets | None) -> None:
        self.ends = ends
        self._consumer = consumer
        self._joined = False
        self._uncommitted: dict[TopicPartition, OffsetAndMetadata] = {}
        consumer.subscribe([topic], listener=self)

    def __enter__(self) -> GroupReading:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self._commit()

    def over(self) -> bool:
        """Return whether this member has joined, and its position is at the end of each assigned partition.

        Always False without `ends`.
        """
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
            return  # the member still owns the partitions, and commits when the next poll revokes them
        except CommitFailedError as error:
            click.echo(f"tidelog: {error}; other members of the group will write some records again", err=True)
        self._uncommitted.clear()
