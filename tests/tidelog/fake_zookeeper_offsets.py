"""The offsets that a `FakeCluster` keeps in ZooKeeper."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tidelog.errors import UnknownTopicOrPartitionError
from tidelog.model import TopicPartition
from tidelog.protocol.group_messages import (
    CommittedPartition,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchPartition,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from tidelog.protocol.messages import Request, Response

if TYPE_CHECKING:
    from tests.tidelog.fake_cluster import FakeCluster


class FakeZooKeeperOffsets:
    """By group, whichever broker is asked."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.committed: dict[str, dict[TopicPartition, int]] = defaultdict(dict)
        self._cluster = cluster

    def handle(self, code: int, request: Request) -> Response:
        """`code`: what each partition is refused with, or a listing as a whole."""
        match request:
            case ListGroupsRequest():
                return ListGroupsResponse(code, tuple(ListedGroup(group_id, "", "") for group_id in self.committed))
            case OffsetFetchRequest():
                found = self.committed.get(request.group_id, {})
                return OffsetFetchResponse(
                    0,
                    tuple(
                        OffsetFetchPartition(*tp, code or self._code(tp), -1 if code else offset)
                        for tp, offset in found.items()
                    ),
                )
            case OffsetCommitRequest():
                shown = []
                for part in request.partitions:
                    tp = TopicPartition(part.topic, part.partition)
                    refused = code or self._code(tp)
                    shown.append(CommittedPartition(*tp, refused))
                    if not refused:
                        self.committed[request.group_id][tp] = part.committed_offset
                return OffsetCommitResponse(tuple(shown))
        raise AssertionError(request)

    def _code(self, tp: TopicPartition) -> int:
        known = tp.partition < len(self._cluster.partitions.get(tp.topic, ()))
        return 0 if known else UnknownTopicOrPartitionError.code
