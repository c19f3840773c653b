"""The changes that `tidelog topic reassign` is asked to make, and the replicas that would be lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.cli.reassignments.progress import Progress, ids_text, name_of
from tidelog.model import TopicPartition
from tidelog.quantities import MOST_NAMED, count_of, plural, ranges_of

if TYPE_CHECKING:
    from tidelog.client.admin.admin_results import PartitionDescription
    from tidelog.protocol.partition_messages import PartitionReassignment


def target_replicas(described: PartitionDescription, moving: PartitionReassignment | None) -> tuple[int, ...]:
    """Return the replicas that the partition will have after its reassignment; its current ones if there is none."""
    removing = moving.removing_replicas if moving else ()
    return tuple(replica for replica in described.replicas if replica not in removing)


def lost_replicas(name: str, before: Mapping[int, Sequence[int]], wanted: Mapping[int, Sequence[int]]) -> list[str]:
    """Return a clause for each group of partitions whose number of replicas would fall alike; empty if none falls.

    `before` has the current and `wanted` the new replicas by partition of the topic `name`.
    """
    fewer: dict[tuple[int, int], list[int]] = {}
    for number, replicas in sorted(wanted.items()):
        if len(replicas) < len(before[number]):
            fewer.setdefault((len(before[number]), len(replicas)), []).append(number)
    return [
        f"{plural(len(numbers), 'partition')} {ranges_of(numbers, MOST_NAMED)} of {name} would have "
        f"{count_of(new, 'replica')} instead of {old}"
        for (old, new), numbers in fewer.items()
    ]


@dataclass(frozen=True, slots=True)
class StartedChange:
    """A change that this command has started for one partition.

    before     the replicas before the change, or at the end of a reassignment that was in progress
    replicas   the new replicas; None if the change cancels a reassignment
    """

    partition: TopicPartition
    before: Sequence[int]
    replicas: Sequence[int] | None

    def state(self, progress: Mapping[TopicPartition, Progress]) -> str:
        """Return `cancelled`, `in progress`, or `done` if the partition has its replicas already."""
        if self.replicas is None:
            return "cancelled"
        return "in progress" if self.partition in progress else "done"

    def sentence(self, progress: Mapping[TopicPartition, Progress]) -> str:
        """Return the change as a sentence; `progress` has the reassignments in progress by partition."""
        return f"{name_of(self.partition)}: {self._clause(progress)}"

    def _clause(self, progress: Mapping[TopicPartition, Progress]) -> str:
        if self.replicas is None:
            return "its reassignment is cancelled"
        if tuple(self.replicas) == tuple(self.before):
            return f"has the replicas {ids_text(self.replicas)} already"
        return f"replicas {ids_text(self.before)} → {ids_text(self.replicas)}, {self.state(progress)}"

    def as_json(self, progress: Mapping[TopicPartition, Progress]) -> dict[str, object]:
        """Return the change as a JSON object; `new_replicas` is null if the change cancels a reassignment."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "old_replicas": list(self.before),
            "new_replicas": None if self.replicas is None else list(self.replicas),
            "state": self.state(progress),
        }
