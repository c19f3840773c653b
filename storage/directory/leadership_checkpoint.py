"""`leadership-checkpoint`: on which state this broker acted last, for each partition.

    0
    1
    orders 0 AAAAAAAAAAAAAAAAAAAAAQ 17 3 40 2   topic, partition, topic id, leader epoch, leader (−1: nobody),
                                                partition epoch, controller epoch

A log's own epochs (`storage.log.leader_epochs`) know only those in which something was appended. What is written here
also tells of an epoch that ended before its first record came, so that a broker that starts again takes no other leader
in it (`node.replication.leader_epoch_fence`). It counts for the topic with that id alone: a later one of the same name
begins anew.

Written before it is acted upon, once for all partitions whose leaders change together, and not synced: a process that
is killed loses nothing of it. After a power failure it may be older than it was, or damaged, and then says nothing: the
logs' epochs still count.
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
    """Who leads a partition of the topic in that epoch (−1: nobody), by which version of its state and controller."""

    topic_id: str
    epoch: int
    leader: int
    partition_epoch: int
    controller_epoch: int


def read(files: Files, directory: Path) -> dict[TopicPartition, Leadership]:
    """By partition; empty where the file is missing or damaged."""
    found: dict[TopicPartition, Leadership] = {}
    try:
        for topic, partition, topic_id, epoch, leader, *versions in read_lines(files, directory / FILE_NAME) or ():
            tp = TopicPartition(validate_topic(topic), whole_number(partition, INT32_MAX))
            who = NO_LEADER if leader == str(NO_LEADER) else whole_number(leader, INT32_MAX)
            partition_epoch, controller_epoch = (whole_number(each, INT32_MAX) for each in versions)
            found[tp] = Leadership(topic_id, whole_number(epoch, INT32_MAX), who, partition_epoch, controller_epoch)
    except (ValueError, InvalidTopicError):
        return {}
    return found


def write(files: Files, directory: Path, leaderships: Mapping[TopicPartition, Leadership]) -> None:
    """Replaces the file, not durably. StorageError."""
    lines = ((*tp, *leadership) for tp, leadership in sorted(leaderships.items()))
    write_lines(files, directory / FILE_NAME, lines, sync=False)
