"""Reads and writes the offsets that groups keep in ZooKeeper (requests of version 0), through any broker."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.client.cluster_client import ClusterClient
from tidelog.errors import (
    BrokerError,
    CoordinatorNotAvailableError,
    RequestTimedOutError,
    TimeoutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
    error_for,
    raise_first,
)
from tidelog.frozen_dataclass import frozen
from tidelog.groups.zookeeper_names import group_in_path_or_raise
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import Request, Response

#: Errors that end when ZooKeeper answers again, or when another broker is asked.
_RETRIABLE = (RequestTimedOutError, CoordinatorNotAvailableError)


@frozen
class ZooKeeperOffset:
    """A group's committed offset of one partition.

    offset   −1 if it cannot be read
    error    UnknownTopicOrPartitionError if the cluster does not have the partition any more, UnknownServerError if the
             value cannot be used; None: the offset is valid
    """

    offset: int
    error: BrokerError | None = None


async def list_groups(client: ClusterClient, deadline_ms: int) -> list[str]:
    """Return the names of the groups that have offsets in ZooKeeper, in alphabetical order."""
    answer = await client.call_any(ListGroupsRequest(in_zookeeper=True), deadline_ms)
    assert isinstance(answer, ListGroupsResponse)
    return sorted(group.group_id for group in answer.groups)


async def group_offsets(
    client: ClusterClient, group_id: str, deadline_ms: int
) -> dict[TopicPartition, ZooKeeperOffset]:
    """Return all offsets of the group by partition; empty if there are none.

    Raises InvalidGroupIdError if ZooKeeper cannot have such a group.
    """
    group_in_path_or_raise(group_id)
    answer = await _final_answer(client, OffsetFetchRequest(group_id, None, in_zookeeper=True), deadline_ms)
    assert isinstance(answer, OffsetFetchResponse)
    return {
        (tp := TopicPartition(part.topic, part.partition)): ZooKeeperOffset(
            part.committed_offset, _refusal(tp, part.error_code)
        )
        for part in answer.partitions
    }


async def commit_offsets(
    client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, int], deadline_ms: int
) -> None:
    """Commit the offsets of the group to ZooKeeper.

    Raises the error of the first partition that failed, with the errors of the other partitions in `others`, and
    InvalidGroupIdError if ZooKeeper cannot have such a group.
    """
    group_in_path_or_raise(group_id)
    partitions = tuple(OffsetCommitPartition(*tp, offset) for tp, offset in offsets.items())
    answer = await _final_answer(client, OffsetCommitRequest(group_id, partitions, in_zookeeper=True), deadline_ms)
    assert isinstance(answer, OffsetCommitResponse)
    raise_first(_refusal(TopicPartition(part.topic, part.partition), part.error_code) for part in answer.partitions)


def _refusal(tp: TopicPartition, code: int) -> BrokerError | None:
    error = error_for(code)
    match error:
        case None:
            return None
        case UnknownTopicOrPartitionError():
            return UnknownTopicOrPartitionError(f"the cluster has no partition {tp}")
        case UnknownServerError():
            return UnknownServerError(f"{tp}: the value in ZooKeeper cannot be used; a broker's log shows why")
    return type(error)(f"{tp}: {error}")


async def _final_answer(client: ClusterClient, request: Request, deadline_ms: int) -> Response:
    """Return any broker's answer, once none of its entries has a retriable error.

    Raises TimeoutError at the deadline.
    """
    attempt = 0
    last: BrokerError | None = None
    while True:
        try:
            answer = await client.call_any(request, deadline_ms)
        except TimeoutError as error:
            if last is None:
                raise
            raise TimeoutError(f"timed out waiting for offsets from ZooKeeper (last: {last})") from error
        assert isinstance(answer, OffsetFetchResponse | OffsetCommitResponse)
        codes = {part.error_code for part in answer.partitions}
        last = next((error for error in map(error_for, codes) if isinstance(error, _RETRIABLE)), None)
        if last is None:
            return answer
        await client.backoff(attempt, deadline_ms)
        attempt += 1
