"""`leadership-checkpoint`: for each partition, the leadership on which this broker acted last.

    0
    1
    orders 0 AAAAAAAAAAAAAAAAAAAAAQ 17 3 40 2   topic, partition, topic id, leader epoch, leader (−1: none),
                                                partition epoch, controller epoch

A log's epoch cache (`storage.log.leader_epochs`) knows only epochs with appended records. The checkpoint also names an
epoch that ended without a record, so that a restarted broker accepts no other leader in that epoch
(`node.replication.leader_epoch_fence`). An entry holds only for the topic with its id, not for a later topic of the
same name.

The broker writes the file before it acts on new leaderships, once for all partitions that change together, without a
flush. A killed process loses nothing. After a power failure the file may be outdated, or damaged and then ignored. The
epoch caches of the logs still hold in that case.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from storage.checkpoints import read_lines, whole_number, write_lines
from storage.files import Files
from tidelog.errors import InvalidTopicError
from tidelog.model import NO_LEADER, TopicPartition, validate_topic
from tidelog.records.varint import INT32_MAX

FILE_NAME = "leadership-checkpoint"


class Leadership(NamedTuple):
    """The leader of a partition of the topic `topic_id` in the leader epoch `epoch`; `leader` −1: none.

    `partition_epoch` is the version of the partition's state, `controller_epoch` that of the controller that wrote it.
    """

    topic_id: str
    epoch: int
    leader: int
    partition_epoch: int
    controller_epoch: int


def read(files: Files, directory: Path) -> dict[TopicPartition, Leadership]:
    """Return the leaderships by partition; empty if the file is missing or damaged."""
    found: dict[TopicPartition, Leadership] = {}
    try:
        for topic, partition, topic_id, epoch, leader, *versions in read_lines(files, directory / FILE_NAME) or ():
            tp = TopicPartition(validate_topic(topic), whole_number(partition, INT32_MAX))
            leader_id = NO_LEADER if leader == str(NO_LEADER) else whole_number(leader, INT32_MAX)
            partition_epoch, controller_epoch = (whole_number(each, INT32_MAX) for each in versions)
            found[tp] = Leadership(
                topic_id, whole_number(epoch, INT32_MAX), leader_id, partition_epoch, controller_epoch
            )
    except (ValueError, InvalidTopicError):
        return {}
    return found


def write(files: Files, directory: Path, leaderships: Mapping[TopicPartition, Leadership]) -> None:
    """Replace the file without a flush. StorageError."""
    lines = (
        f"{topic} {partition} {topic_id} {epoch} {leader} {partition_epoch} {controller_epoch}"
        for (topic, partition), (topic_id, epoch, leader, partition_epoch, controller_epoch) in sorted(
            leaderships.items()
        )
    )
    write_lines(files, directory / FILE_NAME, lines, fsync=False)
